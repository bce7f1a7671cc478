"""The writer of the log on NATS: group commit, one message at a time.

A process writes to one stream until it has no leader, is full, or does not answer, then to the next. An unacknowledged
group may be stored: it is resent to the same stream under the same id, never to another.
"""

import asyncio
import contextlib
import secrets
import time
from collections import deque
from collections.abc import Sequence
from enum import Enum
from itertools import count
from typing import Final, NamedTuple

import msgspec
import structlog

from mauve.core.secret import Secret
from mauve.stores import StoreUnavailableError
from mauve.stores.log import LogFailedError, LogFullError, LogUnavailableError, place_of
from mauve.stores.log.nats.connection import Connection
from mauve.stores.log.nats.messages import FORMAT, FORMAT_HEADER, GROUP_BYTES_MAX, RECORD_BYTES_MAX, packed
from mauve.stores.log.nats.streams import RECORDS_MAX, STREAMS, first_number, stream_name, subject_of

CLIENT_NAME: Final = "mauve log writer"  # as NATS shows it to operators
WAIT_S_MAX: Final = 8.0
WAITING_BYTES_MAX: Final = 32 * 2**20
ASSUMED_FLUSH_S: Final = 0.004  # assumed until the servers have been measured
_FLUSH_WEIGHT: Final = 0.25
_ATTEMPT_S: Final = 1.0
LAST_ATTEMPT_S: Final = 1.5  # how long after its deadline a group may still be sent
_PAUSE_S: Final = 0.1
_CONNECT_EVERY_S: Final = 1.0
_FAILURE_VALID_S: Final = 10.0  # With no traffic, only a reconnect shows that NATS has recovered.
FINISH_S_MAX: Final = 1.0  # for `close`: requests in flight have already had 5 of the 8 s for a stop
DISCONNECT_S_MAX: Final = 0.5

# Answers that mean nothing was stored. All others are inconclusive, such as a failed store, or a server limit that the
# leader may reach after the others have stored the message.
_REFUSALS: Final = frozenset(
    {
        10039,  # JetStream is not enabled for the account
        10054,  # the message is too large
        10059,  # there is no such stream
        10060,  # the subject belongs to another stream
        10076,  # JetStream is not enabled
        10109,  # the stream is sealed
    }
)
_LIMITS: Final = frozenset({10002, 10047})  # of the account, of the storage
_STORE_FAILED: Final = 10077  # The description says why.
_STREAM_LIMITS: Final = frozenset({"maximum bytes exceeded", "maximum messages exceeded"})

log = structlog.get_logger()


class _Waiting(NamedTuple):
    parts: Sequence[bytes]
    length: int
    queued_at: float
    done: asyncio.Future[int]


class _Group(NamedTuple):
    records: list[_Waiting]
    message: bytes
    id: str
    gives_up_at: float


class _Outcome(Enum):
    REFUSED = "nothing was stored"
    FULL = "the stream is full"
    UNKNOWN = "it may be stored"


class _Refusal(msgspec.Struct, frozen=True):
    err_code: int = 0
    description: str = ""


class _Ack(msgspec.Struct, frozen=True):
    seq: int = 0
    error: _Refusal | None = None


_ack_decoder: Final = msgspec.json.Decoder(_Ack)


