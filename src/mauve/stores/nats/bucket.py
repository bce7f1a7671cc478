"""A key-value bucket on NATS, read by sequence and changed with compare-and-set.

Each change of a bucket has the next sequence of its stream. Readers ask for everything after a sequence: that needs no
consumer on the servers, and after any interruption it continues without a gap.
"""

import asyncio
import contextlib
import json
import math
import secrets
import time
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeVar

import structlog
from nats.aio.client import Client
from nats.aio.subscription import Subscription
from nats.errors import Error
from nats.js.api import DiscardPolicy, StorageType, StreamConfig, StreamInfo
from nats.js.errors import APIError, NotFoundError
from nats.js.manager import JetStreamManager

from mauve.core.secret import Secret
from mauve.stores import ForeignDataError, StoreUnavailableError, UnsupportedServerError
from mauve.stores.nats.connection import Connection, LoopThread
from mauve.stores.nats.streams import NOT_FOUND, ApiError, ask, info_from, once_placed

_IDENTITY: Final = "mauve-installation"
_BUCKET_ID: Final = "mauve-bucket"
CHECK_EVERY_S: Final = 2.0
ELECTION_S_MAX: Final = 10.0
_SOON_S: Final = 0.2  # A leader that can be reached answers in milliseconds.
_READ_MAX: Final = 1_000  # entries of one read; a server allows 1,024 keys
_READ_BYTES_MAX: Final = 4 * 2**20
_ANSWER_S_MAX: Final = 2.0
_READ_S_MAX: Final = 6.0
_END: Final = "204"  # statuses of a reply
_NOTHING: Final = "404"
_WRONG_LAST_SEQUENCE: Final = frozenset({10071, 10164})
_NAME_IN_USE: Final = 10058
_NOT_CLUSTERED: Final = 10074
_NO_PEERS: Final = 10005
_REPLICAS: Final = 3
_CLOSE_S_MAX: Final = 5.0

log = structlog.get_logger()
T = TypeVar("T")


class BucketMissingError(StoreUnavailableError):
    """The servers answer, and do not have the bucket."""


class ConflictError(Exception):
    """The entry has changed since it was read."""


class Entry(NamedTuple):
    key: str
    sequence: int
    value: bytes  # empty if the entry was deleted


class BucketState(NamedTuple):
    identity: str  # of the installation that owns it
    bucket_id: str  # A bucket that replaces a lost one has another.
    last_sequence: int
    led_for_s: float = math.inf  # how long its leader has led


