"""The edge: the published copy of keys, tokens, projects, webhook secrets, standing and limits.

Data planes authenticate against this copy, so they keep working while the catalog is down. Only where a copy may be old
although the ledger can be reached do they ask the catalog as well (`mauve.access.confirmation`). A record is identified
by its kind and id; its `version` counts its changes in the catalog.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec

from mauve.core.app import Environment
from mauve.core.biller import Provider
from mauve.core.credential import KeyKind, Scope
from mauve.core.organization import Standing

_ON_DISK = {"environment": "plane"}  # as the first release wrote it


class PublishedKey(msgspec.Struct, frozen=True, tag="key", rename=_ON_DISK):
    key_id: str
    version: int
    digest: bytes  # SHA-256 of the whole key
    kind: KeyKind
    environment: Environment
    public_id: str
    app_id: str
    org_id: str
    revoked: bool

    @property
    def record_id(self) -> str:
        return self.key_id


class PublishedToken(msgspec.Struct, frozen=True, tag="token", rename=_ON_DISK):
    lookup_id: str
    version: int
    digest: bytes  # SHA-256 of the secret part
    org_id: str
    environment: Environment
    scopes: frozenset[Scope]
    revoked: bool

    @property
    def record_id(self) -> str:
        return self.lookup_id


class PublishedProject(msgspec.Struct, frozen=True, tag="project", rename=_ON_DISK):
    public_id: str
    version: int
    app_id: str
    org_id: str
    environment: Environment
    archived: bool = False  # with its app: as if it did not exist

    @property
    def record_id(self) -> str:
        return self.public_id


class PublishedSecret(msgspec.Struct, frozen=True, tag="secret", rename=_ON_DISK):
    public_id: str
    provider: Provider
    version: int
    environment: Environment
    app_id: str
    org_id: str
    sealed: bytes
    archived: bool = False  # likewise; `sealed` is then empty

    @property
    def record_id(self) -> str:
        return f"{self.public_id}/{self.provider}"


class PublishedOrganization(msgspec.Struct, frozen=True, tag="organization"):
    org_id: str
    version: int
    standing: Standing
    grace_ends_at: int | None
    event_cap: int | None
    reads_per_minute: int
    agent_queries: int
    raw_scans: int

    @property
    def record_id(self) -> str:
        return self.org_id


PublishedRecord = PublishedKey | PublishedToken | PublishedProject | PublishedSecret | PublishedOrganization


class Changes(NamedTuple):
    """The records published since a revision, oldest first, and the revision to ask from next."""

    records: list[PublishedRecord]
    revision: int


class EdgePublisher(Protocol):
    """Where the control plane publishes.

    - When `publish` returns, every record given is durable. Readers of a file see it at once, those of a server as soon
      as it has reached them, usually within milliseconds.
    - A record never replaces one of a higher version: a slow publisher cannot undo a later change.
    """

    def publish(self, records: Sequence[PublishedRecord]) -> str:
        """Return the id of the edge that holds the records now."""
        ...

    def edge_id(self) -> str:
        """Return the id of this edge. A new edge that replaces a lost one has a new id."""
        ...


class EdgeReader(Protocol):
    """Where data planes read published records.

    - Revisions only increase; `changes_since(0)` returns every current record.
    - Asking again from the returned revision misses nothing and repeats only what has changed.
    - It is called on the event loop: it never waits for a network.
    """

    def changes_since(self, revision: int) -> Changes: ...

    def staleness_s(self, revision: int) -> float:
        """Return how old the records up to a revision may be: every change published longer ago is among them.

        Infinite if there are records after the revision.
        """
        ...

    def close(self) -> None: ...


class EdgeCopy(Protocol):
    """A copy of the edge on this machine, for a start while the edge is down. Safe to use from several threads."""

    def replace(self, records: Sequence[PublishedRecord]) -> None:
        """Hold these records and no others."""
        ...

    def publish(self, records: Sequence[PublishedRecord]) -> object:
        """Add these records."""
        ...

    def changes_since(self, revision: int) -> Changes:
        """Return the records that changed after the revision; 0 for all of them."""
        ...

    def close(self) -> None: ...
