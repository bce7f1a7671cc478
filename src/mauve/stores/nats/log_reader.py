"""The reader of the log on NATS: by sequence, without a consumer, so nothing about it is kept on the servers."""

import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import msgspec
import structlog

from mauve.core.secret import Secret
from mauve.stores import ForeignDataError, StoreUnavailableError
from mauve.stores.log import LogReader, LogRecord
from mauve.stores.nats.connection import Connection, LoopThread
from mauve.stores.nats.groups import FORMAT_HEADER, DamagedGroupError, NewerFormatError, sequence_of, unpacked
from mauve.stores.nats.streams import (
    API,
    API_S_MAX,
    NOT_FOUND,
    STREAM_ID,
    STREAMS,
    ApiError,
    StreamInfo,
    StreamState,
    ask,
    purge,
    stream_info,
    stream_name,
)

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg

READ_S_MAX: Final = 20.0  # including the first connection
TRIM_EVERY_S: Final = 60.0  # Trimming takes a third of a second.
TRIM_BYTES: Final = 256 * 2**20
_BATCH_MESSAGES_MAX: Final = 1_000
_BATCH_BYTES_MAX: Final = 4 * 2**20
_BATCH_S_MAX: Final = 5.0
_FROM_LEADER_MAX: Final = 100  # messages that one read asks the leader for, one by one

log = structlog.get_logger()
T = TypeVar("T")


def _utc_now() -> datetime:
    return datetime.now(UTC)


class _Message(NamedTuple):
    sequence: int
    content: bytes
    format: str | None


class _Stored(msgspec.Struct, frozen=True):
    data: bytes = b""
    hdrs: bytes = b""


class _StoredReply(msgspec.Struct, frozen=True):
    message: _Stored


@dataclass
class _Progress:
    """What this reader knows about one stream."""

    last_number: int = 0  # of the last message that was read
    next_sequence: int = 1  # the message after it
    trimmed_at: float = -TRIM_EVERY_S
    read_bytes: int = 0  # since it was trimmed
    damaged_sequence: int = 0  # the last that was reported