class Bucket:
    """Used from the event loop of its connection. Every call ends in bounded time."""

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection = connection
        self._stream = f"KV_{name}"
        self._prefix = f"$KV.{name}."

    async def state(self) -> BucketState:
        """Return what the leader knows about the bucket."""
        client = await self._connection.client()
        try:
            info = info_from(self._stream, await ask(client, f"STREAM.INFO.{self._stream}", timeout_s=_ANSWER_S_MAX))
        except ApiError as error:
            if error.code == NOT_FOUND:
                raise _missing(self._stream) from error
            raise StoreUnavailableError(f"NATS: {error}") from error
        metadata = info.config.metadata
        identity, bucket_id = metadata.get(_IDENTITY, ""), metadata.get(_BUCKET_ID, "")
        return BucketState(identity, bucket_id, info.state.last_seq, info.led_for_s)

    async def create(self, identity: str, ttl_s: float = 0) -> None:
        """Create the bucket unless it exists; raise `ForeignDataError` if it belongs to another installation."""
        config = StreamConfig(
            name=self._stream,
            subjects=[f"{self._prefix}>"],
            num_replicas=_REPLICAS,
            storage=StorageType.FILE,
            max_age=ttl_s,
            max_msgs_per_subject=1,
            discard=DiscardPolicy.NEW,
            allow_direct=True,
            deny_delete=True,
            deny_purge=True,  # Processes that start would know no key.
            metadata={_IDENTITY: identity, _BUCKET_ID: secrets.token_hex(16)},
        )
        with _as_unavailable(self._stream):
            manager = (await self._connection.client()).jsm(timeout=_ANSWER_S_MAX)
            info = await _found_or_created(manager, config)
        if (info.config.metadata or {}).get(_IDENTITY, "") != identity:
            raise ForeignDataError(
                f"the NATS bucket {self._prefix[4:-1]} belongs to another installation: "
                "name the servers of this installation in MAUVE_STREAM_URL, or an account of its own"
            )
        is_clustered = info.cluster is not None and bool(info.cluster.name)  # A single server has no cluster name.
        if is_clustered and (info.config.num_replicas or 1) < _REPLICAS:
            await self._raise_replicas()

    async def drop(self, identity: str) -> None:
        """Delete the bucket with its entries, if there is one; raise if it belongs to another installation."""
        with contextlib.suppress(BucketMissingError):
            if (await self.state()).identity != identity:
                raise ForeignDataError(f"the NATS bucket {self._prefix[4:-1]} belongs to another installation")
            with _as_unavailable(self._stream):
                await (await self._connection.client()).jsm(timeout=_ANSWER_S_MAX).delete_stream(self._stream)

    async def _raise_replicas(self) -> None:
        """Give a bucket that was created on one server its copies on the others, now that there are more."""
        client = await self._connection.client()
        try:
            # As the server wrote it: the library would leave out what it does not know.
            config = json.loads(await ask(client, f"STREAM.INFO.{self._stream}"))["config"]
            await ask(client, f"STREAM.UPDATE.{self._stream}", {**config, "num_replicas": _REPLICAS})
        except (ApiError, StoreUnavailableError) as error:
            advice = f"start {_REPLICAS} servers with JetStream, then mauve again"
            log.warning("nats_replicas_not_raised", stream=self._stream, reason=str(error), advice=advice)

    async def changes_after(self, sequence: int) -> list[Entry]:
        """Return the next changed entries in the order of their change; none if there are no more."""
        return await self._read({"seq": sequence + 1, "next_by_subj": f"{self._prefix}>"})

    async def entries(self, keys: Collection[str]) -> dict[str, Entry]:
        """Return the entries that exist. The server that answers may not have the very last change yet."""
        found: dict[str, Entry] = {}
        subjects = [f"{self._prefix}{key}" for key in keys]
        for start in range(0, len(subjects), _READ_MAX):
            read = await self._read({"multi_last": subjects[start : start + _READ_MAX]})
            found |= {entry.key: entry for entry in read}
        return found

    async def put(self, key: str, value: bytes, replaces: int | None = None) -> int:
        """Store a value durably; return its sequence.

        Raise `ConflictError` unless the entry has the sequence `replaces`; 0 stands for no entry, None for any.
        """
        headers = None if replaces is None else {"Nats-Expected-Last-Subject-Sequence": str(replaces)}
        with _as_unavailable(self._stream):
            context = (await self._connection.client()).jetstream(timeout=_ANSWER_S_MAX)
            try:
                stored = await context.publish(f"{self._prefix}{key}", value, headers=headers)
            except APIError as error:
                if error.err_code in _WRONG_LAST_SEQUENCE:
                    raise ConflictError from error
                raise
        return int(stored.seq)

    async def _read(self, asked: Mapping[str, Any]) -> list[Entry]:
        """Return the entries of a batched direct get, which any server that has the bucket answers."""
        request = json.dumps({**asked, "batch": _READ_MAX, "max_bytes": _READ_BYTES_MAX}).encode()
        with _as_unavailable(self._stream):
            async with asyncio.timeout(_READ_S_MAX):
                client = await self._connection.client()
                inbox = client.new_inbox()
                replies = await client.subscribe(inbox)
                try:
                    await client.publish(f"$JS.API.DIRECT.GET.{self._stream}", request, inbox)
                    return await _all_entries(replies, self._prefix)
                finally:
                    with contextlib.suppress(Error):
                        await replies.unsubscribe()


