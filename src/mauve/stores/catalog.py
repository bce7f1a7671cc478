"""The catalog: who exists and what they may do.

One small seam per noun. Every method is one transaction: it is applied whole or not at all, and durable when
it returns. Every method raises `StoreUnavailableError` when the engine cannot answer.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from mauve.core.app import App, AppType, Environment, Ownership
from mauve.core.biller import Provider
from mauve.core.credential import OPERATOR, AppKey, ControlToken, KeyKind, Scope
from mauve.core.organization import Organization
from mauve.core.user import Role, Session, User
from mauve.stores.edge import PublishedRecord


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
    """The fields to change; None leaves a field as it is."""

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


@dataclass(frozen=True, slots=True)
class OneTimeLink:
    """A link that works once, until it expires. Only the digest of its secret is kept."""

    link_id: str
    digest: bytes
    user_id: str | None  # None: the set-up link, which makes the first owner
    expires_at: int
    created_at: int


@dataclass(frozen=True, slots=True)
class Member:
    """Somebody of an organization. One without a password was invited and has not come yet."""

    user: User
    has_password: bool
    link_expires_at: int | None  # of the unused link that they hold


@dataclass(frozen=True, slots=True)
class Account:
    """What signing in is checked against."""

    user: User
    password_hash: str | None


@dataclass(frozen=True, slots=True)
class SignedIn:
    """Who sits behind a session, and for which organization."""

    session: Session
    user: User
    organization: Organization


@dataclass(frozen=True, slots=True)
class SavedSecret:
    """That a webhook secret is there; never the secret itself."""

    environment: Environment
    provider: Provider
    saved_at: int


@dataclass(frozen=True, slots=True)
class Tally:
    """What an organization has at the moment at which something is minted in it, and what the minter may do then."""

    apps: int
    keys: int  # that work
    keys_in_all: int  # revoked ones included
    app_keys: int  # of the app that a key is minted for
    app_keys_in_all: int
    tokens: int
    tokens_in_all: int
    minter_scopes: frozenset[Scope]  # none if the minter was removed or revoked meanwhile


TallyCheck = Callable[[Tally], None]
"""Looks at the tally before something is minted, which does not happen if it raises. Nothing changes in between."""


@dataclass(frozen=True, slots=True)
class Minted:
    """Tokens and keys that work."""

    tokens: tuple[ControlToken, ...] = ()
    keys: tuple[AppKey, ...] = ()


Withdrawal = Callable[[Minted], Minted]
"""Picks what is revoked out of what a person has minted, also through control tokens of theirs."""


class Organizations(Protocol):
    def create(self, organization: Organization) -> None: ...

    def list_all(self) -> list[Organization]: ...

    def find(self, org_id: str) -> Organization | None: ...

    def update(self, org_id: str, change: Callable[[Organization], Organization]) -> Organization | None:
        """Replace name, standing, grace and limits by what `change` makes of them, and mark for publication.

        Nobody else changes the organization in between.
        """
        ...


class Apps(Protocol):
    def create(self, app: NewApp, first_key: NewKey, check: TallyCheck) -> App:
        """Store the app, its live project and its first key, unpublished: all three or none."""
        ...

    def all_of(self, org_id: str) -> list[App]:
        """Return the organization's apps, oldest first."""
        ...

    def find(self, org_id: str, app_id: str) -> App | None:
        """Return the app if it is this organization's. A foreign id costs what a missing one does."""
        ...

    def find_anywhere(self, app_id: str) -> App | None:
        """Return the app of whichever organization: for the operator only."""
        ...

    def change(self, org_id: str, app_id: str, changes: AppChanges) -> App | None: ...

    def note_first_event(self, public_id: str, at: int) -> None:
        """Set the moment of an app's first event by its live project, unless an earlier one is known."""
        ...


class Keys(Protocol):
    def mint(self, app_id: str, key: NewKey, check: TallyCheck) -> AppKey | None:
        """Store the key, unpublished. None: the app has no project on the key's plane."""
        ...

    def all_of(self, app_id: str) -> list[AppKey]:
        """Return the app's keys, revoked ones too, oldest first."""
        ...

    def revoke(self, app_id: str, key_id: str) -> AppKey | None:
        """Revoke for good and mark for publication; a revoked key stays as it is."""
        ...


class Tokens(Protocol):
    def mint(self, new: NewToken, check: TallyCheck) -> None:
        """Store the token, unpublished."""
        ...

    def all_of(self, org_id: str) -> list[ControlToken]: ...

    def find(self, lookup_id: str) -> StoredToken | None: ...

    def revoke(self, token_id: str) -> ControlToken | None:
        """Revoke for good and mark for publication; a revoked token stays as it is."""
        ...

    def note_uses(self, used_at: Mapping[str, int]) -> None:
        """Note when tokens were last used, by their lookup ids; nothing is published for that."""
        ...


