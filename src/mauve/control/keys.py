"""Data-plane keys: mint, list, revoke."""

from functools import partial

from mauve.control.apps import check_not_archived, new_key
from mauve.control.bodies import invalid_body
from mauve.control.dependencies import ControlParts
from mauve.control.quotas import check_new_key
from mauve.core.app import APP_NAME_CHARACTERS_MAX, App, Environment, app_name_from
from mauve.core.credential import OPERATOR, AppKey, KeyKind
from mauve.core.ids import is_id
from mauve.core.problems import existing
from mauve.core.secret import Secret


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
    new, text = new_key(parts, kind, environment, minted_by, _name_from(name))
    existing(parts.catalog.keys.mint(app.app_id, new, partial(check_new_key, parts.quotas)))
    return new.key_id, text


def list_keys(parts: ControlParts, app: App) -> list[AppKey]:
    return parts.catalog.keys.all_of(app.app_id)


def revoke_key(parts: ControlParts, app: App, key_id: str) -> None:
    """Revoke permanently. Revoking again changes nothing and succeeds."""
    existing(parts.catalog.keys.revoke(app.app_id, key_id) if is_id(key_id, "key") else None)


def _name_from(text: str) -> str | None:
    if not text.strip():
        return None
    name = app_name_from(text)
    if name is None:
        raise invalid_body(f"a key's name has at most {APP_NAME_CHARACTERS_MAX} characters and no control characters")
    return name
