"""Published records: keys, tokens, projects, webhook secrets, standing and limits, which every process has in memory.

The catalog stores each record in the transaction that changes it, under the next revision, so that the order of commits
is the order of revisions. A process asks for `revision > ?` and misses nothing.
"""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from mauve.core.app import Environment
from mauve.core.biller import Provider
from mauve.core.credential import KeyKind, Scope
from mauve.core.organization import Standing


class PublishedKey(msgspec.Struct, frozen=True, tag="key"):
    key_id: str
    digest: bytes  # SHA-256 of the whole key
    kind: KeyKind
    environment: Environment
    public_id: str
    app_id: str
    org_id: str
    revoked: bool  # itself, or archived with its app


class PublishedToken(msgspec.Struct, frozen=True, tag="token"):
    lookup_id: str
    digest: bytes  # SHA-256 of the secret part
    org_id: str
    environment: Environment
    scopes: frozenset[Scope]
    revoked: bool


class PublishedProject(msgspec.Struct, frozen=True, tag="project"):
    public_id: str
    app_id: str
    org_id: str
    environment: Environment
    archived: bool = False  # with its app: as if it did not exist


class PublishedSecret(msgspec.Struct, frozen=True, tag="secret"):
    public_id: str
    provider: Provider
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
    standing: Standing
    grace_ends_at: int | None
    event_cap: int | None
    reads_per_minute: int
    agent_queries: int
    raw_scans: int


PublishedRecord = PublishedKey | PublishedToken | PublishedProject | PublishedSecret | PublishedOrganization


class Changes(NamedTuple):
    """The records published since a revision, oldest first, and the revision to ask from next."""

    records: list[PublishedRecord]
    revision: int


ReadChanges = Callable[[int], Changes]
"""Returns what was published after a revision; after 0, every record. Raises `StoreUnavailableError`."""
