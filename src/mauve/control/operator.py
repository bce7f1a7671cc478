"""Organizations and control tokens, as managed by the operator on the command line and by members in the dashboard."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Final

from mauve.access import tokens
from mauve.control import ControlParts
from mauve.control.quotas import check_new_token
from mauve.core.app import App, app_name_from
from mauve.core.credential import OPERATOR, ControlToken, Scope
from mauve.core.ids import new_id
from mauve.core.organization import Limits, Organization, Standing
from mauve.core.secret import Secret
from mauve.core.times import DAY_MS
from mauve.core.user import email_from
from mauve.stores.catalog import NewToken

_SHOWN_CHARACTERS_MAX: Final = 80


class RefusedError(Exception):
    """The operator or member asked for something impossible. The message says why, and what to do."""


def create_organization(parts: ControlParts, name: str) -> Organization:
    organization = new_organization(parts, name)
    parts.catalog.organizations.create(organization)
    return organization


def new_organization(parts: ControlParts, name: str) -> Organization:
    """Return a new organization, without storing it."""
    return Organization(
        org_id=new_id("org", parts.randomness),
        name=checked_name(name),
        standing=Standing.LIVE,
        grace_ends_at=None,
        limits=Limits(),
        created_at=parts.clock.now_ms(),
    )


def find_organization(parts: ControlParts, org_id: str) -> Organization:
    return _existing(parts.catalog.organizations.find(org_id), org_id)


def choose_organization(parts: ControlParts, org_id: str | None) -> Organization:
    """Return the named organization, or the only one if none is named."""
    if org_id is not None:
        return find_organization(parts, org_id)
    organizations = parts.catalog.organizations.list_all()
    if not organizations:
        raise RefusedError("there is no organization yet: open the set-up link, or run 'mauve org create NAME'")
    if len(organizations) > 1:
        raise RefusedError(
            f"there are {len(organizations)} organizations: choose one of 'mauve org list' and add --org ORG"
        )
    return organizations[0]


def rename(parts: ControlParts, org_id: str, name: str) -> Organization:
    new_name = checked_name(name)
    return _update(parts, org_id, lambda found: replace(found, name=new_name))


def suspend(parts: ControlParts, org_id: str) -> Organization:
    """Refuse events from now on, on every machine."""
    return _update(parts, org_id, lambda found: replace(found, standing=Standing.SUSPENDED, grace_ends_at=None))


def resume(parts: ControlParts, org_id: str) -> Organization:
    """Lift a suspension and clear an unpaid invoice."""
    return _update(parts, org_id, lambda found: replace(found, standing=Standing.LIVE, grace_ends_at=None))


def mark_unpaid(parts: ControlParts, org_id: str, grace_days: int) -> Organization:
    """Suspend at the end of the grace period, unless resumed before. Leave a suspended one suspended."""
    now = parts.clock.now_ms()
    grace_ends_at = now + grace_days * DAY_MS
    return _update(
        parts,
        org_id,
        lambda found: replace(found, standing=found.standing_at(now), grace_ends_at=grace_ends_at),
    )


def change_limits(parts: ControlParts, org_id: str, changes: Mapping[str, int | None]) -> Organization:
    """Change the named limits only."""

    def changed(found: Organization) -> Organization:
        return replace(found, limits=Limits(**(asdict(found.limits) | dict(changes))))

    return _update(parts, org_id, changed)


def find_app(parts: ControlParts, app_id: str) -> App:
    app = parts.catalog.apps.find_anywhere(app_id)
    if app is None:
        raise RefusedError(f"there is no app {app_id!r}: see 'mauve app list'")
    return app


def refused_since(app: App) -> int:
    """Return since when the keys and webhooks of an archived app are refused, in epoch ms."""
    if app.archived_at is None:
        raise RefusedError(f"the app {app.app_id} was restored: nothing was deleted")
    return app.archived_at


def forget_app(parts: ControlParts, app: App) -> None:
    """Delete an archived app from the catalog. Its data must have been deleted before."""
    if parts.catalog.apps.delete(app.org_id, app.app_id):
        return
    find_app(parts, app.app_id)  # Raises if it is already deleted.
    raise RefusedError(f"the app {app.app_id} was restored: run the command again to delete the rest")


def mint_token(
    parts: ControlParts, org_id: str, name: str, scopes: Iterable[Scope], minted_by: str = OPERATOR
) -> tuple[str, Secret]:
    """Mint and publish a control token; return its id and its text, which is shown only now."""
    find_organization(parts, org_id)
    text, stored = tokens.mint(parts.randomness)
    token = ControlToken(
        token_id=new_id("tok", parts.randomness),
        org_id=org_id,
        name=checked_name(name),
        scopes=frozenset(scopes),
        revoked=False,
        created_at=parts.clock.now_ms(),
        minted_by=minted_by,
    )
    check = partial(check_new_token, parts.quotas, scopes=token.scopes)
    parts.catalog.tokens.mint(NewToken(token, stored.lookup_id, stored.digest), check)
    return token.token_id, text


def revoke_token(parts: ControlParts, token_id: str) -> ControlToken:
    revoked = parts.catalog.tokens.revoke(token_id)
    if revoked is None:
        raise RefusedError(f"there is no token {token_id!r}: see 'mauve token list'")
    return revoked


def _update(parts: ControlParts, org_id: str, change: Callable[[Organization], Organization]) -> Organization:
    return _existing(parts.catalog.organizations.update(org_id, change), org_id)


def _existing(organization: Organization | None, org_id: str) -> Organization:
    if organization is None:
        raise RefusedError(f"there is no organization {org_id!r}: see 'mauve org list'")
    return organization


def checked_name(text: str) -> str:
    name = app_name_from(text)
    if name is None:
        raise RefusedError("a name has 1 to 80 characters and no control characters")
    return name


def checked_email(text: str) -> str:
    address = email_from(text)
    if address is None:
        raise RefusedError(f"{_shortened(text)!r} is not an e-mail address: write it like name@example.com")
    return address


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else f"{text[:_SHOWN_CHARACTERS_MAX]}…"
