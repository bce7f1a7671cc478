"""The catalog: who exists and what they may do.

One small seam per noun. Every method is one transaction: it is applied completely or not at all, is durable when it
returns, and raises `StoreUnavailableError` if the engine cannot answer.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from mauve.core.app import App, AppType, Environment, Ownership
from mauve.core.biller import Provider
from mauve.core.credential import OPERATOR, AppKey, ControlToken, KeyKind, Scope
from mauve.core.organization import Organization
from mauve.core.user import Role, Session, User
from mauve.stores.published import Changes


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


class Organizations(Protocol):
    def create(self, organization: Organization) -> None: ...

    def list_all(self) -> list[Organization]: ...

    def find(self, org_id: str) -> Organization | None: ...

    def update(self, org_id: str, change: Callable[[Organization], Organization]) -> Organization | None:
        """Apply `change` to name, standing, grace and limits, and publish them.

        No other change happens in between.
        """
        ...


class Apps(Protocol):
    def create(self, app: NewApp, first_key: NewKey, check: TallyCheck) -> App:
        """Store the app, its live project and its first key, and publish them."""
        ...

    def all_of(self, org_id: str) -> list[App]:
        """Return the organization's apps that are not archived, oldest first."""
        ...

    def archived_of(self, org_id: str) -> list[App]:
        """Return the organization's archived apps, oldest first."""
        ...

    def find(self, org_id: str, app_id: str) -> App | None:
        """Return the app, even an archived one, if it belongs to this organization.

        A foreign id takes as long as a missing one.
        """
        ...

    def find_anywhere(self, app_id: str) -> App | None:
        """Return the app of any organization: for the operator only."""
        ...

    def change(self, org_id: str, app_id: str, changes: AppChanges) -> App | None: ...

    def archive(self, org_id: str, app_id: str, at: int) -> App | None:
        """Archive the app once; publish its keys, projects and secrets as revoked or missing."""
        ...

    def restore(self, org_id: str, app_id: str) -> App | None:
        """Undo `archive`. Keys that were revoked themselves stay revoked."""
        ...

    def delete(self, org_id: str, app_id: str) -> bool:
        """Delete an archived app with its keys, projects and secrets.

        Return False if it does not exist or is not archived.
        """
        ...

    def note_first_event(self, public_id: str, at: int) -> None:
        """Set the time of an app's first event, given its live project, unless an earlier one is known."""
        ...


class Keys(Protocol):
    def mint(self, app_id: str, key: NewKey, check: TallyCheck) -> AppKey | None:
        """Store and publish the key; return None if the app has no project in the key's environment."""
        ...

    def all_of(self, app_id: str) -> list[AppKey]:
        """Return the app's keys, including revoked ones, oldest first."""
        ...

    def revoke(self, app_id: str, key_id: str) -> AppKey | None:
        """Revoke permanently, and publish that; a revoked key stays unchanged."""
        ...

    def note_uses(self, used_at: Mapping[str, int]) -> None:
        """Record when keys were last used, by id, without publishing anything. An earlier use changes nothing."""
        ...


class Tokens(Protocol):
    def mint(self, new: NewToken, check: TallyCheck) -> None:
        """Store and publish the token."""
        ...

    def all_of(self, org_id: str) -> list[ControlToken]: ...

    def find(self, lookup_id: str) -> StoredToken | None: ...

    def revoke(self, token_id: str) -> ControlToken | None:
        """Revoke permanently, and publish that; a revoked token stays unchanged."""
        ...

    def note_uses(self, used_at: Mapping[str, int]) -> None:
        """Record when tokens were last used, by lookup id, without publishing anything."""
        ...


class WebhookSecrets(Protocol):
    def put(self, secret: SealedSecret, public_id_if_new: str) -> str:
        """Store and publish the secret in place of any earlier one; return its project's public id.

        The first secret in an app's test environment creates the test project with the given id. A placeholder
        replaces nothing.
        """
        ...

    def saved_for(self, app_id: str) -> list[SavedSecret]:
        """Return which secrets an app has, in both environments."""
        ...

    def all_sealed(self) -> Iterator[bytes]:
        """Yield all that is sealed, channels of alerts included, to find which master keys are still needed."""
        ...


MembersCheck = Callable[[Sequence[Member]], None]
"""Checks all members of an organization before a change; if it raises, nothing is changed."""


class Users(Protocol):
    """Users and their roles. While a check runs, the organization's members cannot change."""

    def create(self, user: User, link: OneTimeLink, check: MembersCheck) -> bool:
        """Store the user with a link to set the password; return False if the e-mail already has an account."""
        ...

    def any_exist(self) -> bool: ...

    def find(self, user_id: str) -> Member | None: ...

    def all_of(self, org_id: str) -> list[Member]:
        """Return the organization's members, oldest first."""
        ...

    def minted_by(self, org_id: str, user_id: str) -> Minted:
        """Return the active keys and tokens a person minted, directly or through their control tokens, oldest first."""
        ...

    def change_role(self, org_id: str, user_id: str, role: Role, check: MembersCheck, withdraw: Withdrawal) -> bool:
        """Change the role and revoke what is withdrawn; return False if there is no such member."""
        ...

    def remove(self, org_id: str, user_id: str, check: MembersCheck, withdraw: Withdrawal) -> bool:
        """Remove the user, their sessions and links, and revoke what is withdrawn; return False if there is none."""
        ...


class Passwords(Protocol):
    """Password hashes."""

    def find(self, email: str) -> Account | None: ...

    def replace(self, user_id: str, password_hash: str) -> None:
        """Store the hash, end all sessions of the user and delete their unused links."""
        ...


class Links(Protocol):
    """One-time links. Using a link and its effect happen in one transaction."""

    def replace_setup(self, link: OneTimeLink) -> None:
        """Store the set-up link and delete earlier ones."""
        ...

    def replace(self, link: OneTimeLink) -> None:
        """Store a user's link and delete their earlier ones."""
        ...

    def find(self, digest: bytes) -> OneTimeLink | None:
        """Return the link if it is unused."""
        ...

    def use_setup(
        self, digest: bytes, organization: Organization, owner: User, password_hash: str, used_at: int
    ) -> bool:
        """Use the set-up link to create the first account and its organization; return False if either exists."""
        ...

    def use(self, digest: bytes, password_hash: str, used_at: int) -> str | None:
        """Use a link to set a new password, as `Passwords.replace` does; return the user's id."""
        ...


class Sessions(Protocol):
    """Signed-in browsers, on one clock for all machines. Only the digest of a browser's secret is stored."""

    def begin(self, session: Session, digest: bytes) -> None:
        """Store the session; delete expired ones and the user's oldest ones above a limit."""
        ...

    def find(self, digest: bytes, now_ms: int) -> SignedIn | None: ...

    def note_seen(self, session_id: str, at: int) -> None: ...

    def all_of(self, user_id: str) -> list[Session]:
        """Return the user's sessions, most recently seen first."""
        ...

    def end(self, user_id: str, session_id: str) -> None: ...

    def end_all(self, user_id: str) -> None: ...


class Published(Protocol):
    """What every process holds in memory, read by revision."""

    def changes_since(self, revision: int) -> Changes: ...


class Installation(Protocol):
    """Values kept for the installation as a whole, by name."""

    def get(self, name: str) -> str | None: ...

    def put(self, name: str, value: str) -> None: ...

    def create(self, name: str, value: str) -> str:
        """Store a value unless there is one; return the stored one."""
        ...

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
    published: Published
    installation: Installation
