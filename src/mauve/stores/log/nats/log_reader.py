"""The reader of the log on NATS: by sequence and without a consumer, so the servers keep no state about it."""

import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

import structlog

from mauve.core.secret import Secret
from mauve.stores import StoreUnavailableError
from mauve.stores.log import LogRecord, Lost, Reach
from mauve.stores.log.nats.connection import Connection, LoopThread
from mauve.stores.log.nats.messages import (
    DamagedGroupError,
    Message,
    NewerFormatError,
    batch_from,
    first_since,
    from_leader,
    unpacked,
)
from mauve.stores.log.nats.streams import (
    GIVE_UP,
    MISSING,
    NOT_FOUND,
    STREAMS,
    ApiError,
    StreamInfo,
    StreamState,
    fills_its_part,
    first_number,
    first_that_fits,
    loss_of,
    purge,
    sequence_of,
    stream_info,
    stream_name,
)

READ_S_MAX: Final = 20.0  # including the first connection
TRIM_EVERY_S: Final = 60.0  # Trimming takes a third of a second.
TRIM_BYTES: Final = 256 * 2**20
_BATCH_BYTES_MAX: Final = 4 * 2**20
FROM_LEADER_MAX: Final = 100  # single-message requests to the leader per read
# Before a message is given up. A replaced leader notices far sooner.
MISSING_S_MAX: Final = 30.0
MISSING_TRIES_MIN: Final = 10

log = structlog.get_logger()
T = TypeVar("T")


class _LostStreamError(Exception):
    """A stream does not exist or was replaced by another one."""


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass
class _Progress:
    last_number: int = 0  # of the last message that was read
    next_sequence: int = 1  # the message after it
    trimmed_at: float = -TRIM_EVERY_S
    read_bytes: int = 0  # since it was trimmed
    damaged_sequence: int = 0  # the last one reported
    first_sequence: int | None = None  # of the stream, as its leader last said
    missing: dict[int, tuple[float, int]] = field(default_factory=dict)  # first missed at, and attempts
    given_up: set[int] = field(default_factory=set)  # missing ones that were reported


