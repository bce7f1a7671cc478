"""The published keys, tokens and settings in memory, as data planes need them on every request.

Every process follows the catalog: it reads what was published since the last revision it knows, four times a second,
and as soon as a server announces a change. While the catalog cannot be read, a process continues with the records it
has. It keeps a snapshot of them in a file, so that it can also start then.
"""

import asyncio
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
import structlog

from mauve.access.keys import digest_of, is_well_formed
from mauve.access.tokens import PresentedToken, presented_token
from mauve.core.ids import is_id
from mauve.core.problems import unauthorized
from mauve.overload.token_bucket import TokenBuckets
from mauve.stores import StoreUnavailableError
from mauve.stores.data_directory import write_private_file
from mauve.stores.published import (
    Changes,
    PublishedKey,
    PublishedOrganization,
    PublishedProject,
    PublishedRecord,
    PublishedSecret,
    PublishedToken,
    ReadChanges,
)

POLL_EVERY_S: Final = 0.25
CURRENT_S: Final = 1.0
"""Where several machines share a catalog, one that has not read it for longer may not know of a revocation."""
CONFIRM_S_MAX: Final = 1.0
EXTRA_REFRESHES_PER_S: Final = 50
RELOAD_AFTER_S: Final = 86_400.0
"""Records of deleted apps are pruned after a week. A process that could not read for a day reads everything again."""
_LOOK_AGAIN_S: Final = 0.05
_SNAPSHOT_EVERY_S: Final = 5.0
_SNAPSHOT_SHARE: Final = 100  # A snapshot that takes a second is written every 100 seconds at most.
_CACHE_MAX: Final = 10_000

log = structlog.get_logger()
_snapshots: Final = msgspec.json.Decoder(tuple[int, list[PublishedRecord]])


@dataclass(slots=True)
class _Records:
    keys: dict[bytes, PublishedKey | None] = field(default_factory=dict)  # by digest; None: revoked
    tokens: dict[str, PublishedToken] = field(default_factory=dict)
    projects: dict[str, PublishedProject] = field(default_factory=dict)
    organizations: dict[str, PublishedOrganization] = field(default_factory=dict)
    secrets: dict[str, PublishedSecret] = field(default_factory=dict)  # by project and provider

    def apply(self, record: PublishedRecord) -> None:
        match record:
            case PublishedKey():
                self.keys[record.digest] = None if record.revoked else record
            case PublishedToken():
                self.tokens[record.lookup_id] = record
            case PublishedProject(archived=True):
                self.projects.pop(record.public_id, None)
            case PublishedProject():
                self.projects[record.public_id] = record
            case PublishedOrganization():
                self.organizations[record.org_id] = record
            case PublishedSecret(archived=True):
                self.secrets.pop(record.record_id, None)
            case PublishedSecret():
                self.secrets[record.record_id] = record

    def live(self) -> list[PublishedRecord]:
        keys = (key for key in self.keys.values() if key is not None)
        others = (self.tokens, self.projects, self.organizations, self.secrets)
        return [*keys, *(record for records in others for record in records.values())]


