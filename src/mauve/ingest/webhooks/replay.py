"""Replay events that a biller exported as if they were delivered, without signature and time limit."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final, Protocol

from mauve.ingest.webhooks.billers import parse_delivery
from mauve.ingest.webhooks.entries import Endpoint, as_claimed, map_delivery
from mauve.ingest.webhooks.parsed import DeliveryWarning, SkippedEvent
from mauve.stores.deliveries import DeliveryResult
from mauve.stores.ledger import Entry, Outcome, Payment

_ENTRIES_PER_TRANSACTION: Final = 500  # so that a running service can write in between
_LINES_REPORTED_MAX: Final = 10


class Recorder(Protocol):
    def record(self, entries: Sequence[Entry]) -> list[list[Outcome]]: ...


@dataclass(slots=True)
class Summary:
    """The result of a replay."""

    events: int = 0
    payments: int = 0  # rows, including those that were there before
    payments_new: int = 0
    conflicts: int = 0  # payments whose id belongs to a different payment: not recorded
    subscriptions: int = 0
    ignored: int = 0
    misdirected: int = 0  # among the ignored and unusable: they belong to the other environment
    unusable: int = 0
    unusable_lines: list[int] = field(default_factory=list)  # only the first few
    warnings: Counter[str] = field(default_factory=Counter)
    revenue: Counter[str] = field(default_factory=Counter)  # new, by currency, in minor units
    volume: Counter[str] = field(default_factory=Counter)


class DryRun:
    """Record nothing. A payment counts as new if it is the first with its id in the file."""

    def __init__(self) -> None:
        self._seen: dict[str, bytes] = {}

    def record(self, entries: Sequence[Entry]) -> list[list[Outcome]]:
        return [self._outcomes(entry.payments) for entry in entries]

    def _outcomes(self, payments: Sequence[Payment]) -> list[Outcome]:
        """Judge a payment with its parts: either all of them are new or none is."""
        if self._seen.keys().isdisjoint(payment.id for payment in payments):
            self._seen |= {payment.id: payment.digest for payment in payments}
            return [Outcome.ACCEPTED] * len(payments)
        is_same = (self._seen.get(payment.id) == payment.digest for payment in payments)
        return [Outcome.DUPLICATE if same else Outcome.CONFLICT for same in is_same]


def replay(lines: Iterable[bytes], endpoint: Endpoint, recorder: Recorder, now_ms: int) -> Summary:
    """Record one event per line. Repeating it changes nothing."""
    summary = Summary()
    entries = _entries_in(lines, endpoint, now_ms, summary)
    while group := list(islice(entries, _ENTRIES_PER_TRANSACTION)):
        for entry, outcomes in zip(group, recorder.record(group), strict=True):
            _add_to_summary(summary, entry, outcomes)
    return summary


def _entries_in(lines: Iterable[bytes], endpoint: Endpoint, now_ms: int, summary: Summary) -> Iterator[Entry]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        summary.events += 1
        parsed = parse_delivery(endpoint.provider, line, endpoint.environment)
        summary.misdirected += DeliveryWarning.PLANE_MISMATCH in parsed.event.warnings
        summary.warnings.update(parsed.event.warnings)
        if not isinstance(parsed.event, SkippedEvent):
            # The list of deliveries shows only what the biller itself delivered.
            yield replace(map_delivery(parsed, endpoint, now_ms, as_claimed).entry, delivery=None)
        elif parsed.event.result is DeliveryResult.UNUSABLE:
            summary.unusable += 1
            summary.unusable_lines = [*summary.unusable_lines, number][:_LINES_REPORTED_MAX]
        else:
            summary.ignored += 1


def _add_to_summary(summary: Summary, entry: Entry, outcomes: Sequence[Outcome]) -> None:
    summary.subscriptions += len(entry.subscriptions)
    conflicts = outcomes.count(Outcome.CONFLICT)
    summary.conflicts += conflicts
    summary.payments += len(entry.payments) - conflicts
    for payment, outcome in zip(entry.payments, outcomes, strict=True):
        if outcome is Outcome.ACCEPTED:
            summary.payments_new += 1
            (summary.revenue if payment.earned else summary.volume)[payment.currency] += payment.amount