class NatsLogReader:
    """Reads and trims the streams, from a thread. It raises `StoreUnavailableError` while NATS is down.

    Any replica may serve a batch, and it may lag: the leader knows which messages exist and supplies those that a
    replica lacks. `trim` keeps loaded messages for the `keep` period, so that they can be loaded again after a restore,
    but only the newest that fit in half of the storage. A lost stream is reported and reads as empty: the others
    continue, and its position stays, in case it is restored.
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
        self._lost_streams: set[int] = set()  # already reported

    def streams(self) -> list[int]:
        return list(STREAMS)

    def read(self, stream: int, after: int, bytes_max: int) -> list[LogRecord]:
        return self._run(stream, self._read(stream, after, bytes_max), []) if stream in self._progress else []

    def records(self, stream: int, after: int, through: int) -> Iterator[LogRecord]:
        bytes_max = 1  # Often only the first record is needed.
        while batch := self.read(stream, after, bytes_max):
            bytes_max = _BATCH_BYTES_MAX
            for record in batch:
                if record.number > through:
                    return
                yield record
            after = batch[-1].number

    def last_number(self, stream: int) -> int:
        return first_number(self._state_now(stream).last_seq + 1) - 1

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
        """Delete all fully loaded messages, even new ones."""
        self._trim(stream, through, timedelta())

    def _trim(self, stream: int, through: int, keep: timedelta) -> None:
        progress = self._progress[stream]
        self._run(stream, self._purge(stream, through, keep), None)
        progress.trimmed_at, progress.read_bytes = time.monotonic(), 0

    def backlog_bytes(self, positions: Mapping[int, int]) -> int:
        return sum(self._run(stream, self._waiting_bytes(stream, positions.get(stream, 0)), 0) for stream in STREAMS)

    def stored_bytes(self) -> int:
        return sum(self._sizes())

    def largest_stream_bytes(self) -> int:
        return max(self._sizes())

    def quarantined(self) -> int:
        return self._damaged

    def lost_after(self, positions: Mapping[int, int]) -> dict[int, Lost]:
        found = {stream: self._lost(stream, positions.get(stream, 0)) for stream in STREAMS}
        return {stream: lost for stream, lost in found.items() if lost.messages > 0}

    def _lost(self, stream: int, after: int) -> Lost:
        """Compare a position with the first message. A message is never trimmed before all of it is loaded."""
        first = self._progress[stream].first_sequence
        if first is None:
            first = self._state_now(stream).first_seq
        return Lost(first - sequence_of(after) - 1, first_number(first) - 1)

    def lost_streams(self) -> frozenset[int]:
        return frozenset(self._lost_streams)

    def reach(self) -> Reach:
        reaches = [self._run(stream, self._reach(stream), Reach()) for stream in STREAMS]
        shortest = min((each.seconds for each in reaches if each.seconds is not None), default=None)
        return Reach(shortest, any(each.is_short for each in reaches))

    def close(self) -> None:
        if self._thread is not None:
            with suppress(StoreUnavailableError):
                self._thread.run(self._connection.close())
            self._thread.close()
            self._thread = None

    def _run(self, stream: int, work: Coroutine[Any, Any, T], if_lost: T) -> T:
        if self._thread is None:
            self._thread = LoopThread("nats-log")
        try:
            return self._thread.run(work, self._call_s_max)
        except _LostStreamError as error:
            if stream not in self._lost_streams:
                name, reason = stream_name(stream), str(error)
                log.error("log_stream_lost", stream=name, reason=reason, advice=GIVE_UP)  # noqa: TRY400 - no bug here
            self._lost_streams.add(stream)
            return if_lost
        except ApiError as error:
            raise StoreUnavailableError(f"JetStream refused: {error}") from error

    def _state_now(self, stream: int) -> StreamState:
        return self._run(stream, self._state(stream), StreamState())

    def _sizes(self) -> list[int]:
        return [self._state_now(stream).bytes for stream in STREAMS]

    async def _state(self, stream: int) -> StreamState:
        return (await self._info(stream)).state

    async def _info(self, stream: int, after: int = 0) -> StreamInfo:
        """Return the leader's info about a stream. Records up to `after` were loaded from it."""
        try:
            info = await stream_info(await self._connection.client(), stream)
        except ApiError as error:
            if error.code == NOT_FOUND:
                raise _LostStreamError(MISSING) from error
            raise
        if loss := loss_of(info, self._stream_ids.get(stream), after):
            raise _LostStreamError(loss)
        self._lost_streams.discard(stream)
        self._progress[stream].first_sequence = info.state.first_seq
        return info

    async def _reach(self, stream: int) -> Reach:
        """Return how far back a stream reaches. Old messages alone do not show that: none may have arrived since."""
        info = await self._info(stream)
        if info.state.first_seq <= 1 or not info.state.messages:
            return Reach()
        seconds = max(0.0, (self._now() - info.state.first_ts).total_seconds())
        is_short = fills_its_part(info) and seconds < self._keep.total_seconds()
        return Reach(seconds, is_short)

    async def _read(self, stream: int, after: int, bytes_max: int) -> list[LogRecord]:
        progress = self._progress[stream]
        state = (await self._info(stream, after)).state
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

    def _records_of(self, stream: int, message: Message) -> list[LogRecord]:
        try:
            return unpacked(message.sequence, message.content, message.format)
        except NewerFormatError as error:
            place = f"{stream_name(stream)}, message {message.sequence}"
            raise NewerFormatError(f"{place}: {error}") from error
        except DamagedGroupError as error:
            self._report_damage(stream, message.sequence, str(error))
            return []

    def _report_damage(self, stream: int, sequence: int, reason: str) -> None:
        """Report a message once, even though it is reread until later ones are loaded."""
        progress = self._progress[stream]
        if sequence > progress.damaged_sequence:
            progress.damaged_sequence = sequence
            self._damaged += 1
            log.error("log_message_damaged", stream=stream_name(stream), sequence=sequence, reason=reason)

    async def _messages(self, stream: int, sequence: int, last: int, bytes_max: int) -> tuple[list[Message], int]:
        """Return all messages from a sequence on, up to a size, and the sequence to continue from."""
        client = await self._connection.client()
        batch = await batch_from(client, stream, sequence, max(min(bytes_max, _BATCH_BYTES_MAX), 1))
        found = {message.sequence: message for message in batch if message.sequence <= last}
        end = max(found, default=last) + 1
        messages: list[Message] = []
        missing: list[int] = []
        asked = 0
        while sequence < end and asked < FROM_LEADER_MAX:
            message = found.get(sequence)
            if message is None and sequence not in self._progress[stream].given_up:
                # Deleted, or not yet on that replica.
                message = await from_leader(client, stream, sequence)
                asked += 1
                if message is None:
                    missing.append(sequence)
            if message is not None:
                self._note_found(stream, sequence)
                messages.append(message)
            sequence += 1
        if missing:
            await self._check_deleted(stream, missing)
        return messages, sequence

    def _note_found(self, stream: int, sequence: int) -> None:
        progress = self._progress[stream]
        if progress.missing:
            progress.missing.pop(sequence, None)
            progress.given_up.discard(sequence)

    async def _check_deleted(self, stream: int, sequences: Sequence[int]) -> None:
        """Raise `StoreUnavailableError` unless the messages were deleted manually or have been missing for long.

        A replaced leader that has not noticed yet also answers, but lacks newer messages.
        """
        state = (await stream_info(await self._connection.client(), stream, with_deleted=True)).state
        lacking = {each for each in sequences if each >= state.first_seq and each not in state.deleted}
        progress, now = self._progress[stream], time.monotonic()
        progress.missing = {each: known for each, known in progress.missing.items() if each >= state.first_seq}
        progress.given_up &= set(progress.missing)
        for each in lacking:
            since, tries = progress.missing.get(each, (now, 0))
            progress.missing[each] = (since, tries + 1)
        tried = [progress.missing[each] for each in lacking]
        if any(now - since <= MISSING_S_MAX or tries < MISSING_TRIES_MIN for since, tries in tried):
            first = min(lacking)
            raise StoreUnavailableError(f"the stream {stream_name(stream)} lacks its message {first}: retrying")
        if lost := lacking - progress.given_up:
            progress.given_up |= lost
            self._damaged += len(lost)
            log.error("log_messages_missing", stream=stream_name(stream), first=min(lost), messages=len(lost))

    async def _purge(self, stream: int, through: int, keep: timedelta) -> None:
        await self._info(stream)  # Check that the stream was not replaced.
        keep_from = self._sequence_after(self._progress[stream], through)
        if keep_from == sequence_of(through) and not await self._holds_more(stream, keep_from, through):
            keep_from += 1
        if keep:
            keep_from = min(keep_from, await self._first_to_keep(stream, keep))
        if keep_from > 1:
            await purge(await self._connection.client(), stream, keep_from)

    async def _first_to_keep(self, stream: int, keep: timedelta) -> int:
        """Return the first message too new to delete, among the newest that fit in half of the storage."""
        info = await self._info(stream)
        since = self._now() - keep
        if info.state.last_ts < since:
            return info.state.last_seq + 1
        first = await first_since(await self._connection.client(), stream, since)
        return max(info.state.first_seq if first is None else first, first_that_fits(info))

    async def _waiting_bytes(self, stream: int, after: int) -> int:
        """Return approximately how many bytes are waiting, assuming messages of similar size."""
        state = await self._state(stream)
        sequence = max(self._sequence_after(self._progress[stream], after), state.first_seq)
        if sequence > state.last_seq or not state.messages:
            return 0
        waiting = state.last_seq - sequence + 1
        if sequence == sequence_of(after):
            # The message at the position is usually fully loaded.
            waiting -= not await self._holds_more(stream, sequence, after)
        return -(-state.bytes * waiting // state.messages)

    async def _holds_more(self, stream: int, sequence: int, after: int) -> bool:
        found = await from_leader(await self._connection.client(), stream, sequence)
        if found is None:
            await self._check_deleted(stream, [sequence])
            return False
        self._note_found(stream, sequence)
        records = self._records_of(stream, found)
        return bool(records) and records[-1].number > after


class NatsLogMaintenance:
    """Deletes loaded records without waiting for a trim."""

    def __init__(self, open_reader: Callable[[], NatsLogReader], positions: Callable[[], Mapping[int, int]]) -> None:
        self._open_reader = open_reader
        self._positions = positions

    def erase_damaged(self, text: str) -> int:
        """Return 0: damaged messages exist only in the stream and are deleted with their neighbors."""
        del text
        return 0

    def blank_loaded(self) -> bool:
        positions = self._positions()
        with closing(self._open_reader()) as reader:
            for stream in reader.streams():
                reader.trim_now(stream, positions.get(stream, 0))
        return True
