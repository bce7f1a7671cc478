"""How each source is asked: the only place where a metric meets a store."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import groupby
from operator import attrgetter
from typing import Final, assert_never

from mauve.core.people import Seen
from mauve.core.window import DAY, Window, today_at, whole_weeks_in
from mauve.metrics.answers import Row
from mauve.metrics.mrr_history import mrr_by_day, steps_end_at
from mauve.metrics.questions import Survey
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
from mauve.stores.unavailable import StoreUnavailableError

NAMES_MAX: Final = 10_000  # of event_names, the most frequent: clients choose names, and so how many there are

RowsByProject = Mapping[str, Iterable[Row]]


def rows_by_project(survey: Survey, stores: ReadStores, now_ms: int) -> RowsByProject:
    """Read what was asked for, of all projects at once; the rows have the metric's columns."""
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
            return {project: [(users.get(project, 0),)] for project in projects}
        case UsersByDay(seen):
            return _apart(survey, _users_by_day(survey, seen, stores))
        case EventNames():
            return {project: warehouse.event_names(project, window, NAMES_MAX) for project in projects}
        case EventCount():
            return {project: [(name, warehouse.event_count(project, name, window))] for project in projects}
        case EventDays():
            return {project: warehouse.event_days(project, name, window) for project in projects}
        case _:
            assert_never(source)


def _weeks_summed_up(window: Window, stores: ReadStores) -> Window | None:
    try:
        through = stores.closed_days.through()
    except StoreUnavailableError:  # The sketches of all days are there, it only takes longer.
        through = None
    return None if through is None else whole_weeks_in(Window(window.first, min(window.last, through)))


def _users_by_day(survey: Survey, seen: Seen, stores: ReadStores) -> list[tuple[str, str, int]]:
    """Return the numbers of closed days as they were found then, and count the users of the others."""
    first, last = survey.window
    try:
        through, closed = stores.closed_days.users(survey.projects, seen, survey.window)
    except StoreUnavailableError:
        through, closed = None, []
    if through is not None and through >= last:
        return closed
    first_open = first if through is None or through < first else through + DAY
    # Stable: the days of each project stay in their order.
    return closed + stores.warehouse.users_by_day(survey.projects, seen, Window(first_open, last))


def _paid(source: LedgerSource, survey: Survey, stores: ReadStores, now_ms: int) -> RowsByProject:
    projects, window, ledger = survey.projects, survey.window, stores.ledger
    match source:
        case PaymentTotals(earned):
            return _apart(survey, ledger.day_totals(projects, window, earned))
        case CurrentMrr():
            return _apart(survey, ledger.current_mrr(projects))
        case MrrHistory():
            today = today_at(now_ms)
            by_project = groupby(ledger.mrr_steps(projects, steps_end_at(window, today)), attrgetter("project"))
            days = {project: list(mrr_by_day(own, window, today)) for project, own in by_project}
            return {project: days.get(project, []) for project in projects}
        case _:
            assert_never(source)


def _apart(survey: Survey, rows: Iterable[tuple[str, *tuple[str | int, ...]]]) -> RowsByProject:
    """Give each project its rows, in their order."""
    found: dict[str, list[Row]] = defaultdict(list)
    for project, *row in rows:
        found[project].append(tuple(row))
    return {project: found[project] for project in survey.projects}
