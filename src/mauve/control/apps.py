"""Apps and their data-plane keys."""

from functools import partial

from msgspec import UnsetType

from mauve.access import keys
from mauve.control import ControlParts
from mauve.control.bodies import AppChangesBody, NewAppBody, invalid_body
from mauve.control.quotas import check_new_app, check_new_key
from mauve.core.app import APP_NAME_CHARACTERS_MAX, App, Environment, app_name_from
from mauve.core.credential import OPERATOR, KeyKind
from mauve.core.ids import is_id, new_id
from mauve.core.problems import existing, not_found
from mauve.core.secret import Secret
from mauve.stores.catalog import AppChanges, NewApp, NewKey


def create_app(parts: ControlParts, org_id: str, wanted: NewAppBody, minted_by: str = OPERATOR) -> tuple[App, Secret]:
    """Create the app with its live project and first server key, and publish the key before returning."""
    app = NewApp(
        app_id=new_id("app", parts.randomness),
        org_id=org_id,
        public_id=new_id("proj", parts.randomness),
        name=_name_from(wanted.name),
        ownership=wanted.ownership,
        type=wanted.type,
        created_at=parts.clock.now_ms(),
    )
    first_key, text = new_key(parts, KeyKind.SERVER, Environment.LIVE, minted_by)
    return parts.catalog.apps.create(app, first_key, partial(check_new_app, parts.quotas)), text


def new_key(
    parts: ControlParts, kind: KeyKind, environment: Environment, minted_by: str, name: str | None = None
) -> tuple[NewKey, Secret]:
    """Return a key to store, and its text, which is known only now."""
    text = keys.mint(kind, environment, parts.randomness)
    new = NewKey(
        key_id=new_id("key", parts.randomness),
        kind=kind,
        environment=environment,
        digest=keys.digest_of(text.reveal()),
        masked=keys.masked(text.reveal()),
        created_at=parts.clock.now_ms(),
        minted_by=minted_by,
        name=name,
    )
    return new, text


def find_app(parts: ControlParts, org_id: str, app_id: str) -> App:
    """Return the app. An archived one is not found: the API does not know it until it is restored."""
    app = find_any_app(parts, org_id, app_id)
    if app.is_archived:
        raise not_found()
    return app


def find_any_app(parts: ControlParts, org_id: str, app_id: str) -> App:
    """Return the app, even an archived one."""
    return existing(parts.catalog.apps.find(org_id, app_id) if is_id(app_id, "app") else None)


def check_not_archived(app: App) -> None:
    if app.is_archived:
        raise invalid_body("this app is archived: restore it first, in its settings or with 'mauve app restore'")


def archive_app(parts: ControlParts, app: App) -> App:
    """Refuse the app's keys and webhooks from now on, hide it, and keep its data. Again changes nothing."""
    return existing(parts.catalog.apps.archive(app.org_id, app.app_id, parts.clock.now_ms()))


def restore_app(parts: ControlParts, app: App) -> App:
    """Make an archived app work again, with the keys and webhook secrets it had."""
    return existing(parts.catalog.apps.restore(app.org_id, app.app_id))


def change_app(parts: ControlParts, app: App, wanted: AppChangesBody) -> App:
    """Apply all given fields, or none if one of them is invalid."""
    changes = AppChanges(
        name=None if isinstance(wanted.name, UnsetType) else _name_from(wanted.name),
        ownership=None if isinstance(wanted.ownership, UnsetType) else wanted.ownership,
        type=None if isinstance(wanted.type, UnsetType) else wanted.type,
    )
    if changes == AppChanges():
        raise invalid_body("give at least one of name, ownership and type")
    return existing(parts.catalog.apps.change(app.org_id, app.app_id, changes))


def _name_from(text: str) -> str:
    name = app_name_from(text)
    if name is None:
        raise invalid_body(
            f"name must have 1 to {APP_NAME_CHARACTERS_MAX} characters after trimming, and no control characters"
        )
    return name


def mint_key(
    parts: ControlParts,
    app: App,
    kind: KeyKind,
    environment: Environment,
    minted_by: str = OPERATOR,
    *,
    name: str = "",
) -> tuple[str, Secret]:
    """Mint and publish a key; return its id and its text, which is shown only now. An empty name means none."""
    check_not_archived(app)
    new, text = new_key(parts, kind, environment, minted_by, _key_name_from(name))
    existing(parts.catalog.keys.mint(app.app_id, new, partial(check_new_key, parts.quotas)))
    return new.key_id, text


def revoke_key(parts: ControlParts, app: App, key_id: str) -> None:
    """Revoke permanently. Revoking again changes nothing and succeeds."""
    existing(parts.catalog.keys.revoke(app.app_id, key_id) if is_id(key_id, "key") else None)


def _key_name_from(text: str) -> str | None:
    if not text.strip():
        return None
    name = app_name_from(text)
    if name is None:
        raise invalid_body(f"a key's name has at most {APP_NAME_CHARACTERS_MAX} characters and no control characters")
    return name
