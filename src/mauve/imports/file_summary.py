"""Read a whole file without storing anything: what it holds, and which rows cannot be imported."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from typing import Final

from mauve.core.window import midnight_ms, today_at
from mauve.imports.items import Bad, Figures, ImportedEvent, Item, Money

BAD_SHOWN_MAX: Final = 10
_NAMES_MAX: Final = 10_000
_OTHER_NAMES: Final = "(other names)"


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
