"""Read each source: the only place where a metric meets a store."""

from collections.abc import Generator, Iterable
from contextlib import closing
from datetime import date
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import assert_never

from mauve.core.events import Activity
from mauve.core.window import DAY, Window, today_at, whole_weeks_in
from mauve.metrics.questions import QuestionBatch, Row
from mauve.metrics.registry import (
    NAMES_MAX,
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
from mauve.metrics.summaries import days_known, mrr_by_day
from mauve.query import ReadStores
from mauve.stores import StoreUnavailableError
from mauve.stores.ledger.reader import LedgerReader

RowsByProject = Generator[tuple[str, Iterable[Row]], None, None]


def rows_by_project(batch: QuestionBatch, stores: ReadStores, now_ms: int) -> RowsByProject:
    """Read the rows of all projects at once, with the metric's columns.

    Rows are read lazily: consume those of a project before asking for the next. Close the generator to stop reading.
    """
    missing = dict.fromkeys(batch.projects)
    with closing(_rows_found(batch, stores, now_ms)) as found:
        for project, rows in found:
            del missing[project]
            yield project, rows
    for project in missing:
        yield project, ()


def _rows_found(batch: QuestionBatch, stores: ReadStores, now_ms: int) -> RowsByProject:
    source = batch.metric.source
    if isinstance(source, WarehouseSource):
        return _from_warehouse(source, batch, stores)
    return _from_ledger(source, batch, stores, now_ms)


def _from_warehouse(source: WarehouseSource, batch: QuestionBatch, stores: ReadStores) -> RowsByProject:
    projects, window, name = batch.projects, batch.window, batch.name or ""
    warehouse = stores.warehouse
    match source:
        case Users(seen):
            users = warehouse.users(projects, seen, window, _summarized_weeks(window, stores))
            return ((project, [(users.get(project, 0),)]) for project in projects)
        case UsersByDay(seen):
            return _grouped(_users_by_day(batch, seen, stores))
        case EventNames():  # One more than is shown, to know whether there are more.
            return ((project, warehouse.event_names(project, window, NAMES_MAX + 1)) for project in projects)
        case EventCount():
            return ((project, [(name, warehouse.event_count(project, name, window))]) for project in projects)
        case EventDays():
            return ((project, warehouse.event_days(project, name, window)) for project in projects)
        case _:
            assert_never(source)


def _summarized_weeks(window: Window, stores: ReadStores) -> Window | None:
    try:
        through = stores.closed_days.through()
    except StoreUnavailableError:  # The sketches of all days give the same result, more slowly.
        through = None
    return None if through is None else whole_weeks_in(Window(window.first, min(window.last, through)))


def _users_by_day(batch: QuestionBatch, seen: Activity, stores: ReadStores) -> list[tuple[str, str, int]]:
    """Return the stored numbers of closed days, and count the users of the others."""
    first, last = batch.window
    try:
        through, closed = stores.closed_days.users(batch.projects, seen, batch.window)
    except StoreUnavailableError:
        through, closed = None, []
    if through is not None and through >= last:
        return closed
    first_open = first if through is None or through < first else through + DAY
    counted = stores.warehouse.users_by_day(batch.projects, seen, Window(first_open, last))
    return sorted(closed + counted, key=itemgetter(0))  # Stable: the days of each project keep their order.


def _from_ledger(source: LedgerSource, batch: QuestionBatch, stores: ReadStores, now_ms: int) -> RowsByProject:
    ledger = stores.ledger
    match source:
        case PaymentTotals():
            return _payment_totals(batch, ledger, source)
        case CurrentMrr():
            return _grouped(ledger.current_mrr(batch.projects))
        case MrrHistory():
            return _mrr_history(batch, ledger, today_at(now_ms))
        case _:
            assert_never(source)


def _mrr_history(batch: QuestionBatch, ledger: LedgerReader, today: date) -> RowsByProject:
    """Return the MRR by day. Today's is the current MRR, for which the latest version counts whatever its moment."""
    known = days_known(batch.window, today)
    if known is None:
        return
    changes_of = ledger.mrr_changes_until_now if known.last == today else ledger.mrr_changes
    with closing(changes_of(batch.projects, known)) as changes:
        for project, own in groupby(changes, attrgetter("project")):
            yield project, mrr_by_day(own, known)


def _payment_totals(batch: QuestionBatch, ledger: LedgerReader, source: PaymentTotals) -> RowsByProject:
    with closing(ledger.day_totals(batch.projects, batch.window, source.earned)) as totals:
        yield from _grouped(totals)


def _grouped(rows: Iterable[tuple[str, *tuple[str | int, ...]]]) -> RowsByProject:
    """Group the rows, which are ordered by project."""
    for project, own in groupby(rows, itemgetter(0)):
        yield project, (row[1:] for row in own)
