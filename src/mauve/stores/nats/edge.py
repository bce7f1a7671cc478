"""The edge on NATS: a bucket that the control plane publishes to and each process follows.

A follower keeps the records in memory, so reading them never waits for the network. It asks for changes every half a
second, and at once when a publisher announces some: a lost announcement delays a change, and loses none. Any server
answers, and may lag; only the leader knows the last change, and is asked as often.
"""

import asyncio
import contextlib
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, get_args
from urllib.parse import quote

import msgspec
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error

from mauve.core.secret import Secret
from mauve.stores import StoreUnavailableError
from mauve.stores.edge import Changes, EdgeCopy, PublishedRecord
from mauve.stores.nats.bucket import BucketMissingError, BucketThread, ConflictError, Entry, Follower
from mauve.stores.nats.streams import LEADER_CONTACT_S_MAX

BUCKET: Final = "MAUVE-EDGE"
READ_EVERY_S: Final = 0.5
OUT_OF_TOUCH_S: Final = 5.0
ANNOUNCEMENTS: Final = "MAUVE.edge.changed"
_HURRY_EVERY_S: Final = 0.01  # while an announced change is not readable yet
_HURRY_S_MAX: Final = 1.0
_ASK_LEADER_EVERY_S: Final = 0.1  # while in a hurry
_LOAD_S_MAX: Final = 15.0
_STATE_S_MAX: Final = 10.0  # with the time to connect
_PUBLISH_S_MAX: Final = 10.0 + LEADER_CONTACT_S_MAX
_PUTS_AT_ONCE: Final = 128
_ROUNDS_MAX: Final = 6
_ROUND_PAUSE_S: Final = 0.05
# Other releases may have published kinds of records that this one does not know.
_KINDS: Final = frozenset(kind.__struct_config__.tag for kind in get_args(PublishedRecord))

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(PublishedRecord)
log = structlog.get_logger()


class _Versioned(msgspec.Struct):
    version: int


_version_decoder = msgspec.json.Decoder(_Versioned)


def key_of(record: PublishedRecord) -> str:
    """Return the key of a record: its kind and its id, in characters that a key may have."""
    record_id = quote(record.record_id, safe="/").replace("%", "=").replace(".", "=2E").replace("~", "=7E")
    return f"{record.__struct_config__.tag}.{record_id}"


class NatsEdgePublisher:
    """Publishes from any thread. What was stored before a failure stays: publishing it again does no harm."""

    def __init__(self, url: Secret, identity: Callable[[], str | None]) -> None:
        self._identity = identity
        self._thread = BucketThread(url, BUCKET, "edge publisher")
        self._bucket = self._thread.bucket

    def publish(self, records: Sequence[PublishedRecord]) -> str:
        return self._thread.run(self._publish(records), _PUBLISH_S_MAX)

    def edge_id(self) -> str:
        try:
            return self._thread.run(self._bucket.state(), _STATE_S_MAX).bucket_id
        except BucketMissingError:
            self._thread.run(self._bucket.create(self._identity() or ""), _STATE_S_MAX)
            return self._thread.run(self._bucket.state(), _STATE_S_MAX).bucket_id

    def last_sequence(self) -> int:
        """Return the sequence of the last change."""
        return self._thread.run(self._bucket.state(), _STATE_S_MAX).last_sequence

    def close(self) -> None:
        self._thread.close()

    async def _publish(self, records: Sequence[PublishedRecord]) -> str:
        # An acknowledgement does not tell which bucket it comes from: the same one before and after is the one between.
        edge_id = (await self._bucket.state()).bucket_id
        await self._store(records)
        state = await self._bucket.state()
        if state.bucket_id != edge_id:
            raise StoreUnavailableError("NATS: the bucket was replaced meanwhile")
        # The leader before it may not know yet that it was replaced, and confirm to readers that they have all changes.
        await asyncio.sleep(LEADER_CONTACT_S_MAX - max(0.0, state.led_for_s))  # Its clock may have been set back.
        return edge_id

    async def _store(self, records: Sequence[PublishedRecord]) -> None:
        remaining = _newest(records)
        for attempt in range(_ROUNDS_MAX):
            await asyncio.sleep(attempt * _ROUND_PAUSE_S)
            stored = await self._bucket.entries(remaining)
            remaining = {key: record for key, record in remaining.items() if _replaces(record, stored.get(key))}
            remaining = await self._put(remaining, stored)
            if not remaining:
                return
        raise StoreUnavailableError("NATS: the same records are being changed by another publisher")

    async def _put(
        self, records: Mapping[str, PublishedRecord], stored: Mapping[str, Entry]
    ) -> dict[str, PublishedRecord]:
        """Store the records, and return those that another publisher has changed meanwhile."""
        limit = asyncio.Semaphore(_PUTS_AT_ONCE)
        conflicts: dict[str, PublishedRecord] = {}
        last = 0

        async def put(key: str, record: PublishedRecord) -> None:
            nonlocal last
            replaces = stored[key].sequence if key in stored else 0
            async with limit:
                try:
                    last = max(last, await self._bucket.put(key, _encoder.encode(record), replaces))
                except ConflictError:
                    conflicts[key] = record

        try:
            async with asyncio.TaskGroup() as puts:
                for key, record in records.items():
                    puts.create_task(put(key, record))
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        finally:
            await self._announce(last)
        return conflicts

    async def _announce(self, sequence: int) -> None:
        if sequence:
            with contextlib.suppress(StoreUnavailableError, Error):
                await (await self._thread.client()).publish(ANNOUNCEMENTS, str(sequence).encode())