class BucketThread:
    """A bucket and its connection in a thread of their own, for callers that are not coroutines."""

    def __init__(self, url: Secret, bucket: str, purpose: str) -> None:
        self._connection = Connection(url, f"mauve {purpose}")
        self._thread = LoopThread(purpose.replace(" ", "-"))
        self._background: asyncio.Task[None] | None = None
        self._is_closed = False
        self.bucket = Bucket(self._connection, bucket)

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float) -> T:
        """Return the result of a coroutine, or raise `StoreUnavailableError` if there is none in time."""
        return self._thread.run(work, timeout_s)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the background until this is closed."""

        async def start() -> None:
            self._background = asyncio.create_task(work)

        self.run(start(), _ANSWER_S_MAX)

    async def client(self) -> Client:
        return await self._connection.client()

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        with contextlib.suppress(StoreUnavailableError):
            self.run(self._end(), _CLOSE_S_MAX)
        self._thread.close()

    async def _end(self) -> None:
        if self._background is not None:
            self._background.cancel()
            await asyncio.wait({self._background})
        await self._connection.close()


class Follower:
    """Reads all entries of a bucket, and then those that have changed.

    It starts again if the bucket was replaced or has lost entries, because its sequences have started again, too.
    """

    def __init__(
        self, bucket: Bucket, ticks: Callable[[], float] = time.monotonic, check_every_s: float = CHECK_EVERY_S
    ) -> None:
        self._bucket = bucket
        self._ticks = ticks
        self._check_every_s = check_every_s
        self._state: BucketState | None = None
        self._confirmed_at = ticks()
        self._behind_since: float | None = None  # since when the leader has had less than was read
        self._had_least = 0  # the least that it had since then
        self._is_foreign = False
        self._asked: asyncio.Future[BucketState] | None = None  # the state, while there is no answer yet
        self._asked_after = 0  # how far was read by then
        self._asked_at = self.state_asked_at = ticks()
        self.sequence = 0  # read up to here
        self.restarts = 0

    @property
    def last_sequence(self) -> int:
        """Return the sequence of the last change, as the leader said when it was asked at `state_asked_at`."""
        return 0 if self._state is None else self._state.last_sequence

    async def next_changes(self) -> list[Entry]:
        """Return the next changed entries in the order of their change; none if there are no more."""
        await self._check()
        entries = await self._bucket.changes_after(self.sequence)
        if entries:
            self.sequence = entries[-1].sequence
        return entries

    async def _check(self) -> None:
        """Ask now and then whether it is still the same bucket. Reading goes on while the answer takes long.

        Only the leader knows. If it is cut off, the question is lost, and the other servers have the changes.
        """
        if self._asked is not None:  # by an earlier call
            await self._take_answer()
        if self._asked is None and (self._has_to_know() or self._ticks() - self._asked_at >= self._check_every_s):
            self._asked, self._asked_after = asyncio.ensure_future(self._bucket.state()), self.sequence
            self._asked_at = self._ticks()
            await self._take_answer()

    def _has_to_know(self) -> bool:
        return self._state is None or self._is_foreign or self._is_cut_off()

    async def _take_answer(self) -> None:
        """Wait for the answer, for long only if nothing can be read without it."""
        if self._asked is None:
            return
        await asyncio.wait({self._asked}, timeout=None if self._has_to_know() else _SOON_S)
        if self._asked.done():
            asked, self._asked = self._asked, None
            self._note_state(asked)

    def _note_state(self, asked: "asyncio.Future[BucketState]") -> None:
        try:
            state = asked.result()
        except StoreUnavailableError:
            if self._has_to_know():
                raise
        else:
            if not self._lacks_changes_for_now(state):
                self._start_again_if_replaced(state)
                self._confirmed_at = self._ticks()

    def _is_cut_off(self) -> bool:
        """Return whether the servers that can be read may miss changes.

        While a leader is elected they have all of them; those that stay without one are cut off from the others.
        """
        return self._ticks() - self._confirmed_at > ELECTION_S_MAX

    def _lacks_changes_for_now(self, state: BucketState) -> bool:
        """Return whether a leader has less than was read, and not for long: a new one may not have stored all yet."""
        now = self._ticks()
        is_same = self._state is not None and state.bucket_id == self._state.bucket_id
        if not is_same or state.last_sequence >= self._asked_after:
            if self._behind_since is not None:  # Others may have taken the place of what was read.
                self.sequence = min(self.sequence, self._had_least)
            self._behind_since = None
            return False
        if self._behind_since is None:
            self._behind_since, self._had_least = now, state.last_sequence
        self._had_least = min(self._had_least, state.last_sequence)
        return now - self._behind_since <= ELECTION_S_MAX

    def _start_again_if_replaced(self, state: BucketState) -> None:
        known = self._state or state
        self._is_foreign = state.identity != known.identity
        if self._is_foreign:
            raise StoreUnavailableError("NATS holds the data of another installation now")
        if state.bucket_id != known.bucket_id or state.last_sequence < self._asked_after:
            self.sequence = 0
            self.restarts += 1
        self._state, self.state_asked_at = state, self._asked_at


async def _all_entries(replies: Subscription, prefix: str) -> list[Entry]:
    """Return the entries of the replies. Each reply names the one before it, so a lost one is noticed."""
    entries: list[Entry] = []
    while True:
        message = await replies.next_msg(timeout=_ANSWER_S_MAX)
        headers = message.headers or {}
        status = headers.get("Status")
        if status == _NOTHING and not entries:
            return entries
        if status not in {None, _END}:
            raise StoreUnavailableError(f"NATS refused a read with status {status}")
        if int(headers["Nats-Last-Sequence"]) != (entries[-1].sequence if entries else 0):
            raise StoreUnavailableError("NATS: a part of a read was lost")
        if status == _END:
            return entries
        subject, sequence = headers["Nats-Subject"], int(headers["Nats-Sequence"])
        entries.append(Entry(subject.removeprefix(prefix), sequence, message.data))


@contextlib.contextmanager
def _as_unavailable(stream: str) -> Iterator[None]:
    try:
        yield
    except NotFoundError as error:
        raise _missing(stream) from error
    except (Error, OSError, TimeoutError) as error:
        raise StoreUnavailableError(f"NATS: {error}") from error


def _missing(stream: str) -> BucketMissingError:
    return BucketMissingError(f"NATS has no stream {stream}: mauve creates it again within seconds")


async def _found_or_created(manager: JetStreamManager, config: StreamConfig) -> StreamInfo:
    name = str(config.name)
    with contextlib.suppress(NotFoundError):
        return await manager.stream_info(name)
    try:
        return await once_placed(lambda: manager.add_stream(config), APIError)
    except APIError as error:
        if error.err_code == _NOT_CLUSTERED:
            return await manager.add_stream(config.evolve(num_replicas=1))
        if error.err_code == _NAME_IN_USE:  # Another process was faster.
            return await manager.stream_info(name)
        if error.err_code == _NO_PEERS:
            message = f"the NATS cluster must have {_REPLICAS} servers with JetStream that run: start them"
            raise UnsupportedServerError(message) from error
        raise