class Keyring:
    """Published keys, tokens, projects, secrets, standing and limits.

    If the catalog is a local file, an unknown credential or id triggers one extra refresh before it is refused, so that
    it works as soon as it is published. At most `EXTRA_REFRESHES_PER_S` of these happen; during a flood of unknown ids,
    a new one waits for the next poll.
    """

    def __init__(
        self,
        read_changes: ReadChanges,
        *,
        is_local: bool = True,
        age_s_max: float = math.inf,
        snapshot: Path | None = None,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read_changes = read_changes
        self.is_local = is_local  # Reading the catalog never waits for a network.
        self._age_s_max = age_s_max
        self._snapshot = snapshot
        self._snapshot_due_at = -math.inf
        self._is_snapshot_old = False
        self._ticks = ticks
        self._extra_refreshes = TokenBuckets(EXTRA_REFRESHES_PER_S)
        self._revision = 0
        self._read_at = -math.inf  # when the last successful read began
        self._records = _Records()
        self._key_cache: dict[str, PublishedKey] = {}  # live keys by credential, cleared on every change
        self._token_cache: dict[str, PublishedToken] = {}  # likewise
        self._refreshing = threading.Lock()
        self.is_current = True  # The last refresh succeeded.

    def key_for(self, credential: str | None) -> PublishedKey | None:
        if credential is None:
            return None
        cached = self._key_cache.get(credential)
        if cached is not None:
            return cached
        if not is_well_formed(credential):
            return None
        digest = digest_of(credential)
        if digest not in self._records.keys:
            self._refresh_early()
        return self._live_key(credential, digest)

    def token_for(self, credential: str | None) -> PublishedToken | None:
        """Return the live control token for a presented credential, in the environment that its prefix names.

        Unknown, wrong and revoked tokens take the same steps, so that timing reveals nothing.
        """
        if credential is None:
            return None
        cached = self._token_cache.get(credential)
        if cached is not None:
            return cached
        presented = presented_token(credential)
        if presented is None:
            return None
        token = self._live_token(credential, presented)
        if token is None:
            self._refresh_early()
            token = self._live_token(credential, presented)
        return token

    def project(self, public_id: str) -> PublishedProject | None:
        """Return the project, of any organization and environment: the caller must compare them."""
        if public_id not in self._records.projects and is_id(public_id, "proj"):
            self._refresh_early()
        return self._records.projects.get(public_id)

    def secret(self, record_id: str) -> PublishedSecret | None:
        if record_id not in self._records.secrets:
            self._refresh_early()
        return self._records.secrets.get(record_id)

    def newer_secret(self, secret: PublishedSecret) -> PublishedSecret | None:
        """Return the secret that has replaced one that did not match, if there is one."""
        self._refresh_early()
        current = self._records.secrets.get(secret.record_id)
        return current if current is not None and current.sealed != secret.sealed else None

    async def confirm(self, credential: PublishedKey | PublishedToken | PublishedSecret) -> None:
        """Raise `Problem` unless the credential is live by recent records.

        Raise `StoreUnavailableError` if the catalog could not be read for too long: it may have been revoked.
        """
        gives_up_at = self._ticks() + CONFIRM_S_MAX
        while not self.is_recent:
            if self._ticks() >= gives_up_at:
                raise StoreUnavailableError("the catalog cannot be read, and a credential may have been revoked")
            await asyncio.sleep(_LOOK_AGAIN_S)
        records = self._records
        match credential:
            case PublishedKey():
                is_live = records.keys.get(credential.digest) is not None
            case PublishedToken():
                token = records.tokens.get(credential.lookup_id)
                is_live = token is not None and not token.revoked
            case PublishedSecret():
                is_live = records.secrets.get(credential.record_id) == credential
        if not is_live:
            raise unauthorized()

    @property
    def organizations(self) -> Mapping[str, PublishedOrganization]:
        return self._records.organizations

    @property
    def is_recent(self) -> bool:
        """Return whether the records are recent enough for money and reads. Ask before a look-up."""
        return self._ticks() - self._read_at <= self._age_s_max

    def refresh(self) -> None:
        """Apply everything that was published since the last refresh. Keep the records if that fails."""
        with self._refreshing:
            began_at = self._ticks()
            is_outdated = began_at - self._read_at > RELOAD_AFTER_S
            try:
                changes = self._read_changes(0 if is_outdated else self._revision)
            except StoreUnavailableError as error:
                if self.is_current:
                    log.warning("catalog_unreadable", reason=str(error), advice="keys in memory stay in use")
                self.is_current = False
                if self._revision == 0:
                    self._load_snapshot()
                return
            except Exception:
                self.is_current = False
                raise
            self._apply(changes, is_complete=is_outdated)
            self._read_at, self.is_current = began_at, True

    @contextmanager
    def following(self, wait: Callable[[float], None]) -> Iterator[None]:
        """Poll the catalog in a thread during the block. `wait` waits that many seconds, or less if there is news."""
        is_over = threading.Event()

        def poll() -> None:
            while not is_over.is_set():
                wait(POLL_EVERY_S)
                try:
                    self.refresh()
                    self._write_snapshot()
                except Exception:
                    log.exception("keyring_not_refreshed", advice="tried again; keys in memory stay in use")

        thread = threading.Thread(target=poll, name="keyring", daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()
            self._snapshot_due_at = -math.inf
            self._write_snapshot()

    def _refresh_early(self) -> None:
        """Look for something unknown. Raise `StoreUnavailableError` if the catalog was not read since the start."""
        if self.is_local and self._extra_refreshes.seconds_to_wait("catalog", int(self._ticks() * 1000)) == 0:
            self.refresh()
        if self._read_at == -math.inf:
            raise StoreUnavailableError("the keys have not been read since the start")

    def _apply(self, changes: Changes, *, is_complete: bool) -> None:
        records = _Records() if is_complete else self._records
        for record in changes.records:
            records.apply(record)
        self._records = records  # at once: another thread may be looking a key up
        if changes.records or is_complete:
            self._key_cache = {}
            self._token_cache = {}
            self._is_snapshot_old = True
        self._revision = changes.revision

    def _load_snapshot(self) -> None:
        """Start from the file that the last process left. The first successful read replaces all of it."""
        try:
            revision, records = _snapshots.decode(self._snapshot.read_bytes()) if self._snapshot else (0, [])
        except (OSError, msgspec.MsgspecError):
            return
        self._apply(Changes(records, revision), is_complete=False)

    def _write_snapshot(self) -> None:
        began_at = self._ticks()
        if self._snapshot is None or not self._is_snapshot_old or began_at < self._snapshot_due_at:
            return
        with self._refreshing:
            self._is_snapshot_old = False
            revision, live = self._revision, self._records.live()
        try:
            write_private_file(self._snapshot, msgspec.json.encode((revision, live)))
        except OSError as error:
            advice = "without a snapshot this process cannot start while the catalog is down: free space on the disk"
            log.warning("snapshot_not_written", reason=str(error), advice=advice)
        took_s = self._ticks() - began_at
        self._snapshot_due_at = began_at + max(_SNAPSHOT_EVERY_S, took_s * _SNAPSHOT_SHARE)

    def _live_key(self, credential: str, digest: bytes) -> PublishedKey | None:
        # Take the cache before the lookup: after a revocation, a refresh in another thread replaces it, and the stale
        # key is then added to the discarded one.
        cache = self._key_cache
        key = self._records.keys.get(digest)
        if key is None:
            return None
        if len(cache) < _CACHE_MAX:
            cache[credential] = key
        return key

    def _live_token(self, credential: str, presented: PresentedToken) -> PublishedToken | None:
        cache = self._token_cache  # before the lookup, as above
        token = self._records.tokens.get(presented.lookup_id)
        matches = presented.matches(token.digest if token is not None else None)
        if token is None or not matches or token.revoked or token.environment is not presented.environment:
            return None
        if len(cache) < _CACHE_MAX:
            cache[credential] = token
        return token