class NatsEdgeReader:
    """Follows the edge in a thread of its own. Safe to use from several threads.

    Opening waits until every record is loaded. If NATS is down, loading continues in the background; until it is done,
    there are the records of the copy, which are stale, or `changes_since` raises `StoreUnavailableError`. Later, while
    NATS is down, the records stay, and `changes_since` raises after `OUT_OF_TOUCH_S`. A server that lags or a leader
    that is silent makes it stale only.
    """

    def __init__(self, url: Secret, ticks: Callable[[], float] = time.monotonic, copy: EdgeCopy | None = None) -> None:
        self._ticks = ticks
        self._copy = copy
        self._uncopied: list[PublishedRecord] = []
        self._is_copied = self._is_whole = False
        self._lock = threading.Lock()
        self._records: dict[str, tuple[int, PublishedRecord]] = {}  # by key, with our own revision, oldest first
        self._revision = 0
        self._announced = 0
        self._called = asyncio.Event()
        self._fresh_at = self._answered_at = -math.inf  # until every record is loaded
        self._announced_at = ticks()
        self._listening: Client | None = None
        self._thread = BucketThread(url, BUCKET, "edge reader")
        self._follower = Follower(self._thread.bucket, ticks, _ASK_LEADER_EVERY_S)
        try:
            self._thread.run(self._read(), _LOAD_S_MAX)
        except StoreUnavailableError as error:
            log.warning("edge_not_loaded", reason=str(error), advice="continuing with the copy on this machine, if any")
            self._load_copy()
        except BaseException:
            self.close()
            raise
        self._thread.start(self._follow())

    def changes_since(self, revision: int) -> Changes:
        if not self._is_whole:  # A part of the records would make the others unknown.
            raise StoreUnavailableError("NATS has not answered since the start")
        with self._lock:
            newest = self._revision
            records = []
            for changed, record in reversed(self._records.values()):
                if changed <= revision:
                    break
                records.append(record)
        if not records and self._ticks() - self._answered_at > OUT_OF_TOUCH_S:
            raise StoreUnavailableError("NATS does not answer")
        return Changes(records[::-1], max(newest, revision))

    def staleness_s(self, revision: int) -> float:
        fresh_at = self._fresh_at  # before the revision: what made the records fresh was applied before that
        return self._ticks() - fresh_at if revision >= self._revision else math.inf

    @property
    def sequence(self) -> int:
        """Return the sequence of the bucket up to which it was read."""
        return self._follower.sequence

    def close(self) -> None:
        self._thread.close()
        if self._copy is not None:
            self._copy.close()

    def _load_copy(self) -> None:
        if self._copy is None:
            return
        with contextlib.suppress(StoreUnavailableError, msgspec.MsgspecError):
            copied = [(key_of(record), record) for record in self._copy.changes_since(0).records]
            self._keep([(key, record) for key, record in copied if key not in self._records])
            self._is_whole = bool(copied)

    async def _update_copy(self) -> None:
        """Copy what has changed. The first time, replace the copy: the edge may have been restored from a backup."""
        if self._copy is None or not self._uncopied:
            return
        write = self._copy.publish if self._is_copied else self._copy.replace
        with contextlib.suppress(StoreUnavailableError):  # The next change tries again.
            await asyncio.to_thread(write, self._uncopied)
            self._uncopied, self._is_copied = [], True

    async def _follow(self) -> None:
        while True:
            await self._pause()
            try:
                await self._listen()
                await self._read()
            except StoreUnavailableError:
                continue  # `changes_since` reports it if it lasts.
            except Exception:
                log.exception("edge_not_followed", advice=f"trying again every {READ_EVERY_S} s")

    async def _pause(self) -> None:
        """Wait until the next read is due, or a change is announced."""
        if self._announced > self.sequence and self._ticks() - self._announced_at < _HURRY_S_MAX:
            await asyncio.sleep(_HURRY_EVERY_S)
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._called.wait(), READ_EVERY_S)
        self._called.clear()

    async def _listen(self) -> None:
        client = await self._thread.client()
        if client is not self._listening:
            await client.subscribe(ANNOUNCEMENTS, cb=self._note)
            self._listening = client

    async def _note(self, message: Msg) -> None:
        with contextlib.suppress(ValueError):
            sequence, now = int(message.data), self._ticks()
            is_over = now - self._announced_at > _HURRY_S_MAX  # The last one may have been wrong.
            if sequence > self._announced or is_over:
                self._announced, self._announced_at = sequence, now
            self._called.set()

    async def _read(self) -> None:
        asked_at = self._ticks()
        while entries := await self._follower.next_changes():
            self._apply(entries)
            asked_at = self._ticks()
        self._answered_at, self._is_whole = asked_at, True
        if self.sequence >= self._follower.last_sequence:
            self._fresh_at = self._follower.state_asked_at
        await self._update_copy()

    def _apply(self, entries: Sequence[Entry]) -> None:
        records = [(entry.key, record) for entry in entries if (record := _record_from(entry)) is not None]
        if self._copy is not None:
            self._uncopied += [record for _, record in records]
        self._keep(records)

    def _keep(self, records: Sequence[tuple[str, PublishedRecord]]) -> None:
        with self._lock:
            for key, record in records:
                self._revision += 1
                self._records.pop(key, None)  # so that it moves to the end
                self._records[key] = (self._revision, record)


def _newest(records: Sequence[PublishedRecord]) -> dict[str, PublishedRecord]:
    newest: dict[str, PublishedRecord] = {}
    for record in records:
        key = key_of(record)
        if key not in newest or record.version >= newest[key].version:
            newest[key] = record
    return newest


def _replaces(record: PublishedRecord, stored: Entry | None) -> bool:
    """Return whether a record must be stored: not over a higher version, and not over itself."""
    if stored is None:
        return True
    try:
        version = _version_decoder.decode(stored.value).version
    except msgspec.MsgspecError:
        return True  # deleted or damaged
    return record.version >= version and _encoder.encode(record) != stored.value


def _record_from(entry: Entry) -> PublishedRecord | None:
    kind, _, _ = entry.key.partition(".")
    if kind not in _KINDS or not entry.value:
        return None
    try:
        record: PublishedRecord = _decoder.decode(entry.value)
    except msgspec.MsgspecError as error:
        log.warning("edge_record_unreadable", key=entry.key, reason=str(error), advice="the record before it stays")
        return None
    return record
