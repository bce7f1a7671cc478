"""Decode log records into warehouse rows, and date them. Pure."""

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import compress
from typing import Final, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from mauve.core.batch import Batch, MalformedBatchError, is_publishable, unpacked
from mauve.core.times import FUTURE_MAX_MS, PAST_MAX_MS, known_time_ms, occurred_at
from mauve.core.window import period_of, today_at
from mauve.stores.ledger import Intent
from mauve.stores.log import LogRecord
from mauve.stores.warehouse import EventRows, SameId, first_seq

_NO_PROPS: Final = msgspec.Raw(b"")
_NULL_BYTES: Final = len(b"null")


class LoggedEvent(msgspec.Struct, frozen=True, gc=False):
    """An event that was validated before it was logged."""

    name: str
    user: str | None = None
    id: str | None = None
    at: str | int | None = None
    sent_at: str | int | None = None
    props: msgspec.Raw = _NO_PROPS


_many: Final = msgspec.json.Decoder(list[LoggedEvent])
_one: Final = msgspec.json.Decoder(LoggedEvent)


Records = list[tuple[int, LogRecord]]  # stream and record, in order of arrival


Unreadable = tuple[int, LogRecord, str]  # stream, record, reason


@dataclass(slots=True)
class LogRange:
    records: Records = field(default_factory=list)
    rows: EventRows = field(default_factory=EventRows)
    batches: list[Batch] = field(default_factory=list)  # without their items
    unreadable: list[Unreadable] = field(default_factory=list)
    is_last: bool = False  # the log held nothing more when it was read
    intent: Intent | None = None  # the unfinished range that it repeats
    suppressed: Mapping[str, int] = field(default_factory=dict)  # by project, see `suppressed_among`


