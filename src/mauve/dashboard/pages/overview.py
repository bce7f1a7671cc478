"""What opens first: the figures of every app, side by side, and what they come to."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from starlette.responses import Response

from mauve.core.app import App
from mauve.core.window import today_at
from mauve.dashboard.charts.figures import Asked, Figure, Figures, added_figures, figures_from
from mauve.dashboard.charts.periods import period_from
from mauve.dashboard.context import MemberContext
from mauve.dashboard.rendering import page
from mauve.dashboard.selection import environment_of, project_of


@dataclass(frozen=True, slots=True)
class Line:
    """One app and its figures."""

    app: App
    figures: Figures


def show_overview(context: MemberContext) -> Response:
    environment, today = environment_of(context), today_at(context.now_ms)
    period = period_from(context.query, today)
    apps = context.control.catalog.apps.all_of(context.organization.org_id)
    asked = {app: Asked(project, period, today) for app in apps if (project := project_of(app, environment))}
    readings = context.parts.numbers.ask(question for each in asked.values() for question in each.questions)
    lines = [Line(app, figures_from(each, readings)) for app, each in asked.items()]
    sort = context.asked("sort") if context.asked("sort") in SORTS else "name"
    return page(
        context,
        "overview.html",
        apps=apps,
        lines=sorted(lines, key=SORTS[sort](lines)),
        totals=totals_of(lines),
        period=period,
        environment=environment,
        sort=sort,
        readings=readings,
        has_test_environment=any(app.test_public_id for app in apps),
    )


def totals_of(lines: Sequence[Line]) -> Figures:
    """Add the apps up. Somebody who uses two apps is counted in each; currencies are never added to one another."""
    figures = [line.figures for line in lines]
    return Figures(
        mau=_total(each.mau for each in figures),
        dau=_total(each.dau for each in figures),
        signups=_total(each.signups for each in figures),
        revenue=_money_total(each.revenue for each in figures),
        mrr=_money_total(each.mrr for each in figures),
    )


def _total(figures: Iterable[Figure | None]) -> Figure | None:
    """Return the sum; nothing if a part of it is not known."""
    known = list(figures)
    return added_figures([each for each in known if each is not None]) if None not in known else None


def _money_total(several: Iterable[Sequence[Figure] | None]) -> list[Figure] | None:
    known = list(several)
    if None in known:
        return None
    figures = [figure for each in known if each is not None for figure in each]
    currencies = sorted({figure.currency or "" for figure in figures})
    return [added_figures([each for each in figures if each.currency == currency]) for currency in currencies]


SortKey = Callable[[Line], tuple[object, ...]]


def _by_name(_lines: Sequence[Line]) -> SortKey:
    return lambda line: (line.app.name.casefold(), line.app.app_id)


def _by_count(field: str) -> Callable[[Sequence[Line]], SortKey]:
    """Sort by a count, the highest first; what is not known comes last."""

    def key_for(_lines: Sequence[Line]) -> SortKey:
        def key(line: Line) -> tuple[object, ...]:
            figure: Figure | None = getattr(line.figures, field)
            return (-figure.now if figure else 1, line.app.name.casefold(), line.app.app_id)

        return key

    return key_for


def _by_money(field: str) -> Callable[[Sequence[Line]], SortKey]:
    """Sort by the currency that most apps have, the highest first; where that is equal, by the next one."""

    def key_for(lines: Sequence[Line]) -> SortKey:
        found = Counter(figure.currency for line in lines for figure in getattr(line.figures, field) or ())
        order = [currency for currency, _ in sorted(found.items(), key=lambda item: (-item[1], item[0] or ""))]

        def key(line: Line) -> tuple[object, ...]:
            amounts = {figure.currency: figure.now for figure in getattr(line.figures, field) or ()}
            return (*(-amounts.get(currency, 0) for currency in order), line.app.name.casefold(), line.app.app_id)

        return key

    return key_for


SORTS: Final[Mapping[str, Callable[[Sequence[Line]], SortKey]]] = MappingProxyType(
    {
        "name": _by_name,
        "mau": _by_count("mau"),
        "dau": _by_count("dau"),
        "signups": _by_count("signups"),
        "revenue": _by_money("revenue"),
        "mrr": _by_money("mrr"),
    }
)
