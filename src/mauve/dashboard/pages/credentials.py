"""The pages of an app's keys and of control tokens: mint, list and revoke them."""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from starlette.responses import Response

from mauve.control import apps, operator
from mauve.control.bodies import invalid_body
from mauve.control.people import emails_of
from mauve.core.app import Environment
from mauve.core.credential import OPERATOR, AppKey, ControlToken, KeyKind, Scope
from mauve.core.problems import Code, Problem, not_found
from mauve.core.user import Permission, scopes_of
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


def confirm_revoking_key(context: MemberContext) -> Response:
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


def show_tokens(context: MemberContext) -> Response:
    shown, hidden = newest(context.control.catalog.tokens.all_of(context.organization.org_id))
    return page(
        context,
        "tokens.html",
        tokens=shown,
        hidden=hidden,
        minter=minter_names(context),
        held=scopes_of(context.user.role),
        may_revoke=lambda token: _may_revoke(context, token),
    )


def mint_token(context: MemberContext) -> Response:
    """Mint a token and show it. Without a redirect, since the token is shown only once."""
    scopes = _scopes(context)
    user = context.user
    _, token = operator.mint_token(context.control, user.org_id, context.field("name"), scopes, minted_by=user.user_id)
    return page(context, "minted_token.html", token=token.reveal(), scopes=sorted(scopes), url=context.url)


def confirm_revoking_token(context: MemberContext) -> Response:
    return page(context, "revoke_token.html", token=_revocable(context))


def revoke_token(context: MemberContext) -> Response:
    operator.revoke_token(context.control, _revocable(context).token_id)
    return see_other("/tokens", done="token-revoked")


def _scopes(context: MemberContext) -> frozenset[Scope]:
    """Return the chosen scopes; the minter's role must hold each of them."""
    try:
        scopes = frozenset(map(Scope, context.fields("scopes")))
    except ValueError:
        raise invalid_body(f"each scope must be one of {', '.join(Scope)}") from None
    if not scopes:
        raise invalid_body("Choose at least one scope.")
    if not scopes <= scopes_of(context.user.role):
        raise Problem(Code.FORBIDDEN, "a token can only have scopes that your own role includes")
    return scopes


def _revocable(context: MemberContext) -> ControlToken:
    for token in context.control.catalog.tokens.all_of(context.organization.org_id):
        if token.token_id == context.path["token_id"]:
            if not _may_revoke(context, token):
                raise Problem(Code.FORBIDDEN, "another member minted this token: ask an owner or admin to revoke it")
            return token
    raise not_found()


def _may_revoke(context: MemberContext, token: ControlToken) -> bool:
    return context.may(Permission.TOKENS_REVOKE) or token.minted_by == context.user.user_id
