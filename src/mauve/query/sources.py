"""How each source is asked: the only place where a metric meets a store."""

from collections.abc import Iterable
from typing import Final, assert_never

from mauve.core.window import today_at
from mauve.metrics.answers import Row
from mauve.metrics.mrr_history import mrr_by_day, steps_end_at
from mauve.metrics.questions import Question
from mauve.metrics.sources import (
    CurrentMrr,
    EventCount,
    EventDays,
    EventNames,
    LedgerSource,
    MrrHistory,
    PaymentTotals,
    Users,
    UsersByDay,
    WarehouseSource,
)
from mauve.stores.ledger import LedgerReader
from mauve.stores.warehouse import WarehouseReader

NAMES_MAX: Final = 10_000  # of event_names, the most frequent: clients choose names, and so how many there are


def rows_for(question: Question, warehouse: WarehouseReader, ledger: LedgerReader, now_ms: int) -> Iterable[Row]:
    """Read what was asked for; the rows have the metric's columns."""
    source = question.metric.source
    if isinstance(source, WarehouseSource):
        return _counted(source, question, warehouse)
    return _paid(source, question, ledger, now_ms)


def _counted(source: WarehouseSource, question: Question, warehouse: WarehouseReader) -> Iterable[Row]:
    project, window, name = question.project, question.window, question.name or ""
    match source:
        case Users(seen):
            return [(warehouse.users(project, seen, window),)]
        case UsersByDay(seen):
            return warehouse.users_by_day(project, seen, window)
        case EventNames():
            return warehouse.event_names(project, window, NAMES_MAX)
        case EventCount():
            return [(name, warehouse.event_count(project, name, window))]
        case EventDays():
            return warehouse.event_days(project, name, window)
        case _:
            assert_never(source)


def _paid(source: LedgerSource, question: Question, ledger: LedgerReader, now_ms: int) -> Iterable[Row]:
    project, window = question.project, question.window
    match source:
        case PaymentTotals(earned):
            return ledger.day_totals(project, window.first.isoformat(), window.last.isoformat(), earned)
        case CurrentMrr():
            return ledger.current_mrr(project)
        case MrrHistory():
            steps = ledger.mrr_steps(project, before=steps_end_at(window, now_ms * 1000))
            return mrr_by_day(steps, window, today_at(now_ms))
        case _:
            assert_never(source)
