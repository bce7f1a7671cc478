"""The tools, each a function of a reader and its arguments. Names of apps and events are data: only JSON holds them."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, Final

from mauve.agents.arguments import (
    APPS_MAX,
    AppsArguments,
    Arguments,
    CompareArguments,
    ExplainArguments,
    OverviewArguments,
    ReadArguments,
)
from mauve.agents.reader import Allowance, ListedApp, Query, RefusedError, Share
from mauve.agents.spending import READS_UNASKED_MAX, Readings, check_cost, choose_apps, page_of, read_all, receipt
from mauve.core.credential import Scope
from mauve.core.times import utc_instant
from mauve.core.window import Window
from mauve.metrics.registry import METRICS
from mauve.metrics.summaries import Rows, amounts_of, compared_days, mrr_on, rows_in

if TYPE_CHECKING:
    from mauve.agents.http_reader import HttpReader

DAYS_MAX: Final = 731
_EARLIEST: Final = date(1975, 1, 1)  # The period before must be a valid range in every store.
Money = dict[str, int]  # minor units by currency
_LISTED_MAX: Final = 100
_CHANGES_MAX: Final = 8
Answer = dict[str, Any]
_APPS: Final = frozenset({Scope.APPS_READ})
_METRICS: Final = frozenset({Scope.METRICS_READ})
_FAN_OUT: Final = (
    f"apps: project ids, default all, {APPS_MAX} per call, then after=next_after. "
    f"Above {READS_UNASKED_MAX} reads it answers only the cost: call again with spend."
)


def window_of(first: date | None, last: date | None, today: date) -> Window:
    """Return the requested period; by default the 30 days that end today, or on the last day given."""
    last = last or today
    first = first or max(last, _EARLIEST) - timedelta(days=29)  # There may be no date 29 days before the last.
    window = Window(first, last)
    if not _EARLIEST <= first <= last:
        advice = f"give date_from and date_to in order, none before {_EARLIEST}"
        raise RefusedError(f"the period from {first} to {last} is not valid: {advice}")
    if window.length > DAYS_MAX:
        raise RefusedError(f"the period has {window.length} days: give at most {DAYS_MAX}")
    return window


def compared_periods(window: Window, today: date) -> tuple[Window, Window]:
    """Return the whole days of a period, and the same days of the period before."""
    compared = compared_days(window, today)
    if compared is None:
        raise RefusedError(f"the period has no whole day before today, {today}: give an earlier date_from")
    return compared


def value_of(metric: str, rows: Rows, window: Window) -> int | float | Money:
    """Return one value for a window: a sum by currency, a count, or the average of a count per day."""
    amounts = amounts_of(metric, rows, window)
    if None not in amounts:
        return {currency: amount for currency, amount in amounts.items() if currency is not None}
    return amounts[None] / 10 if metric == "dau" else amounts[None]


def now_and_before(now: object, before: object) -> object:
    """Pair two values; sums of money by currency, with zero for a currency that only the other has."""
    if not (isinstance(now, Mapping) and isinstance(before, Mapping)):
        return {"now": now, "before": before}
    currencies = sorted({*now, *before})
    return {each: {"now": now.get(each, 0), "before": before.get(each, 0)} for each in currencies}


def mrr_changes(rows: Rows, window: Window) -> list[tuple[date, str, int]]:
    """Return the changes of MRR on the days of a window: (day, currency, change)."""
    levels = {(date.fromisoformat(row["day"]), row["currency"]): row["mrr"] for row in rows}
    currencies = sorted({currency for _, currency in levels})
    changes = []
    for day in window.days:
        for currency in currencies:
            before = levels.get((day - timedelta(days=1), currency), 0)
            change = levels.get((day, currency), 0) - before
            if change:
                changes.append((day, currency, change))
    return changes


async def list_apps(reader: "HttpReader", _: Allowance, arguments: AppsArguments) -> Answer:
    shown, rest = page_of(await reader.apps(), arguments.after, _LISTED_MAX)
    return {"apps": [_listed(app) for app in shown], **rest}


def _listed(app: ListedApp) -> Answer:
    first_event = None if app.first_event_at is None else utc_instant(app.first_event_at)
    return {"project": app.public_id, "name": app.name, "type": app.type, "first_event": first_event}


async def show_allowance(_: "HttpReader", allowance: Allowance, __: Arguments) -> Answer:
    def shown(share: Share | None) -> Answer:
        return {} if share is None else {"left": share.left, "limit": share.limit}

    return {
        "queries": shown(allowance.queries),
        "raw_scans": shown(allowance.raw_scans),
        "reads_this_minute": shown(allowance.reads),
        "resets_at": allowance.resets_at,
        "scopes": allowance.scopes,
    }


async def read_metric(reader: "HttpReader", allowance: Allowance, arguments: ReadArguments) -> Answer:
    """Answer as the API does, in columns. A spent allowance is the API's own refusal: cached answers are still free."""
    query = Query(arguments.project, arguments.metric, arguments.date_from, arguments.date_to, arguments.name)
    readings = await read_all(reader, [query])
    reading = readings.found[query]
    columns = METRICS[arguments.metric].columns
    # Of days, the latest matter; other rows are sorted by what matters.
    shown = reading.rows[-arguments.rows :] if columns[0] == "day" else reading.rows[: arguments.rows]
    left_out = len(reading.rows) - len(shown)
    return {
        "project": arguments.project,
        "metric": arguments.metric,
        "date_from": reading.date_from,
        "date_to": reading.date_to,
        "columns": columns,
        "rows": [[row[column] for column in columns] for row in shown],
        **({"rows_left_out": left_out} if left_out else {}),
        **({"service_left_out_rows_after": reading.cut_at} if reading.cut_at is not None else {}),
        **receipt(readings, allowance),
    }