class WebhookSecrets(Protocol):
    def put(self, secret: SealedSecret, public_id_if_new: str) -> str:
        """Store the secret in place of any earlier one, unpublished; return its project's public id.

        The first secret of an app's test plane makes the test project, under the given id.
        """
        ...

    def saved_for(self, app_id: str) -> list[SavedSecret]:
        """Tell which secrets an app has, on both planes."""
        ...

    def all_sealed(self) -> Iterator[bytes]:
        """Return every sealed secret, to see which master keys are still needed."""
        ...


MembersCheck = Callable[[Sequence[Member]], None]
"""Looks at everybody of an organization before a change, which does not happen if it raises."""


class Users(Protocol):
    """People and their roles. While a check runs, nobody else changes the organization's members."""

    def create(self, user: User, link: OneTimeLink, check: MembersCheck) -> bool:
        """Store the user with a link to set the password; False if the e-mail has an account already."""
        ...

    def any_exist(self) -> bool: ...

    def find(self, user_id: str) -> Member | None: ...

    def all_of(self, org_id: str) -> list[Member]:
        """Return the organization's members, oldest first."""
        ...

    def minted_by(self, org_id: str, user_id: str) -> Minted:
        """Return what a person has minted and still works, also through control tokens of theirs; oldest first."""
        ...

    def change_role(self, org_id: str, user_id: str, role: Role, check: MembersCheck, withdraw: Withdrawal) -> bool:
        """Change the role and revoke what is withdrawn; False if there is no such member."""
        ...

    def remove(self, org_id: str, user_id: str, check: MembersCheck, withdraw: Withdrawal) -> bool:
        """Remove the person with their sessions and links, and revoke what is withdrawn; False if there is none."""
        ...


class Passwords(Protocol):
    """The hashes of passwords."""

    def find(self, email: str) -> Account | None: ...

    def replace(self, user_id: str, password_hash: str) -> None:
        """Store the hash, end every session of the person and forget their unused links."""
        ...


class Links(Protocol):
    """One-time links. Whatever a link is used for happens with its use, or neither does."""

    def replace_setup(self, link: OneTimeLink) -> None:
        """Store the set-up link in place of every earlier one."""
        ...

    def replace(self, link: OneTimeLink) -> None:
        """Store a person's link in place of every earlier one of theirs."""
        ...

    def find(self, digest: bytes) -> OneTimeLink | None:
        """Return the unused link."""
        ...

    def use_setup(
        self, digest: bytes, organization: Organization, owner: User, password_hash: str, used_at: int
    ) -> bool:
        """Use the set-up link up for the first account and its organization; False if either is too late."""
        ...

    def use(self, digest: bytes, password_hash: str, used_at: int) -> str | None:
        """Use a person's link up for a new password, as `Passwords.replace` does; return whose it was."""
        ...


class Sessions(Protocol):
    """Who is signed in. Only the digest of what a browser holds is kept."""

    def begin(self, session: Session, digest: bytes) -> None:
        """Store the session, and forget what has expired and the person's oldest ones above a bound."""
        ...

    def find(self, digest: bytes) -> SignedIn | None: ...

    def note_seen(self, session_id: str, at: int) -> None: ...

    def all_of(self, user_id: str) -> list[Session]:
        """Return the person's sessions, last seen first."""
        ...

    def end(self, user_id: str, session_id: str) -> None: ...

    def end_all(self, user_id: str) -> None: ...


class Publications(Protocol):
    """What still has to reach the edge. A change marks its row in the transaction that makes it."""

    def pending(self, count_max: int) -> list[PublishedRecord]: ...

    def mark_published(self, records: Sequence[PublishedRecord], at: int) -> None:
        """Note the moment of publication, unless the row has changed since it was read."""
        ...

    def mark_all_pending(self) -> None:
        """Ask for everything to be published anew: the edge was lost."""
        ...


class Installation(Protocol):
    """Values kept for the installation as a whole, by name."""

    def get(self, name: str) -> str | None: ...

    def put(self, name: str, value: str) -> None: ...

    def ping(self) -> None:
        """Return if the catalog answers."""
        ...


@dataclass(frozen=True, slots=True)
class Catalog:
    organizations: Organizations
    apps: Apps
    keys: Keys
    tokens: Tokens
    webhook_secrets: WebhookSecrets
    users: Users
    passwords: Passwords
    links: Links
    sessions: Sessions
    publications: Publications
    installation: Installation
