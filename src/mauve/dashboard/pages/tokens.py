"""Control tokens: minted with chosen scopes and shown once, listed, revoked."""

from mauve.control import operator
from mauve.control.bodies import invalid_body
from mauve.core.credential import ControlToken, Scope
from mauve.core.problems import Code, Problem, not_found
from mauve.core.roles import Permission, scopes_of
from mauve.dashboard.context import MemberVisit
from mauve.dashboard.pages.minted import latest, minter_names
from mauve.dashboard.rendering import page, see_other
from mauve.web.messages import Reply


def show_tokens(visit: MemberVisit) -> Reply:
    shown, hidden = latest(visit.control.catalog.tokens.all_of(visit.organization.org_id))
    return page(
        visit,
        "tokens.html",
        tokens=shown,
        hidden=hidden,
        minter=minter_names(visit),
        held=scopes_of(visit.user.role),
        may_revoke=lambda token: _may_revoke(visit, token),
    )


def mint_token(visit: MemberVisit) -> Reply:
    """Mint a token and show it: this once, so there is no page to send the browser on to."""
    scopes = _scopes(visit)
    user = visit.user
    _, token = operator.mint_token(visit.control, user.org_id, visit.field("name"), scopes, minted_by=user.user_id)
    return page(visit, "minted_token.html", token=token.reveal(), scopes=sorted(scopes), url=visit.url)


def confirm_revoking(visit: MemberVisit) -> Reply:
    return page(visit, "revoke_token.html", token=_revocable(visit))


def revoke_token(visit: MemberVisit) -> Reply:
    operator.revoke_token(visit.control, _revocable(visit).token_id)
    return see_other("/tokens", done="token-revoked")


def _scopes(visit: MemberVisit) -> frozenset[Scope]:
    """Return the scopes that were chosen, each of which the minter's role must hold."""
    try:
        scopes = frozenset(map(Scope, visit.fields("scopes")))
    except ValueError:
        raise invalid_body(f"scopes must be of {', '.join(Scope)}") from None
    if not scopes:
        raise invalid_body("Choose at least one scope.")
    if not scopes <= scopes_of(visit.user.role):
        raise Problem(Code.FORBIDDEN, "a token can only carry scopes that your own role holds")
    return scopes


def _revocable(visit: MemberVisit) -> ControlToken:
    for token in visit.control.catalog.tokens.all_of(visit.organization.org_id):
        if token.token_id == visit.path["token_id"]:
            if not _may_revoke(visit, token):
                raise Problem(Code.FORBIDDEN, "somebody else minted this token: ask an owner or admin to revoke it")
            return token
    raise not_found()


def _may_revoke(visit: MemberVisit, token: ControlToken) -> bool:
    return visit.may(Permission.TOKENS_REVOKE) or token.minted_by == visit.user.user_id
