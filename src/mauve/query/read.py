"""How each source is asked: the only place where a metric meets a store."""

from collections.abc import Generator, Iterable
from contextlib import closing
from datetime import date
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import assert_never

from mauve.core.events import Activity
from mauve.core.window import DAY, Window, today_at, whole_weeks_in
from mauve.metrics.answers import Row
from mauve.metrics.mrr_history import days_known, mrr_by_day
from mauve.metrics.questions import Survey
from mauve.metrics.registry import NAMES_MAX
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
from mauve.query.parts import ReadStores
from mauve.stores import StoreUnavailableError
from mauve.stores.ledger import LedgerReader

RowsByProject = Generator[tuple[str, Iterable[Row]], None, None]


def rows_by_project(survey: Survey, stores: ReadStores, now_ms: int) -> RowsByProject:
    """Read what was asked for, of all projects at once; the rows have the metric's columns.

    Rows are read while they are taken: those of a project are to be taken before the next project is asked for. Who
    takes no more closes it, and no more is read.
    """
    missing = dict.fromkeys(survey.projects)
    with closing(_found(survey, stores, now_ms)) as found:
        for project, rows in found:
            del missing[project]
            yield project, rows
    for project in missing:
        yield project, ()


def _found(survey: Survey, stores: ReadStores, now_ms: int) -> RowsByProject:
    source = survey.metric.source
    if isinstance(source, WarehouseSource):
        return _counted(source, survey, stores)
    return _paid(source, survey, stores, now_ms)


def _counted(source: WarehouseSource, survey: Survey, stores: ReadStores) -> RowsByProject:
    projects, window, name = survey.projects, survey.window, survey.name or ""
    warehouse = stores.warehouse
    match source:
        case Users(seen):
            users = warehouse.users(projects, seen, window, _weeks_summed_up(window, stores))
            return ((project, [(users.get(project, 0),)]) for project in projects)
        case UsersByDay(seen):
            return _apart(_users_by_day(survey, seen, stores))
        case EventNames():  # One more than are given: so it can be told that there are more.
            return ((project, warehouse.event_names(project, window, NAMES_MAX + 1)) for project in projects)
        case EventCount():
            return ((project, [(name, warehouse.event_count(project, name, window))]) for project in projects)
        case EventDays():
            return ((project, warehouse.event_days(project, name, window)) for project in projects)
        case _:
            assert_never(source)


def _weeks_summed_up(window: Window, stores: ReadStores) -> Window | None:
    try:
        through = stores.closed_days.through()
    except StoreUnavailableError:  # The sketches of all days are there, it only takes longer.
        through = None
    return None if through is None else whole_weeks_in(Window(window.first, min(window.last, through)))


def _users_by_day(survey: Survey, seen: Activity, stores: ReadStores) -> list[tuple[str, str, int]]:
    """Return the numbers of closed days as they were found then, and count the users of the others."""
    first, last = survey.window
    try:
        through, closed = stores.closed_days.users(survey.projects, seen, survey.window)
    except StoreUnavailableError:
        through, closed = None, []
    if through is not None and through >= last:
        return closed
    first_open = first if through is None or through < first else through + DAY
    counted = stores.warehouse.users_by_day(survey.projects, seen, Window(first_open, last))
    return sorted(closed + counted, key=itemgetter(0))  # Stable: the days of each project stay in their order.


def _paid(source: LedgerSource, survey: Survey, stores: ReadStores, now_ms: int) -> RowsByProject:
    ledger = stores.ledger
    match source:
        case PaymentTotals():
            return _payment_totals(survey, ledger, source)
        case CurrentMrr():
            return _apart(ledger.current_mrr(survey.projects))
        case MrrHistory():
            return _mrr_history(survey, ledger, today_at(now_ms))
        case _:
            assert_never(source)


def _mrr_history(survey: Survey, ledger: LedgerReader, today: date) -> RowsByProject:
    """Today's rows are the MRR as it is now, and for that the latest version counts, whatever moment it names."""
    known = days_known(survey.window, today)
    if known is None:
        return
    changes_of = ledger.mrr_changes_until_now if known.last == today else ledger.mrr_changes
    with closing(changes_of(survey.projects, known)) as changes:
        for project, own in groupby(changes, attrgetter("project")):
            yield project, mrr_by_day(own, known)


def _payment_totals(survey: Survey, ledger: LedgerReader, source: PaymentTotals) -> RowsByProject:
    with closing(ledger.day_totals(survey.projects, survey.window, source.earned)) as totals:
        yield from _apart(totals)


def _apart(rows: Iterable[tuple[str, *tuple[str | int, ...]]]) -> RowsByProject:
    """Give each project its rows, which come together."""
    for project, own in groupby(rows, itemgetter(0)):
        yield project, (row[1:] for row in own)
