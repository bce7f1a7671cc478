"""The page of control tokens: mint with chosen scopes, list, revoke."""

from starlette.responses import Response

from mauve.control import operator
from mauve.control.bodies import invalid_body
from mauve.core.credential import ControlToken, Scope
from mauve.core.problems import Code, Problem, not_found
from mauve.core.user import Permission, scopes_of
from mauve.dashboard.context import MemberContext
from mauve.dashboard.pages.keys import minter_names, newest
from mauve.dashboard.rendering import page, see_other


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


def confirm_revoking(context: MemberContext) -> Response:
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
