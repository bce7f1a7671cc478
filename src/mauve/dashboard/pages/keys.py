"""An app's keys: minted and shown once, listed masked, revoked."""

from typing import Final

from mauve.control import keys
from mauve.control.bodies import invalid_body
from mauve.core.app import Environment
from mauve.core.credential import AppKey, KeyKind
from mauve.core.problems import not_found
from mauve.dashboard.context import MemberVisit
from mauve.dashboard.pages.minted import latest, minter_names
from mauve.dashboard.rendering import page, see_other
from mauve.web.messages import Reply

# The test plane has server keys only.
CHOICES: Final = {
    "sk_live": (KeyKind.SERVER, Environment.LIVE),
    "pk_live": (KeyKind.PUBLISHABLE, Environment.LIVE),
    "sk_test": (KeyKind.SERVER, Environment.TEST),
}


def show_keys(visit: MemberVisit) -> Reply:
    app = visit.app()
    shown, hidden = latest(keys.list_keys(visit.control, app))
    return page(visit, "keys.html", app=app, keys=shown, hidden=hidden, minter=minter_names(visit))


def mint_key(visit: MemberVisit) -> Reply:
    """Mint a key and show it: this once, so there is no page to send the browser on to."""
    app = visit.app()
    choice = CHOICES.get(visit.field("choice"))
    if choice is None:
        raise invalid_body("choose which kind of key to mint")
    kind, environment = choice
    if environment is Environment.TEST and app.test_public_id is None:
        raise invalid_body("this app has no test plane yet: save a test secret under Webhooks first")
    _, key = keys.mint_key(visit.control, app, kind, environment, visit.user.user_id)
    return page(visit, "minted_key.html", app=app, key=key.reveal(), kind=kind, environment=environment, url=visit.url)


def confirm_revoking(visit: MemberVisit) -> Reply:
    return page(visit, "revoke_key.html", app=visit.app(), key=_key(visit))


def revoke_key(visit: MemberVisit) -> Reply:
    app = visit.app()
    keys.revoke_key(visit.control, app, visit.path["key_id"])
    return see_other(f"/apps/{app.app_id}/keys", done="key-revoked")


def _key(visit: MemberVisit) -> AppKey:
    for key in keys.list_keys(visit.control, visit.app()):
        if key.key_id == visit.path["key_id"]:
            return key
    raise not_found()
