"""An app's keys: minted and shown once, listed masked, revoked."""

from typing import Final

from starlette.responses import Response

from mauve.control import keys
from mauve.control.bodies import invalid_body
from mauve.core.app import Environment
from mauve.core.credential import AppKey, KeyKind
from mauve.core.problems import not_found
from mauve.dashboard.context import MemberContext
from mauve.dashboard.pages.minted import latest, minter_names
from mauve.dashboard.rendering import page, see_other

# The test plane has server keys only.
CHOICES: Final = {
    "sk_live": (KeyKind.SERVER, Environment.LIVE),
    "pk_live": (KeyKind.PUBLISHABLE, Environment.LIVE),
    "sk_test": (KeyKind.SERVER, Environment.TEST),
}


def show_keys(context: MemberContext) -> Response:
    app = context.app()
    shown, hidden = latest(keys.list_keys(context.control, app))
    return page(context, "keys.html", app=app, keys=shown, hidden=hidden, minter=minter_names(context))


def mint_key(context: MemberContext) -> Response:
    """Mint a key and show it: this once, so there is no page to send the browser on to."""
    app = context.app()
    choice = CHOICES.get(context.field("choice"))
    if choice is None:
        raise invalid_body("choose which kind of key to mint")
    kind, environment = choice
    if environment is Environment.TEST and app.test_public_id is None:
        raise invalid_body("this app has no test plane yet: save a test secret under Webhooks first")
    _, key = keys.mint_key(context.control, app, kind, environment, context.user.user_id)
    return page(
        context, "minted_key.html", app=app, key=key.reveal(), kind=kind, environment=environment, url=context.url
    )


def confirm_revoking(context: MemberContext) -> Response:
    return page(context, "revoke_key.html", app=context.app(), key=_key(context))


def revoke_key(context: MemberContext) -> Response:
    app = context.app()
    keys.revoke_key(context.control, app, context.path["key_id"])
    return see_other(f"/apps/{app.app_id}/keys", done="key-revoked")


def _key(context: MemberContext) -> AppKey:
    for key in keys.list_keys(context.control, context.app()):
        if key.key_id == context.path["key_id"]:
            return key
    raise not_found()
