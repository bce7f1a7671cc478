"""What pages tell of keys and tokens: who minted them, and which of them are shown."""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from mauve.core.credential import OPERATOR, AppKey, ControlToken
from mauve.dashboard.context import MemberContext

_REVOKED_SHOWN: Final = 100

Credential = TypeVar("Credential", AppKey, ControlToken)


def minter_names(context: MemberContext) -> Callable[[str | None], str]:
    """Return how to name whoever minted something in the organization."""
    catalog, org_id = context.control.catalog, context.organization.org_id
    names = {OPERATOR: "the command line"}
    names |= {token.token_id: f"the token {token.name}" for token in catalog.tokens.all_of(org_id)}
    names |= {member.user.user_id: member.user.email for member in catalog.users.all_of(org_id)}

    def name(minter: str | None) -> str:
        return "not noted" if minter is None else names.get(minter, "a former member")

    return name


def latest(credentials: Sequence[Credential]) -> tuple[list[Credential], int]:
    """Return those that work and the last of the revoked ones, newest first, and how many more there are."""
    newest_first = credentials[::-1]
    revoked = [each for each in newest_first if each.revoked]
    hidden = {id(each) for each in revoked[_REVOKED_SHOWN:]}
    return [each for each in newest_first if id(each) not in hidden], len(hidden)
