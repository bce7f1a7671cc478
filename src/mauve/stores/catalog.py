"""The catalog: who exists and what they may do.

One small seam per noun. Every method is one transaction: it is applied whole or not at all, and durable when
it returns. Every method raises `StoreUnavailableError` when the engine cannot answer.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from mauve.core.facts import (
    App,
    AppKey,
    AppType,
    ControlToken,
    KeyKind,
    Organization,
    Ownership,
    Plane,
    Provider,
    User,
)
from mauve.stores.edge import CatalogRecord


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
    plane: Plane
    digest: bytes
    masked: str
    created_at: int


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
    plane: Plane
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


class Organizations(Protocol):
    def create(self, organization: Organization) -> None: ...

    def everyone(self) -> list[Organization]: ...

    def find(self, org_id: str) -> Organization | None: ...

    def update(self, org_id: str, change: Callable[[Organization], Organization]) -> Organization | None:
        """Replace standing, grace and limits by what `change` makes of them, and mark for publication.

        Nobody else changes the organization in between.
        """
        ...


class Apps(Protocol):
    def create(self, app: NewApp, first_key: NewKey) -> App:
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
    def mint(self, app_id: str, key: NewKey) -> AppKey | None:
        """Store the key, unpublished. None: the app has no project on the key's plane."""
        ...

    def all_of(self, app_id: str) -> list[AppKey]:
        """Return the app's keys, revoked ones too, oldest first."""
        ...

    def revoke(self, app_id: str, key_id: str) -> AppKey | None:
        """Revoke for good and mark for publication; a revoked key stays as it is."""
        ...


class Tokens(Protocol):
    def mint(self, new: NewToken) -> None:
        """Store the token, unpublished."""
        ...

    def all_of(self, org_id: str) -> list[ControlToken]: ...

    def find(self, lookup_id: str) -> StoredToken | None: ...

    def revoke(self, token_id: str) -> ControlToken | None:
        """Revoke for good and mark for publication; a revoked token stays as it is."""
        ...


class WebhookSecrets(Protocol):
    def put(self, secret: SealedSecret, public_id_if_new: str) -> str:
        """Store the secret in place of any earlier one, unpublished; return its project's public id.

        The first secret of an app's test plane makes the test project, under the given id.
        """
        ...

    def all_sealed(self) -> Iterator[bytes]:
        """Return every sealed secret, to see which master keys are still needed."""
        ...


class Users(Protocol):
    def create(self, user: User, link: OneTimeLink) -> bool:
        """Store the user with a link to set the password; False if the e-mail has an account already."""
        ...

    def anyone(self) -> bool: ...

    def replace_setup_link(self, link: OneTimeLink) -> None:
        """Store the set-up link in place of every earlier, unused one."""
        ...

    def find_link(self, digest: bytes) -> OneTimeLink | None:
        """Return the unused link."""
        ...


class Publications(Protocol):
    """What still has to reach the edge. A change marks its row in the transaction that makes it."""

    def pending(self, count_max: int) -> list[CatalogRecord]: ...

    def mark_published(self, records: Sequence[CatalogRecord], at: int) -> None:
        """Note the moment of publication, unless the row has changed since it was read."""
        ...

    def mark_all_pending(self) -> None:
        """Ask for everything to be published anew: the edge was lost."""
        ...


class Installation(Protocol):
    """Facts about this installation as a whole."""

    def fact(self, name: str) -> str | None: ...

    def remember(self, name: str, value: str) -> None: ...

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
    publications: Publications
    installation: Installation