async def overview(reader: "HttpReader", allowance: Allowance, arguments: OverviewArguments) -> Answer:
    today = allowance.today
    window = Window(today - timedelta(days=arguments.days - 1), today)
    chosen = await choose_apps(reader, allowance, arguments.apps, arguments.after)
    compared = compared_periods(window, today)
    asked = {project: _overview_queries(project, window, compared) for project in chosen.names}
    queries = [query for each in asked.values() for reads in each.values() for query in reads]
    check_cost(queries, arguments.spend, allowance)
    readings = await read_all(reader, queries)
    apps = [
        {"project": project, "name": chosen.names[project], **_overview_figures(reads, readings, window, compared)}
        for project, reads in asked.items()
    ]
    return {**_periods(*compared), "apps": apps, **chosen.rest, **receipt(readings, allowance)}


def _overview_queries(project: str, window: Window, compared: tuple[Window, Window]) -> dict[str, list[Query]]:
    """Return the reads about one app. Money of both periods is one read: it adds up, unlike numbers of users."""
    now, before = compared
    users = {metric: [Query(project, metric, *each) for each in compared] for metric in ("mau", "signups")}
    revenue = Query(project, "revenue", before.first, now.last)
    return {**users, "revenue": [revenue], "mrr": [Query(project, "mrr_history", window.before.last, window.last)]}


def _overview_figures(
    asked: dict[str, list[Query]], readings: Readings, window: Window, compared: tuple[Window, Window]
) -> Answer:
    """Return the figures of one app. The window ends today, whose MRR is the current one; `compared` are whole days."""

    def users(metric: str) -> object:
        pairs = zip(asked[metric], compared, strict=True)
        return now_and_before(*(_amount(readings, query, each) for query, each in pairs))

    revenue, mrr = (readings.found.get(asked[metric][0]) for metric in ("revenue", "mrr"))
    sums = [] if revenue is None else [value_of("revenue", rows_in(revenue.rows, each), each) for each in compared]
    levels = [] if mrr is None else [mrr_on(each.last, mrr.rows) for each in (window, window.before)]
    return {
        "mau": users("mau"),
        "signups": users("signups"),
        "revenue": now_and_before(*sums) if sums else None,
        "mrr": now_and_before(*levels) if levels else None,
    }


async def compare(reader: "HttpReader", allowance: Allowance, arguments: CompareArguments) -> Answer:
    now, before = _compared(arguments, allowance.today)
    chosen = await choose_apps(reader, allowance, arguments.apps, arguments.after)
    name = arguments.name if METRICS[arguments.metric].needs_name else None
    if METRICS[arguments.metric].needs_name and not name:
        raise RefusedError(f"{arguments.metric} needs name: give the event to count")

    def asked(project: str, window: Window) -> Query:
        return Query(project, arguments.metric, *window, name)

    queries = [asked(project, window) for project in chosen.names for window in (now, before)]
    check_cost(queries, arguments.spend, allowance)
    readings = await read_all(reader, queries)

    def pair(project: str) -> object:
        return now_and_before(*(_amount(readings, asked(project, window), window) for window in (now, before)))

    apps = [{"project": project, "name": called, "value": pair(project)} for project, called in chosen.names.items()]
    return {
        "metric": arguments.metric,
        **({"event": name} if name else {}),
        **_periods(now, before),
        "apps": apps,
        **chosen.rest,
        **receipt(readings, allowance),
    }


