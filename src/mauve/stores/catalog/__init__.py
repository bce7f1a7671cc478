"""The catalog: who exists and what they may do.

Every method is one transaction: it is applied completely or not at all, is durable when it
returns, and raises `StoreUnavailableError` if the engine cannot answer.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mauve.core.app import AppType, Environment, Ownership
from mauve.core.biller import Provider
from mauve.core.credential import OPERATOR, AppKey, ControlToken, KeyKind, Scope
from mauve.core.organization import Organization
from mauve.core.user import Session, User


@dataclass(frozen=True, slots=True)
class NewApp:
    app_id: str
    org_id: str
    public_id: str
    name: str
    ownership: Ownership
    type: AppType
    created_at: int


@dataclass(frozen=True, slots=True)
class AppChanges:
    """The fields to change; None leaves a field unchanged."""

    name: str | None = None
    ownership: Ownership | None = None
    type: AppType | None = None


@dataclass(frozen=True, slots=True)
class NewKey:
    key_id: str
    kind: KeyKind
    environment: Environment
    digest: bytes
    masked: str
    created_at: int
    minted_by: str = OPERATOR
    name: str | None = None


@dataclass(frozen=True, slots=True)
class NewToken:
    token: ControlToken
    lookup_id: str
    digest: bytes


@dataclass(frozen=True, slots=True)
class StoredToken:
    token: ControlToken
    digest: bytes


@dataclass(frozen=True, slots=True)
class SealedSecret:
    app_id: str
    environment: Environment
    provider: Provider
    sealed: bytes
    saved_at: int
    is_placeholder: bool = False  # random, until the biller's own secret is saved


@dataclass(frozen=True, slots=True)
class OneTimeLink:
    """A link that works once, until it expires. Only the digest of its secret is stored."""

    link_id: str
    digest: bytes
    user_id: str | None  # None: the set-up link, which creates the first owner
    expires_at: int
    created_at: int


@dataclass(frozen=True, slots=True)
class Member:
    """A member of an organization. One without a password has not accepted the invitation yet."""

    user: User
    has_password: bool
    link_expires_at: int | None  # of their unused link


@dataclass(frozen=True, slots=True)
class Account:
    """The data a sign-in is checked against."""

    user: User
    password_hash: str | None


@dataclass(frozen=True, slots=True)
class SignedIn:
    session: Session  # of this user
    user: User
    organization: Organization
    at: int  # now, on the clock of the sessions


@dataclass(frozen=True, slots=True)
class SavedSecret:
    """A record that a webhook secret exists, without the secret."""

    environment: Environment
    provider: Provider
    saved_at: int
    is_placeholder: bool = False


@dataclass(frozen=True, slots=True)
class Tally:
    """What an organization has when something is minted in it, and what the minter may do at that time."""

    apps: int
    keys: int  # active
    keys_in_all: int  # including revoked ones
    app_keys: int  # of the app that the key is minted for
    app_keys_in_all: int
    tokens: int
    tokens_in_all: int
    minter_scopes: frozenset[Scope]  # empty if the minter has been removed or revoked


TallyCheck = Callable[[Tally], None]
"""Checks the tally before minting; if it raises, nothing is minted. The tally cannot change in between."""


@dataclass(frozen=True, slots=True)
class Minted:
    """Active tokens and keys."""

    tokens: tuple[ControlToken, ...] = ()
    keys: tuple[AppKey, ...] = ()


Withdrawal = Callable[[Minted], Minted]
"""Selects what to revoke from everything a person has minted, directly or through their control tokens."""


MembersCheck = Callable[[Sequence[Member]], None]
"""Checks all members of an organization before a change; if it raises, nothing is changed."""