class NatsLogReader:
    """Reads and trims the streams, from a thread. It raises `StoreUnavailableError` while NATS is away.

    Any replica may serve a batch, and it may lag: the leader says which messages there are, and is asked for those
    that a replica does not have. `trim` leaves loaded messages for as long as `keep` says, so that they can be loaded
    once more after a restore, unless they take half of the room.
    """

    def __init__(
        self,
        url: Secret,
        stream_ids: Mapping[int, str] | None = None,
        *,
        keep: timedelta = timedelta(),
        trim_every_s: float = TRIM_EVERY_S,
        call_s_max: float = READ_S_MAX,
        now: Callable[[], datetime] = _utc_now,
    ) -> None:
        self._connection = Connection(url, "mauve log reader")
        self._thread: LoopThread | None = None
        self._stream_ids = stream_ids or {}
        self._keep = keep
        self._now = now
        self._trim_every_s = trim_every_s
        self._call_s_max = call_s_max
        self._progress = {stream: _Progress() for stream in STREAMS}
        self._damaged = 0

    def streams(self) -> list[int]:
        return list(STREAMS)

    def read(self, stream: int, after: int, bytes_max: int) -> list[LogRecord]:
        return self._run(self._read(stream, after, bytes_max)) if stream in self._progress else []

    def trim(self, stream: int, through: int) -> None:
        progress = self._progress.get(stream)
        if progress is None:
            return
        is_due = time.monotonic() - progress.trimmed_at >= self._trim_every_s or progress.read_bytes >= TRIM_BYTES
        if is_due:
            try:
                self._trim(stream, through, self._keep)
            except StoreUnavailableError as error:
                log.warning("log_not_trimmed", stream=stream_name(stream), reason=str(error), advice="repeated later")

    def trim_now(self, stream: int, through: int) -> None:
        """Delete the messages whose records were all loaded, even new ones."""
        self._trim(stream, through, timedelta())

    def _trim(self, stream: int, through: int, keep: timedelta) -> None:
        progress = self._progress[stream]
        self._run(self._purge(stream, through, keep))
        progress.trimmed_at, progress.read_bytes = time.monotonic(), 0

    def backlog_bytes(self, positions: Mapping[int, int]) -> int:
        return sum(self._run(self._waiting_bytes(stream, positions.get(stream, 0))) for stream in STREAMS)

    def stored_bytes(self) -> int:
        return sum(self._sizes())

    def largest_stream_bytes(self) -> int:
        return max(self._sizes())

    def quarantined(self) -> int:
        return self._damaged

    def close(self) -> None:
        if self._thread is not None:
            with suppress(StoreUnavailableError):
                self._thread.run(self._connection.close())
            self._thread.close()
            self._thread = None

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._thread is None:
            self._thread = LoopThread("nats-log")
        try:
            return self._thread.run(work, self._call_s_max)
        except ApiError as error:
            raise StoreUnavailableError(f"JetStream refused: {error}") from error

    def _sizes(self) -> list[int]:
        return [self._run(self._state(stream)).bytes for stream in STREAMS]

    async def _state(self, stream: int) -> StreamState:
        return (await self._info(stream)).state

    async def _info(self, stream: int) -> StreamInfo:
        """Return what the leader of a stream knows about it."""
        info = await stream_info(await self._connection.client(), stream)
        expected = self._stream_ids.get(stream)
        if expected is not None and info.config.metadata.get(STREAM_ID) != expected:
            raise ForeignDataError(
                f"the stream {stream_name(stream)} was created again, so its records are numbered from 1 again: "
                "restore it from a backup of NATS, or name the servers that hold it in MAUVE_STREAM_URL"
            )
        return info

    async def _read(self, stream: int, after: int, bytes_max: int) -> list[LogRecord]:
        progress = self._progress[stream]
        state = await self._state(stream)
        sequence = max(self._sequence_after(progress, after), state.first_seq)
        records: list[LogRecord] = []
        room = bytes_max
        while sequence <= state.last_seq and (room > 0 or not records):
            messages, sequence = await self._messages(stream, sequence, state.last_seq, room)
            for message in messages:
                progress.read_bytes += len(message.content)
                try:
                    found = self._records_of(stream, message)
                except NewerFormatError:
                    if records:
                        return records
                    raise
                for record in found:
                    if record.number <= after:
                        continue
                    room -= len(record.payload)
                    if records and room < 0:
                        return records
                    records.append(record)
                if found:
                    progress.last_number, progress.next_sequence = found[-1].number, message.sequence + 1
        return records

    @staticmethod
    def _sequence_after(progress: _Progress, after: int) -> int:
        """Return the first message that may hold a record after this number."""
        return progress.next_sequence if after == progress.last_number else sequence_of(after + 1)

    def _records_of(self, stream: int, message: _Message) -> list[LogRecord]:
        try:
            return unpacked(message.sequence, message.content, message.format)
        except NewerFormatError as error:
            place = f"{stream_name(stream)}, message {message.sequence}"
            raise NewerFormatError(f"{place}: {error}") from error
        except DamagedGroupError as error:
            self._report_damage(stream, message.sequence, str(error))
            return []

    def _report_damage(self, stream: int, sequence: int, reason: str) -> None:
        """Report a message once, though it is read again until later ones are loaded."""
        progress = self._progress[stream]
        if sequence > progress.damaged_sequence:
            progress.damaged_sequence = sequence
            self._damaged += 1
            log.error("log_message_damaged", stream=stream_name(stream), sequence=sequence, reason=reason)

    async def _messages(self, stream: int, sequence: int, last: int, bytes_max: int) -> tuple[list[_Message], int]:
        """Return messages from a sequence on, leaving out none that exists, and the sequence to go on from."""
        client = await self._connection.client()
        batch = await batch_from(client, stream, sequence, max(min(bytes_max, _BATCH_BYTES_MAX), 1))
        found = {message.sequence: message for message in batch if message.sequence <= last}
        end = max(found, default=last) + 1
        messages: list[_Message] = []
        asked = 0
        while sequence < end and asked < _FROM_LEADER_MAX:
            message = found.get(sequence)
            if message is None:
                # Deleted, or not on that replica yet.
                message = await _from_leader(client, stream, sequence)
                asked += 1
            if message is not None:
                messages.append(message)
            sequence += 1
        return messages, sequence

    async def _purge(self, stream: int, through: int, keep: timedelta) -> None:
        keep_from = self._sequence_after(self._progress[stream], through)
        if keep_from == sequence_of(through) and not await self._holds_more(stream, keep_from, through):
            keep_from += 1
        if keep:
            keep_from = min(keep_from, await self._first_to_keep(stream, keep))
        if keep_from > 1:
            await purge(await self._connection.client(), stream, keep_from)

    async def _first_to_keep(self, stream: int, keep: timedelta) -> int:
        """Return the first message that is not old enough to be deleted; any may go if half of the room is used."""
        info = await self._info(stream)
        after_last = info.state.last_seq + 1
        since = self._now() - keep
        if info.state.bytes * 2 > info.config.max_bytes > 0 or info.state.last_ts < since:
            return after_last
        first = await _first_since(await self._connection.client(), stream, since)
        return info.state.first_seq if first is None else first

    async def _waiting_bytes(self, stream: int, after: int) -> int:
        """Return about how many bytes wait: messages are of about the same size."""
        state = await self._state(stream)
        sequence = max(self._sequence_after(self._progress[stream], after), state.first_seq)
        if sequence > state.last_seq or not state.messages:
            return 0
        waiting = state.last_seq - sequence + 1
        if sequence == sequence_of(after):
            # The position's own message: usually all of it is loaded.
            waiting -= not await self._holds_more(stream, sequence, after)
        return -(-state.bytes * waiting // state.messages)

    async def _holds_more(self, stream: int, sequence: int, after: int) -> bool:
        found = await _from_leader(await self._connection.client(), stream, sequence)
        records = [] if found is None else self._records_of(stream, found)
        return bool(records) and records[-1].number > after


class NatsStreamReader:
    """Reads one stream for others than the loader."""

    def __init__(self, reader: LogReader, stream: int) -> None:
        self._reader = reader
        self._stream = stream

    def records(self, after: int, through: int) -> Iterator[LogRecord]:
        bytes_max = 1  # Often only the first record is asked for.
        while batch := self._reader.read(self._stream, after, bytes_max):
            bytes_max = _BATCH_BYTES_MAX
            for record in batch:
                if record.number > through:
                    return
                yield record
            after = batch[-1].number


async def batch_from(client: "Client", stream: int, sequence: int, bytes_max: int) -> list[_Message]:
    """Return the messages from a sequence on that some replica has."""
    from nats.errors import Error  # noqa: PLC0415 - an extra

    inbox = client.new_inbox()
    subscription = await client.subscribe(inbox, pending_bytes_limit=-1)
    request = {"seq": sequence, "batch": _BATCH_MESSAGES_MAX, "max_bytes": bytes_max}
    found: list[_Message] = []
    try:
        await client.publish(f"{API}.DIRECT.GET.{stream_name(stream)}", msgspec.json.encode(request), reply=inbox)
        while True:
            message = await subscription.next_msg(_BATCH_S_MAX)
            parsed = _message_of(message)
            if parsed is None:
                return found
            found.append(parsed)
    except (Error, OSError, TimeoutError) as error:
        if found:
            return found
        raise StoreUnavailableError("JetStream does not answer: it may be without a quorum") from error
    finally:
        with suppress(Error):  # The connection may be gone.
            await subscription.unsubscribe()


def _message_of(message: "Msg") -> _Message | None:
    """Return a message of a batch, or None at its end."""
    headers = message.headers or {}
    if "Nats-Sequence" not in headers:
        return None
    return _Message(int(headers["Nats-Sequence"]), message.data, headers.get(FORMAT_HEADER))


async def _first_since(client: "Client", stream: int, since: datetime) -> int | None:
    """Return the first message that was stored since then, or None if the replica that answers has none."""
    from nats.errors import Error  # noqa: PLC0415 - an extra

    request = msgspec.json.encode({"start_time": since, "seq": 0})
    try:
        reply = await client.request(f"{API}.DIRECT.GET.{stream_name(stream)}", request, timeout=API_S_MAX)
    except (Error, OSError, TimeoutError) as error:
        raise StoreUnavailableError("JetStream does not answer: it may be without a quorum") from error
    found = _message_of(reply)
    return None if found is None else found.sequence


async def _from_leader(client: "Client", stream: int, sequence: int) -> _Message | None:
    """Return a message from the stream's leader, or None if it does not exist."""
    try:
        reply = await ask(client, f"STREAM.MSG.GET.{stream_name(stream)}", {"seq": sequence})
    except ApiError as error:
        if error.code == NOT_FOUND:
            return None
        raise
    stored = msgspec.json.decode(reply, type=_StoredReply).message
    headers = dict(line.split(": ", 1) for line in stored.hdrs.decode().splitlines() if ": " in line)
    return _Message(sequence, stored.data, headers.get(FORMAT_HEADER))
