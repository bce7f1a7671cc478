"""What a file holds: a summary of its items, or chunks of them, and the rows that its events become."""

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Final

import msgspec

from mauve.core.window import midnight_ms, today_at
from mauve.imports.items import Bad, Figures, ImportedEvent, Item, Money, Target
from mauve.stores.imports import Figure, ImportCounts, seq_of
from mauve.stores.ledger import Payment, SubscriptionVersion
from mauve.stores.warehouse import EventRows

BAD_SHOWN_MAX: Final = 10
_NAMES_MAX: Final = 10_000
_OTHER_NAMES: Final = "(other names)"
ROWS_PER_CHUNK: Final = 50_000
# The warehouse writes and syncs every month of an insert on its own. So rows in no order of time are stored in larger
# chunks, and the rows of a few years together: thousands of small parts would stall it, and keep the loader waiting.
ROWS_PER_MONTH: Final = 2_000
ROWS_PER_CHUNK_MAX: Final = 400_000
_MONTH_MS: Final = 2_629_746_000  # on average
_MONTHS_AT_ONCE: Final = 24
_BYTES_PER_CHUNK: Final = 16 * 1024 * 1024  # of props
# The ledger records a chunk in one transaction, in which no other payment can be recorded.
_ENTRIES_PER_CHUNK: Final = 1_000
# The project, the columns of text, each with its lengths, the times and the sequence numbers.
_DECODER: Final = msgspec.msgpack.Decoder(tuple[str, list[tuple[bytes, bytes]], bytes, bytes])


