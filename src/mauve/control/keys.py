"""Data-plane keys: mint, list, revoke."""

from functools import partial

from mauve.access import keys
from mauve.control.apps import check_not_archived
from mauve.control.bodies import invalid_body
from mauve.control.dependencies import ControlParts
from mauve.control.quotas import check_new_key
from mauve.core.app import APP_NAME_CHARACTERS_MAX, App, Environment, app_name_from
from mauve.core.credential import OPERATOR, AppKey, KeyKind
from mauve.core.ids import is_id, new_id
from mauve.core.problems import not_found
from mauve.core.secret import Secret
from mauve.stores.catalog import NewKey


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
    minted = keys.mint(kind, environment, parts.randomness)
    new = NewKey(
        key_id=new_id("key", parts.randomness),
        kind=kind,
        environment=environment,
        digest=minted.digest,
        masked=minted.masked,
        created_at=parts.clock.now_ms(),
        minted_by=minted_by,
        name=_name_from(name),
    )
    if parts.catalog.keys.mint(app.app_id, new, partial(check_new_key, parts.quotas)) is None:
        raise not_found()
    return new.key_id, minted.key


def list_keys(parts: ControlParts, app: App) -> list[AppKey]:
    return parts.catalog.keys.all_of(app.app_id)


def revoke_key(parts: ControlParts, app: App, key_id: str) -> None:
    """Revoke permanently. Revoking again changes nothing and succeeds."""
    if not is_id(key_id, "key") or parts.catalog.keys.revoke(app.app_id, key_id) is None:
        raise not_found()


def _name_from(text: str) -> str | None:
    if not text.strip():
        return None
    name = app_name_from(text)
    if name is None:
        raise invalid_body(f"a key's name has at most {APP_NAME_CHARACTERS_MAX} characters and no control characters")
    return name
