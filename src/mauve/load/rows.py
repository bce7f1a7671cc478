"""Records of the log → rows of the warehouse. Pure."""

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import compress
from typing import Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from mauve.core.batch import Batch, MalformedBatchError, unpacked
from mauve.core.period import period_of
from mauve.load.moments import occurred_moments
from mauve.stores.log import LogRecord
from mauve.stores.warehouse import EventRows, SameId, first_seq

_NO_PROPS: Final = msgspec.Raw(b"")
_NULL_BYTES: Final = len(b"null")


class LoggedEvent(msgspec.Struct, frozen=True, gc=False):
    """An event that was judged before it was logged: it is read, not judged again."""

    name: str
    user: str | None = None
    id: str | None = None
    at: str | int | None = None
    sent_at: str | int | None = None
    props: msgspec.Raw = _NO_PROPS


_many: Final = msgspec.json.Decoder(list[LoggedEvent])
_one: Final = msgspec.json.Decoder(LoggedEvent)


class LoggedBatch(NamedTuple):
    project: str
    org_id: str
    received_at: int
    event_count: int


@dataclass(slots=True)
class Range:
    """A stretch of the log on its way into the warehouse."""

    rows: EventRows = field(default_factory=EventRows)
    batches: list[LoggedBatch] = field(default_factory=list)
    unreadable: list[tuple[int, LogRecord, str]] = field(default_factory=list)  # stream, record, reason


def range_from(records: Iterable[tuple[int, LogRecord]]) -> Range:
    """Read records, in order. One that cannot be read is set aside and keeps no other from being loaded."""
    taken = Range()
    for stream, record in records:
        try:
            batch = unpacked(record.payload)
            events = _events_from(batch)
        except (MalformedBatchError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            taken.unreadable.append((stream, record, str(error)))
        else:
            taken.batches.append(LoggedBatch(batch.project, batch.org_id, batch.received_at, len(events)))
            _append(taken.rows, batch, events, first_seq(stream, record.number))
    return taken


def repeats_among(rows: EventRows, same_ids: Iterable[SameId], stored: Mapping[int, bool], window_ms: int) -> set[int]:
    """Return the seqs of rows that repeat an id within the window around one that counts.

    The first that arrived counts. A row that is stored already counts or not as was decided then.
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


def usage_of(taken: Range, repeats: set[int]) -> dict[tuple[str, str], int]:
    """Count the events that count, by organization and billing period of their arrival."""
    counts: dict[tuple[str, str], int] = {}
    place = 0
    for batch in taken.batches:
        seqs = taken.rows.seq[place : place + batch.event_count]
        place += batch.event_count
        key = (batch.org_id, period_of(batch.received_at))
        counts[key] = counts.get(key, 0) + batch.event_count - len(repeats.intersection(seqs) if repeats else ())
    return counts


def first_seen_of(batches: Iterable[LoggedBatch]) -> dict[str, int]:
    """Return the earliest arrival of each project."""
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
        rows.occurred_at.frombytes(_moments(events, ats, batch.received_at).tobytes())


def _same(moment: int, count: int) -> "array[int]":
    return array("q", (moment,)) * count


def _without_null(props: list[msgspec.Raw]) -> list[msgspec.Raw]:
    if _NULL_BYTES not in map(len, props):
        return props  # The common case: four bytes are too few for any other that says something.
    return [_NO_PROPS if bytes(each) == b"null" else each for each in props]


def _moments(events: list[LoggedEvent], ats: list[str | int | None], received_at: int) -> npt.NDArray[np.int64]:
    """Return when each event occurred: those that say nothing, when they were received."""
    is_timed = [at is not None for at in ats]
    sent_ats = [event.sent_at for event in compress(events, is_timed)]
    moments = np.full(len(events), received_at, np.int64)
    moments[is_timed] = occurred_moments([at for at in ats if at is not None], sent_ats, received_at)
    return moments