@dataclass(slots=True)
class FileSummary:
    """What a file holds. Rows that are known already are only found when they are stored."""

    rows: int = 0
    events: Counter[str] = field(default_factory=Counter)  # by name
    payments: int = 0
    subscriptions: int = 0
    figures: int = 0
    skipped: int = 0
    bad: int = 0
    first_bad: list[tuple[int, str]] = field(default_factory=list)  # row, reason
    revenue: Counter[str] = field(default_factory=Counter)  # by currency, in minor units
    volume: Counter[str] = field(default_factory=Counter)
    first_ms: int | None = None
    last_ms: int | None = None

    def add(self, item: Item) -> None:
        self.rows += 1
        if item.__class__ is ImportedEvent:
            is_listed = item.name in self.events or len(self.events) < _NAMES_MAX
            self.events[item.name if is_listed else _OTHER_NAMES] += 1
            self._add_time(item.at)
        elif isinstance(item, Money):
            self._add_money(item)
        elif isinstance(item, Figures):
            self.figures += len(item.figures)
            for figure in item.figures:
                self._add_time(midnight_ms(date.fromisoformat(figure.day)))
        elif isinstance(item, Bad):
            self.bad += 1
            if len(self.first_bad) < BAD_SHOWN_MAX:
                self.first_bad.append((self.rows, item.reason))
        else:
            self.skipped += 1

    @property
    def days(self) -> tuple[str, str] | None:
        """Return the first and the last day; None if there is nothing to import."""
        if self.first_ms is None or self.last_ms is None:
            return None
        return today_at(self.first_ms).isoformat(), today_at(self.last_ms).isoformat()

    def _add_money(self, money: Money) -> None:
        self.payments += len(money.payments)
        self.subscriptions += len(money.subscriptions)
        for payment in money.payments:
            (self.revenue if payment.earned else self.volume)[payment.currency] += payment.amount
            self._add_time(payment.occurred_at)
        for version in money.subscriptions:
            self._add_time(version.at // 1000)

    def _add_time(self, at_ms: int) -> None:
        if self.first_ms is None or at_ms < self.first_ms:
            self.first_ms = at_ms
        if self.last_ms is None or at_ms > self.last_ms:
            self.last_ms = at_ms


def summary_of(items: Iterator[Item]) -> FileSummary:
    summary = FileSummary()
    for item in items:
        summary.add(item)
    return summary


@dataclass(slots=True)
class Chunk:
    """Consecutive rows of a file."""

    first_row: int
    end_row: int
    events: list[ImportedEvent] = field(default_factory=list)
    event_rows: "array[int]" = field(default_factory=lambda: array("Q"))  # where each of them is in the file
    payments: list[Payment] = field(default_factory=list)
    subscriptions: list[SubscriptionVersion] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    skipped: int = 0
    bad: int = 0
    _bytes: int = 0
    _months: set[int] = field(default_factory=set)

    def add(self, item: Item) -> None:
        if item.__class__ is ImportedEvent:
            self.events.append(item)
            self.event_rows.append(self.end_row)
            self._bytes += len(item.props)
            self._months.add(item.at // _MONTH_MS)
        elif isinstance(item, Money):
            self.payments += item.payments
            self.subscriptions += item.subscriptions
        elif isinstance(item, Figures):
            self.figures += item.figures
        elif isinstance(item, Bad):
            self.bad += 1
        else:
            self.skipped += 1
        self.end_row += 1

    @property
    def is_full(self) -> bool:
        entries = len(self.payments) + len(self.subscriptions) + len(self.figures)
        rows_max = min(max(ROWS_PER_CHUNK, ROWS_PER_MONTH * len(self._months)), ROWS_PER_CHUNK_MAX)
        is_long = self.end_row - self.first_row >= rows_max
        return is_long or self._bytes >= _BYTES_PER_CHUNK or entries >= _ENTRIES_PER_CHUNK

    @property
    def counts(self) -> ImportCounts:
        """Return what is known before the rows are stored."""
        return ImportCounts(
            subscriptions=len(self.subscriptions), figures=len(self.figures), skipped=self.skipped, bad=self.bad
        )


def chunks_of(items: Iterator[Item], first_row: int) -> Iterator[Chunk]:
    """Yield the chunks from a row on. The same items always make the same chunks."""
    chunk = Chunk(first_row, first_row)
    for row, item in enumerate(items):
        if row < first_row:
            continue
        chunk.add(item)
        if chunk.is_full:
            yield chunk
            chunk = Chunk(chunk.end_row, chunk.end_row)
    if chunk.end_row > chunk.first_row:
        yield chunk


def rows_from(chunk: Chunk, target: Target) -> Iterator[EventRows]:
    """Yield the events as rows, those of a few years together."""
    periods: dict[int, list[int]] = {}
    for place, event in enumerate(chunk.events):
        periods.setdefault(event.at // (_MONTH_MS * _MONTHS_AT_ONCE), []).append(place)
    for _, places in sorted(periods.items()):
        yield _rows_at(places, chunk, target)


def _rows_at(places: Sequence[int], chunk: Chunk, target: Target) -> EventRows:
    """Return some events as rows. They count as received when they occurred: no page shows them as new."""
    rows, events = EventRows(), [chunk.events[place] for place in places]
    times = array("q", [event.at for event in events])
    rows.project = [target.project] * len(events)
    rows.name.extend([event.name for event in events])
    rows.received_at, rows.occurred_at = times, times
    rows.claimed_at.extend_empty(len(events))
    rows.user.extend([event.user for event in events])
    rows.id.extend([event.id for event in events])
    rows.props.extend_encoded([event.props for event in events])
    first = seq_of(target.number, 0)
    rows.seq = array("Q", [first + chunk.event_rows[place] for place in places])
    return rows


def packed(rows: EventRows) -> bytes:
    """Return the rows of a chunk as bytes, for another process of the same machine."""
    columns = (rows.name, rows.user, rows.id, rows.props)
    texts = [(b"".join(each.pieces), each.lengths.tobytes()) for each in columns]
    return msgspec.msgpack.encode((rows.project[0], texts, rows.occurred_at.tobytes(), rows.seq.tobytes()))


def unpacked(content: bytes) -> EventRows:
    """Return the rows that were packed."""
    rows = EventRows()
    project, texts, times, seqs = _DECODER.decode(content)
    for column, (text, lengths) in zip((rows.name, rows.user, rows.id, rows.props), texts, strict=True):
        column.pieces.append(text)
        column.lengths.frombytes(lengths)
    rows.seq.frombytes(seqs)
    rows.occurred_at.frombytes(times)
    rows.received_at = rows.occurred_at
    rows.claimed_at.extend_empty(len(rows))
    rows.project = [project] * len(rows)
    return rows
