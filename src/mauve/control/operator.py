"""What the operator does from the command line: organizations, tokens, people, links."""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Final

from mauve.access import tokens
from mauve.control.parts import ControlParts
from mauve.core.facts import App, ControlToken, Limits, Organization, Role, Scope, Standing, User
from mauve.core.ids import new_id
from mauve.core.names import app_name_from
from mauve.core.secret import Secret
from mauve.stores.catalog import NewToken, OneTimeLink

LINK_LIFETIME_MS: Final = 7 * 24 * 3600 * 1000
_DAY_MS: Final = 24 * 3600 * 1000
_LINK_SECRET_CHARACTERS: Final = 40
_EMAIL: Final = re.compile(r"[^\s@\x00-\x20\x7f]+@[^\s@\x00-\x20\x7f]+")
_EMAIL_CHARACTERS_MAX: Final = 254


class RefusedError(Exception):
    """An operator's request that cannot be carried out. The message says why and what to do."""


@dataclass(frozen=True, slots=True)
class MintedLink:
    """A one-time link at the only moment when its secret is known."""

    path: Secret
    expires_at: int


def create_organization(parts: ControlParts, name: str) -> Organization:
    organization = Organization(
        org_id=new_id("org", parts.randomness),
        name=checked_name(name),
        standing=Standing.LIVE,
        grace_ends_at=None,
        limits=Limits(),
        created_at=parts.clock.now_ms(),
    )
    parts.catalog.organizations.create(organization)
    parts.publisher.publish_now()
    return organization


def find_organization(parts: ControlParts, org_id: str) -> Organization:
    return _existing(parts.catalog.organizations.find(org_id), org_id)


def suspend(parts: ControlParts, org_id: str) -> Organization:
    return _update(parts, org_id, lambda found: replace(found, standing=Standing.SUSPENDED, grace_ends_at=None))


def resume(parts: ControlParts, org_id: str) -> Organization:
    """Lift a suspension and forget an unpaid invoice."""
    return _update(parts, org_id, lambda found: replace(found, standing=Standing.LIVE, grace_ends_at=None))


def mark_unpaid(parts: ControlParts, org_id: str, grace_days: int) -> Organization:
    """Suspend when the grace runs out, unless it is resumed before. One already suspended stays so."""
    now = parts.clock.now_ms()
    grace_ends_at = now + grace_days * _DAY_MS
    return _update(
        parts,
        org_id,
        lambda found: replace(found, standing=found.standing_at(now), grace_ends_at=grace_ends_at),
    )


def change_limits(parts: ControlParts, org_id: str, changes: Mapping[str, int | None]) -> Organization:
    """Change the limits that are named and leave the others."""

    def changed(found: Organization) -> Organization:
        return replace(found, limits=Limits(**(asdict(found.limits) | dict(changes))))

    return _update(parts, org_id, changed)


def find_app(parts: ControlParts, app_id: str) -> App:
    app = parts.catalog.apps.find_anywhere(app_id)
    if app is None:
        raise RefusedError(f"there is no app {app_id!r}: see 'mauve app list --org ORG'")
    return app


def mint_token(parts: ControlParts, org_id: str, name: str, scopes: Iterable[Scope]) -> tuple[str, Secret]:
    """Mint and publish a control token; return its id and, this once, its text."""
    find_organization(parts, org_id)
    minted = tokens.mint(parts.randomness)
    token = ControlToken(
        token_id=new_id("tok", parts.randomness),
        org_id=org_id,
        name=checked_name(name),
        scopes=frozenset(scopes),
        revoked=False,
        created_at=parts.clock.now_ms(),
    )
    parts.catalog.tokens.mint(NewToken(token, minted.lookup_id, minted.digest))
    parts.publisher.publish_now()
    return token.token_id, minted.token


def revoke_token(parts: ControlParts, token_id: str) -> ControlToken:
    revoked = parts.catalog.tokens.revoke(token_id)
    if revoked is None:
        raise RefusedError(f"there is no token {token_id!r}: see 'mauve token list --org ORG'")
    parts.publisher.publish_now()
    return revoked


def create_user(parts: ControlParts, org_id: str, email: str, role: Role) -> tuple[User, MintedLink]:
    """Add a person, with a one-time link to set the password."""
    find_organization(parts, org_id)
    user = User(
        user_id=new_id("usr", parts.randomness),
        org_id=org_id,
        email=_checked_email(email),
        role=role,
        created_at=parts.clock.now_ms(),
    )
    link, minted = _new_link(parts, "password", user.user_id)
    if not parts.catalog.users.create(user, link):
        raise RefusedError(f"{user.email} has an account already: choose another address")
    return user, minted


def renew_setup_link(parts: ControlParts) -> MintedLink | None:
    """Return a fresh link that makes the first owner; None once somebody has an account."""
    if parts.catalog.users.anyone():
        return None
    link, minted = _new_link(parts, "setup", None)
    parts.catalog.users.replace_setup_link(link)
    return minted


def find_link(parts: ControlParts, secret: str) -> OneTimeLink | None:
    """Return the link with that secret if it can still be used."""
    link = parts.catalog.users.find_link(_digest(secret))
    if link is None or parts.clock.now_ms() >= link.expires_at:
        return None
    if link.user_id is None and parts.catalog.users.anyone():
        return None  # The set-up link is for the very first account.
    return link


def _new_link(parts: ControlParts, purpose: str, user_id: str | None) -> tuple[OneTimeLink, MintedLink]:
    secret = parts.randomness.base62(_LINK_SECRET_CHARACTERS)
    now = parts.clock.now_ms()
    link = OneTimeLink(
        link_id=new_id("lnk", parts.randomness),
        digest=_digest(secret),
        user_id=user_id,
        expires_at=now + LINK_LIFETIME_MS,
        created_at=now,
    )
    return link, MintedLink(Secret(f"/{purpose}/{secret}"), link.expires_at)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def _update(parts: ControlParts, org_id: str, change: Callable[[Organization], Organization]) -> Organization:
    changed = _existing(parts.catalog.organizations.update(org_id, change), org_id)
    parts.publisher.publish_now()
    return changed


def _existing(organization: Organization | None, org_id: str) -> Organization:
    if organization is None:
        raise RefusedError(f"there is no organization {org_id!r}: see 'mauve org list'")
    return organization


def checked_name(text: str) -> str:
    name = app_name_from(text)
    if name is None:
        raise RefusedError("a name has 1 to 80 characters and no control characters")
    return name


def _checked_email(text: str) -> str:
    email = text.strip().lower()
    if len(email) > _EMAIL_CHARACTERS_MAX or _EMAIL.fullmatch(email) is None:
        raise RefusedError("an e-mail address looks like name@example.com")
    return email
