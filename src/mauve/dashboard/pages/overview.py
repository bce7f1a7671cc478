"""The start page: the figures of every app in a table, and their totals."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from starlette.responses import Response

from mauve.core.app import App
from mauve.core.window import today_at
from mauve.dashboard.charts.figures import Figure, Figures, ProjectQuestions, figures_from, sum_figures
from mauve.dashboard.charts.periods import period_from
from mauve.dashboard.context import MemberContext
from mauve.dashboard.rendering import page
from mauve.dashboard.selection import environment_of, project_of


@dataclass(frozen=True, slots=True)
class AppRow:
    """One app and its figures."""

    app: App
    figures: Figures


def show_overview(context: MemberContext) -> Response:
    environment, today = environment_of(context), today_at(context.now_ms)
    period = period_from(context.query, today)
    apps = context.control.catalog.apps.all_of(context.organization.org_id)
    questions = {
        app: ProjectQuestions(project, period, today) for app in apps if (project := project_of(app, environment))
    }
    answers = context.parts.numbers.ask(question for each in questions.values() for question in each.for_figures)
    rows = [AppRow(app, figures_from(each, answers)) for app, each in questions.items()]
    sort = context.asked("sort") if context.asked("sort") in SORTS else "name"
    return page(
        context,
        "overview.html",
        apps=apps,
        rows=sorted(rows, key=SORTS[sort](rows)),
        totals=totals_of(rows),
        period=period,
        environment=environment,
        sort=sort,
        answers=answers,
        has_test_environment=any(app.test_public_id for app in apps),
    )


def totals_of(rows: Sequence[AppRow]) -> Figures:
    """Add up the apps. A user of two apps counts twice; different currencies are never added up."""
    figures = [row.figures for row in rows]
    return Figures(
        mau=_total(each.mau for each in figures),
        dau=_total(each.dau for each in figures),
        signups=_total(each.signups for each in figures),
        revenue=_money_total(each.revenue for each in figures),
        mrr=_money_total(each.mrr for each in figures),
    )


def _total(figures: Iterable[Figure | None]) -> Figure | None:
    """Return the sum; None if a part of it is unknown."""
    known = list(figures)
    return sum_figures([each for each in known if each is not None]) if None not in known else None


def _money_total(several: Iterable[Sequence[Figure] | None]) -> list[Figure] | None:
    known = list(several)
    if None in known:
        return None
    figures = [figure for each in known if each is not None for figure in each]
    currencies = sorted({figure.currency or "" for figure in figures})
    return [sum_figures([each for each in figures if each.currency == currency]) for currency in currencies]


SortKey = Callable[[AppRow], tuple[object, ...]]


def _by_name(_rows: Sequence[AppRow]) -> SortKey:
    return lambda row: (row.app.name.casefold(), row.app.app_id)


def _by_count(field: str) -> Callable[[Sequence[AppRow]], SortKey]:
    """Sort by a count, highest first; unknown counts come last."""

    def key_for(_rows: Sequence[AppRow]) -> SortKey:
        def key(row: AppRow) -> tuple[object, ...]:
            figure: Figure | None = getattr(row.figures, field)
            return (-figure.now if figure else 1, row.app.name.casefold(), row.app.app_id)

        return key

    return key_for


def _by_money(field: str) -> Callable[[Sequence[AppRow]], SortKey]:
    """Sort by the amount in the most common currency, highest first, then by the next currency."""

    def key_for(rows: Sequence[AppRow]) -> SortKey:
        found = Counter(figure.currency for row in rows for figure in getattr(row.figures, field) or ())
        order = [currency for currency, _ in sorted(found.items(), key=lambda item: (-item[1], item[0] or ""))]

        def key(row: AppRow) -> tuple[object, ...]:
            amounts = {figure.currency: figure.now for figure in getattr(row.figures, field) or ()}
            return (*(-amounts.get(currency, 0) for currency in order), row.app.name.casefold(), row.app.app_id)

        return key

    return key_for


SORTS: Final[Mapping[str, Callable[[Sequence[AppRow]], SortKey]]] = MappingProxyType(
    {
        "name": _by_name,
        "mau": _by_count("mau"),
        "dau": _by_count("dau"),
        "signups": _by_count("signups"),
        "revenue": _by_money("revenue"),
        "mrr": _by_money("mrr"),
    }
)