def _compared(arguments: CompareArguments, today: date) -> tuple[Window, Window]:
    """Return the whole days of both periods."""
    now, before = compared_periods(window_of(arguments.date_from, arguments.date_to, today), today)
    if arguments.before_from is None and arguments.before_to is None:
        return now, before
    if arguments.before_from is None or arguments.before_to is None:
        raise RefusedError("give both before_from and before_to, or neither for the period before")
    return now, compared_periods(window_of(arguments.before_from, arguments.before_to, today), today)[0]


async def explain_mrr(reader: "HttpReader", allowance: Allowance, arguments: ExplainArguments) -> Answer:
    window = window_of(arguments.date_from, arguments.date_to, allowance.today)
    known = Window(window.first, max(window.first, min(window.last, allowance.today)))
    chosen = await choose_apps(reader, allowance, arguments.apps, arguments.after)
    asked = {
        project: Query(project, "mrr_history", known.first - timedelta(days=1), known.last) for project in chosen.names
    }
    check_cost(list(asked.values()), arguments.spend, allowance)
    readings = await read_all(reader, asked.values())
    apps: list[Answer] = []
    changes: list[tuple[date, str, int, str]] = []
    for project, query in asked.items():
        reading = readings.found.get(query)
        rows = [] if reading is None else reading.rows
        mrr = None if reading is None else now_and_before(*_levels(rows, known))
        apps.append({"project": project, "name": chosen.names[project], "mrr": mrr})
        changes += [(*change, project) for change in mrr_changes(rows, known)]
    changes.sort(key=lambda change: (-abs(change[2]), change))
    largest = [
        {"day": day, "project": project, "currency": currency, "change": change}
        for day, currency, change, project in changes[:_CHANGES_MAX]
    ]
    left_out = {"smaller_changes": len(changes) - len(largest)} if len(changes) > len(largest) else {}
    period = {"period": [known.first, known.last], "before": known.first - timedelta(days=1)}
    found = {"apps": apps, "largest_changes": largest, **left_out}
    return {**period, **found, **chosen.rest, **receipt(readings, allowance)}


def _levels(rows: Rows, window: Window) -> tuple[Money, Money]:
    return mrr_on(window.last, rows), mrr_on(window.first - timedelta(days=1), rows)


def _amount(readings: Readings, query: Query, window: Window) -> object:
    reading = readings.found.get(query)
    return None if reading is None else value_of(query.metric, reading.rows, window)


def _periods(now: Window, before: Window) -> Answer:
    return {"period": list(now), "before": list(before)}


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    scopes: frozenset[Scope]  # that a token needs to see it
    arguments: type[Arguments]
    call: "Callable[[HttpReader, Allowance, Any], Awaitable[Answer]]"
    description: str


TOOLS: Final = (
    Tool("list_apps", _APPS, AppsArguments, list_apps, "The apps and their project ids. Free."),
    Tool(
        "overview",
        _APPS | _METRICS,
        OverviewArguments,
        overview,
        "MAU, signups and revenue of each app in the last whole days against those before; MRR now. 6 reads per app. "
        + _FAN_OUT,
    ),
    Tool(
        "read_metric",
        _METRICS,
        ReadArguments,
        read_metric,
        "One metric of one project, as rows; default the last 30 days. 1 read. event_count and event_series need name, "
        "an event; with event_names they also spend raw scans.",
    ),
    Tool(
        "compare",
        _METRICS,
        CompareArguments,
        compare,
        "One metric of each app in the whole days of a period against the one before, or before_from to before_to; dau "
        "is the average per day. 2 reads per app. " + _FAN_OUT,
    ),
    Tool(
        "explain_mrr",
        _METRICS,
        ExplainArguments,
        explain_mrr,
        "Which apps and days moved MRR in a period. 1 read per app. " + _FAN_OUT,
    ),
    Tool("allowance", _METRICS, Arguments, show_allowance, "Reads that are left, and until when. Free."),
)


def visible_tools(scopes: Collection[str]) -> list[Tool]:
    return [tool for tool in TOOLS if tool.scopes <= set(scopes)]