class NatsLogWriter:
    """Appends to the streams that all processes share, from one event loop.

    - At most `WAITING_BYTES_MAX` wait; further records are refused immediately.
    - Every record has an answer within about 10 s.
    - While no server can store anything, one group keeps trying; other records are refused immediately.
    - Records keep their order within a stream.
    """

    has_failed = False

    def __init__(self, url: Secret, first: int = 0, connection: Connection | None = None) -> None:
        self._connection = connection or Connection(url, CLIENT_NAME)
        self._streams = [STREAMS[(first + place) % len(STREAMS)] for place in range(len(STREAMS))]
        self._resolving: dict[int, asyncio.Task[None]] = {}  # by stream: a group that may be stored there
        self._waiting: deque[_Waiting] = deque()
        self._waiting_bytes = 0
        self._work: asyncio.Task[None] | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._ids = (f"{secrets.token_hex(8)}-{number}" for number in count())
        self._is_down = False
        self._gave_up_at = 0.0
        self._is_closed = False
        self.flush_s = ASSUMED_FLUSH_S

    @property
    def is_available(self) -> bool:
        """Return whether NATS is connected and the last write did not fail recently."""
        has_just_failed = self._is_down and time.monotonic() - self._gave_up_at < _FAILURE_VALID_S
        return self._connection.is_connected and not has_just_failed

    def append(self, parts: Sequence[bytes]) -> asyncio.Future[int]:
        length = sum(map(len, parts))
        if length > RECORD_BYTES_MAX:
            raise ValueError(f"a record of {length} bytes is above the limit of {RECORD_BYTES_MAX}")
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        refusal = self._refusal(length)
        if refusal is not None:
            done.set_exception(refusal)
            return done
        self._waiting.append(_Waiting(parts, length, time.monotonic(), done))
        self._waiting_bytes += length
        if self._work is None:
            self._work = asyncio.create_task(self._store_all())
        return done

    async def open(self) -> None:
        """Connect if NATS answers; otherwise, keep trying in the background."""
        with contextlib.suppress(StoreUnavailableError):
            await self._connection.client()
        self._connecting = asyncio.create_task(self._stay_connected())

    async def close(self) -> None:
        """Finish pending appends, unless NATS is down for too long, then disconnect."""
        self._is_closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        ends_at = time.monotonic() + FINISH_S_MAX
        while (tasks := self._tasks()) and (remaining_s := ends_at - time.monotonic()) > 0:
            await asyncio.wait(tasks, timeout=remaining_s)
        tasks = self._tasks()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._connection.close(), DISCONNECT_S_MAX)

    async def _stay_connected(self) -> None:
        """Reconnect even without events: a load balancer sends none to a process that is not ready."""
        while True:
            await asyncio.sleep(_CONNECT_EVERY_S)
            with contextlib.suppress(StoreUnavailableError):
                self._connection.connected()

    def _tasks(self) -> set[asyncio.Task[None]]:
        return {*self._resolving.values(), *([] if self._work is None else [self._work])}

    def _refusal(self, length: int) -> Exception | None:
        if self._is_closed:
            return LogFailedError("the log is closed")
        if self._is_down and self._work is not None:
            return LogUnavailableError("NATS cannot store events at the moment")
        if self._waiting_bytes + length > WAITING_BYTES_MAX:
            return LogUnavailableError("too much is waiting for NATS")
        return None

    async def _store_all(self) -> None:
        try:
            await asyncio.sleep(0)  # Requests that are ready in the same loop iteration share a group.
            while self._waiting:
                if len(self._resolving) < len(self._streams):
                    await self._store_or_fail(self._next_group())
                else:
                    tasks = self._resolving.values()
                    await asyncio.wait(tasks, timeout=_PAUSE_S, return_when=asyncio.FIRST_COMPLETED)
                self._fail_expired()
        finally:
            self._work = None
            self._fail(self._take_waiting(), LogUnavailableError, "the log's task ended")

    def _take_waiting(self) -> list[_Waiting]:
        taken, self._waiting, self._waiting_bytes = list(self._waiting), deque(), 0
        return taken

    def _next_group(self) -> _Group:
        records: list[_Waiting] = []
        size = 0
        while self._waiting and len(records) < RECORDS_MAX:
            if records and size + self._waiting[0].length > GROUP_BYTES_MAX:
                break
            records.append(self._waiting.popleft())
            size += records[-1].length
        self._waiting_bytes -= size
        gives_up_at = max(records[0].queued_at + WAIT_S_MAX, time.monotonic() + LAST_ATTEMPT_S)
        return _Group(records, packed([each.parts for each in records]), next(self._ids), gives_up_at)

    async def _store_or_fail(self, group: _Group) -> None:
        try:
            await self._store(group)
        except BaseException as error:  # Every caller must get an answer.
            self._fail(group.records, LogUnavailableError, f"unexpected {type(error).__name__}")
            raise

    async def _store(self, group: _Group) -> None:
        """Try the streams one at a time until one has stored the group, or may have."""
        while True:
            outcomes = []
            for stream in [each for each in self._streams if each not in self._resolving]:
                outcome = await self._attempt(stream, group)
                if isinstance(outcome, int):
                    self._settle(group, stream, outcome)
                    return
                self._streams.remove(stream)
                self._streams.append(stream)  # Try it last from now on.
                if outcome is _Outcome.UNKNOWN:
                    self._resolving[stream] = asyncio.create_task(self._resolve(stream, group))
                    return
                outcomes.append(outcome)
            if outcomes and all(outcome is _Outcome.FULL for outcome in outcomes):
                self._fail(group.records, LogFullError, "every stream has reached its size")
                return
            if time.monotonic() > group.gives_up_at:
                reason = "NATS has no leader for any stream"
                self._give_up(group, reason)
                self._fail(self._take_waiting(), LogUnavailableError, reason)
                return
            await asyncio.sleep(_PAUSE_S)

    async def _resolve(self, stream: int, group: _Group) -> None:
        """Resend a group to the same stream under the same id until it is acknowledged."""
        try:
            while time.monotonic() < group.gives_up_at:
                outcome = await self._attempt(stream, group)
                if isinstance(outcome, int):
                    self._settle(group, stream, outcome)
                    return
                await asyncio.sleep(_PAUSE_S)
            self._give_up(group, "NATS did not acknowledge in time")
        finally:
            self._resolving.pop(stream, None)
            self._fail(group.records, LogUnavailableError, "the log's task ended")

    async def _attempt(self, stream: int, group: _Group) -> int | _Outcome:
        """Send a group; return its sequence if it was stored, else the outcome."""
        from nats.errors import NoRespondersError, OutboundBufferLimitError  # noqa: PLC0415 - an extra

        began = time.monotonic()
        headers = {
            "Nats-Msg-Id": group.id,
            "Nats-Expected-Stream": stream_name(stream),
            FORMAT_HEADER: FORMAT,
        }
        try:
            client = self._connection.connected()
            reply = await client.request(subject_of(stream), group.message, timeout=_ATTEMPT_S, headers=headers)
        except (StoreUnavailableError, NoRespondersError, OutboundBufferLimitError):
            return _Outcome.REFUSED
        except Exception:  # noqa: BLE001 - after any error, the group may have been sent
            return _Outcome.UNKNOWN
        ack = _ack_of(reply.data)
        if ack.error is None and ack.seq:
            self.flush_s += (time.monotonic() - began - self.flush_s) * _FLUSH_WEIGHT
            return ack.seq
        return _outcome_of(ack)

    def _fail_expired(self) -> None:
        expired = time.monotonic() - WAIT_S_MAX
        while self._waiting and self._waiting[0].queued_at < expired:
            record = self._waiting.popleft()
            self._waiting_bytes -= record.length
            self._fail([record], LogUnavailableError, "NATS did not acknowledge in time")

    def _settle(self, group: _Group, stream: int, sequence: int) -> None:
        if self._is_down:
            log.info("log_stores_again", stream=stream_name(stream))
        self._is_down = False
        for place, record in enumerate(group.records, place_of(stream, first_number(sequence))):
            if not record.done.done():  # The caller may have given up.
                record.done.set_result(place)

    def _give_up(self, group: _Group, reason: str) -> None:
        if not self._is_down:
            log.error("log_unavailable", reason=reason, advice="events get 503 until NATS has a quorum again")
        self._is_down = True
        self._gave_up_at = time.monotonic()
        self._fail(group.records, LogUnavailableError, reason)

    @staticmethod
    def _fail(records: Sequence[_Waiting], error: type[Exception], reason: str) -> None:
        for record in records:
            if not record.done.done():
                record.done.set_exception(error(reason))  # One each: a shared one would accumulate tracebacks.


def _ack_of(content: bytes) -> _Ack:
    with contextlib.suppress(msgspec.DecodeError):
        return _ack_decoder.decode(content)
    return _Ack()


def _outcome_of(ack: _Ack) -> _Outcome:
    if ack.error is None:
        return _Outcome.UNKNOWN
    code, description = ack.error.err_code, ack.error.description.lower()
    if code in _LIMITS or (code == _STORE_FAILED and description in _STREAM_LIMITS):
        return _Outcome.FULL
    return _Outcome.REFUSED if code in _REFUSALS else _Outcome.UNKNOWN