def range_from(records: Records, *, is_last: bool = False) -> LogRange:
    """Decode records in order. List unreadable ones separately, so that they do not block the others."""
    log_range = LogRange(records, is_last=is_last)
    for stream, record in records:
        try:
            batch = unpacked(record.payload)
            events = _events_from(batch)
        except (MalformedBatchError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            log_range.unreadable.append((stream, record, str(error)))
        else:
            log_range.batches.append(batch._replace(event_count=len(events), items=b""))
            _append(log_range.rows, batch, events, first_seq(stream, record.number))
    return log_range


def repeats_among(rows: EventRows, same_ids: Iterable[SameId], stored: Mapping[int, bool], window_ms: int) -> set[int]:
    """Return the seqs of rows that repeat a counted id within the window.

    The first arrival counts. A row that is already stored keeps its earlier decision.
    """
    repeats = {seq for seq, counts in stored.items() if not counts}
    for places, counted_at in same_ids:
        counted = list(counted_at)
        for place in places:
            seq, received_at = rows.seq[place], rows.received_at[place]
            if seq not in stored and any(abs(received_at - each) < window_ms for each in counted):
                repeats.add(seq)
            elif seq not in repeats:
                counted.append(received_at)
    return repeats


def suppressed_among(
    rows: EventRows, same_ids: Iterable[SameId], repeats: set[int], window_ms: int
) -> Mapping[str, int]:
    """Count by project the repeats from server keys whose id counts for an event of a publishable key."""
    suppressed = Counter[str]()
    for places, counted_at in same_ids:
        counted = list(counted_at)
        for place in places:
            received_at = rows.received_at[place]
            if rows.seq[place] not in repeats:
                counted.append(received_at)
            elif not is_publishable(received_at):
                first = (each for each in counted if abs(received_at - each) < window_ms)
                suppressed[rows.project[place]] += any(map(is_publishable, first))
    return +suppressed


def usage_of(log_range: LogRange, repeats: set[int]) -> dict[tuple[str, str], int]:
    """Count events without repeats, by organization and billing period of receipt."""
    counts: dict[tuple[str, str], int] = {}
    place = 0
    for batch in log_range.batches:
        seqs = log_range.rows.seq[place : place + batch.event_count]
        place += batch.event_count
        key = (batch.org_id, period_of(batch.received_at))
        counts[key] = counts.get(key, 0) + batch.event_count - len(repeats.intersection(seqs) if repeats else ())
    return counts


def first_seen_of(batches: Iterable[Batch]) -> dict[str, int]:
    first: dict[str, int] = {}
    for batch in batches:
        first[batch.project] = min(batch.received_at, first.get(batch.project, batch.received_at))
    return first


def _events_from(batch: Batch) -> list[LoggedEvent]:
    is_array = batch.items[:1] == b"[" or batch.items.lstrip()[:1] == b"["
    return _many.decode(batch.items) if is_array else [_one.decode(batch.items)]


def _append(rows: EventRows, batch: Batch, events: list[LoggedEvent], seq: int) -> None:
    count = len(events)
    rows.project += [batch.project] * count
    rows.name.extend([event.name for event in events])
    rows.received_at.extend(_same(batch.received_at, count))
    rows.user.extend([event.user or "" for event in events])
    rows.id.extend([event.id or "" for event in events])
    rows.props.extend_encoded(_without_null([event.props for event in events]))
    rows.seq.frombytes(np.arange(seq, seq + count, dtype=np.uint64).tobytes())
    ats = [event.at for event in events]
    if ats.count(None) == count:
        rows.claimed_at.extend_empty(count)
        rows.occurred_at.extend(_same(batch.received_at, count))
    else:
        rows.claimed_at.extend(["" if at is None else str(at) for at in ats])
        rows.occurred_at.frombytes(_occurred_column(events, ats, batch.received_at).tobytes())


def _same(moment: int, count: int) -> "array[int]":
    return array("q", (moment,)) * count


def _without_null(props: list[msgspec.Raw]) -> list[msgspec.Raw]:
    if _NULL_BYTES not in map(len, props):
        return props  # The common case: no other useful value is four bytes long.
    return [_NO_PROPS if bytes(each) == b"null" else each for each in props]


def _occurred_column(events: list[LoggedEvent], ats: list[str | int | None], received_at: int) -> npt.NDArray[np.int64]:
    """Return when each event occurred: for one without a time, when it was received."""
    is_timed = [at is not None for at in ats]
    sent_ats = [event.sent_at for event in compress(events, is_timed)]
    moments = np.full(len(events), received_at, np.int64)
    moments[is_timed] = occurred_moments([at for at in ats if at is not None], sent_ats, received_at)
    return moments


Time: TypeAlias = str | int  # as the client wrote it, known to be valid

# The two common formats, by length: with and without milliseconds. Both end in Z.
_UNITS: Final = {len("2026-11-15T03:20:00.123Z"): "ms", len("2026-11-15T03:20:00Z"): "s"}


def occurred_moments(ats: Sequence[Time], sent_ats: Sequence[Time | None], received_at: int) -> npt.NDArray[np.int64]:
    """Return when each event with a time occurred: `core.times.occurred_at`, vectorized."""
    claims = _moments(ats)
    skews = _skews(sent_ats, received_at)
    if claims is None or skews is None:
        one_by_one = (_occurred_at(at, sent_at, received_at) for at, sent_at in zip(ats, sent_ats, strict=True))
        return np.fromiter(one_by_one, np.int64, len(ats))
    earliest, latest = received_at - PAST_MAX_MS, received_at + FUTURE_MAX_MS
    moments: npt.NDArray[np.int64] = np.clip(claims + skews, earliest, latest)
    return moments


def _occurred_at(at: Time, sent_at: Time | None, received_at: int) -> int:
    return occurred_at(known_time_ms(at), None if sent_at is None else known_time_ms(sent_at), received_at)


def _skews(sent_ats: Sequence[Time | None], received_at: int) -> npt.NDArray[np.int64] | int | None:
    """Return the correction of each claimed time; None if it needs the slow path. Usually a batch has one `sent_at`."""
    if sent_ats.count(sent_ats[0]) == len(sent_ats):
        return 0 if sent_ats[0] is None else _bounded(received_at - known_time_ms(sent_ats[0]))
    moments = None if None in sent_ats else _moments(sent_ats)
    return None if moments is None else received_at - moments


def _bounded(skew: int) -> int | None:
    return skew if abs(skew) < 2**60 else None


def _moments(times: Sequence[Time | None]) -> npt.NDArray[np.int64] | None:
    """Return the times if all have the same common format, else None."""
    try:
        joined = "".join(times)  # type: ignore[arg-type]  # a number among them raises
        size, count = len(joined) // len(times), len(times)
        unit = _UNITS.get(size)
        if unit is None or set(map(len, times)) != {size}:  # type: ignore[arg-type]  # all are strings by now
            return None
        if joined[10::size] != "T" * count or joined[size - 1 :: size] != "Z" * count:
            return None
        texts = np.frombuffer(joined.encode(), f"S{size}").astype(f"S{size - 1}")
        return texts.astype(f"M8[{unit}]").astype("M8[ms]").astype(np.int64)
    except (TypeError, ValueError):  # a number, or a leap second
        return None


def first_day_of(rows: EventRows) -> date:
    """Return the earliest day of the rows. There must be at least one row."""
    return today_at(int(np.frombuffer(rows.occurred_at, np.int64).min()))
