"""The keys page of an app: mint, list and revoke keys. Also describes credentials for other pages."""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from starlette.responses import Response

from mauve.control import apps
from mauve.control.bodies import invalid_body
from mauve.control.people import emails_of
from mauve.core.app import Environment
from mauve.core.credential import OPERATOR, AppKey, ControlToken, KeyKind
from mauve.core.problems import not_found
from mauve.dashboard.context import MemberContext
from mauve.dashboard.rendering import page, see_other

# The test environment has server keys only.
CHOICES: Final = {
    "sk_live": (KeyKind.SERVER, Environment.LIVE),
    "pk_live": (KeyKind.PUBLISHABLE, Environment.LIVE),
    "sk_test": (KeyKind.SERVER, Environment.TEST),
}
_REVOKED_SHOWN_MAX: Final = 100

Credential = TypeVar("Credential", AppKey, ControlToken)


def show_keys(context: MemberContext) -> Response:
    app = context.app()
    shown, hidden = newest(context.control.catalog.keys.all_of(app.app_id))
    return page(context, "keys.html", app=app, keys=shown, hidden=hidden, minter=minter_names(context))


def mint_key(context: MemberContext) -> Response:
    """Mint a key and show it. Without a redirect, since the key is shown only once."""
    app = context.app()
    choice = CHOICES.get(context.field("choice"))
    if choice is None:
        raise invalid_body("choose the kind of key to mint")
    kind, environment = choice
    if environment is Environment.TEST and app.test_public_id is None:
        raise invalid_body("this app has no test environment yet: prepare it under Webhooks first")
    name = context.field("name")
    _, key = apps.mint_key(context.control, app, kind, environment, context.user.user_id, name=name)
    return page(context, "minted_key.html", app=app, key=key.reveal(), kind=kind, environment=environment)


def confirm_revoking(context: MemberContext) -> Response:
    return page(context, "revoke_key.html", app=context.app(), key=_key(context))


def revoke_key(context: MemberContext) -> Response:
    app = context.app()
    apps.revoke_key(context.control, app, context.path["key_id"])
    return see_other(f"/apps/{app.app_id}/keys", done="key-revoked")


def minter_names(context: MemberContext) -> Callable[[str | None], str]:
    """Return a function that names the minter of any key or token of the organization."""
    catalog, org_id = context.control.catalog, context.organization.org_id
    names = {OPERATOR: "the command line"}
    names |= {token.token_id: f"the token {token.name}" for token in catalog.tokens.all_of(org_id)}
    names |= emails_of(context.control, org_id)

    def name(minter: str | None) -> str:
        return "unknown" if minter is None else names.get(minter, "a former member")

    return name


def newest(credentials: Sequence[Credential]) -> tuple[list[Credential], int]:
    """Return the active and last revoked credentials, newest first, and the number of hidden revoked ones."""
    newest_first = credentials[::-1]
    revoked = [each for each in newest_first if each.revoked]
    hidden = {id(each) for each in revoked[_REVOKED_SHOWN_MAX:]}
    return [each for each in newest_first if id(each) not in hidden], len(hidden)


def _key(context: MemberContext) -> AppKey:
    for key in context.control.catalog.keys.all_of(context.app().app_id):
        if key.key_id == context.path["key_id"]:
            return key
    raise not_found()
