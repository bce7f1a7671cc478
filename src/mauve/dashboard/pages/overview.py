"""The start page: the figures of every app in a table, and their totals."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from starlette.responses import Response

from mauve.core.app import App, Environment
from mauve.core.window import today_at
from mauve.dashboard.charts.figures import Figure, Figures, ProjectQuestions, figures_from, sum_figures
from mauve.dashboard.charts.periods import Period, period_from
from mauve.dashboard.context import MemberContext, environment_of, environment_parameters, project_of
from mauve.dashboard.pages.apps import awaits_first_event
from mauve.dashboard.pages.imports import Reconstructed, reconstructed_in
from mauve.dashboard.refreshing import as_of, refresh
from mauve.dashboard.rendering import page, see_other
from mauve.metrics.questions import Question
from mauve.query.numbers import Answers

_MONEY: Final = ("revenue", "mrr")
SORTS: Final = ("name", "mau", "dau", "signups", *_MONEY)


@dataclass(frozen=True, slots=True)
class AppRow:
    app: App
    figures: Figures


def show_overview(context: MemberContext) -> Response:
    environment = environment_of(context)
    period = period_from(context.query, today_at(context.now_ms))
    apps = _apps(context)
    questions = _questions(context, apps, period)
    answers = _answers(context, questions)
    rows = [AppRow(app, figures_from(each, answers)) for app, each in questions.items()]
    totals, sort = totals_of(rows), _sort_of(context)
    return page(
        context,
        "overview.html",
        apps=apps,
        rows=sorted_rows(rows, sort),
        totals=totals,
        as_of=as_of(answers, _all_questions(questions)),
        reconstructed=_reconstructed(context, questions, period),
        period=period,
        environment=environment,
        sort=sort,
        answers=answers,
        has_test_environment=any(app.test_public_id for app in apps),
    )


def refresh_overview(context: MemberContext) -> Response:
    """Read the figures of every app again, and show them."""
    period = period_from(context.query, today_at(context.now_ms))
    questions = _questions(context, _apps(context), period)
    context.parts.refreshes.check(context.user.user_id, context.organization.org_id, context.now_ms)
    numbers = context.parts.numbers
    known, new = _without_and_with_new_apps(context, questions)
    done = refresh(numbers, [*_all_questions(known), *filter(numbers.find, _all_questions(new))])
    shown = {**period.address, **environment_parameters(context), "sort": _sort_of(context)}
    return see_other("/", **shown, done=done)


def _apps(context: MemberContext) -> list[App]:
    return context.control.catalog.apps.all_of(context.organization.org_id)


def _questions(context: MemberContext, apps: Iterable[App], period: Period) -> dict[App, ProjectQuestions]:
    """Return the questions about each app that has a project in the selected environment."""
    environment = environment_of(context)
    return {app: ProjectQuestions(project, period) for app in apps if (project := project_of(app, environment))}


def _answers(context: MemberContext, questions: Mapping[App, ProjectQuestions]) -> Answers:
    """Answer the questions. Leave no answer about a new app in the cache, where it would hide the first events."""
    known, new = _without_and_with_new_apps(context, questions)
    numbers = context.parts.numbers
    return numbers.cached(_all_questions(known)) | numbers.fresh(_all_questions(new))


def _without_and_with_new_apps(
    context: MemberContext, questions: Mapping[App, ProjectQuestions]
) -> tuple[dict[App, ProjectQuestions], dict[App, ProjectQuestions]]:
    is_live = environment_of(context) is Environment.LIVE
    new = {app: each for app, each in questions.items() if is_live and awaits_first_event(app, context.now_ms)}
    return {app: each for app, each in questions.items() if app not in new}, new


def _all_questions(questions: Mapping[App, ProjectQuestions]) -> Iterator[Question]:
    return (question for each in questions.values() for question in each.for_figures)


def _reconstructed(
    context: MemberContext, questions: Mapping[App, ProjectQuestions], period: Period
) -> dict[str, Reconstructed]:
    """Return the days whose MRR is approximate, by app."""
    found = reconstructed_in(context, [each.project for each in questions.values()], period)
    return {app.app_id: found[each.project] for app, each in questions.items() if each.project in found}


def _sort_of(context: MemberContext) -> str:
    return context.asked("sort") if context.asked("sort") in SORTS else "name"


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


def sorted_rows(rows: Sequence[AppRow], sort: str) -> list[AppRow]:
    """Sort by name, or by a figure, highest first; unknown counts come last.

    Money is sorted by the amount in the most common currency, then by the next one.
    """
    found = [figure for row in rows for figure in _figures(row, sort)]
    common = Counter(figure.currency for figure in found).items()
    currencies = [currency for currency, _ in sorted(common, key=lambda item: (-item[1], item[0] or ""))]

    def key(row: AppRow) -> tuple[object, ...]:
        amounts = {figure.currency: figure.now for figure in _figures(row, sort)}
        missing = 0 if sort in _MONEY else -1
        return (*(-amounts.get(each, missing) for each in currencies), row.app.name.casefold(), row.app.app_id)

    return sorted(rows, key=key)


def _figures(row: AppRow, name: str) -> Sequence[Figure]:
    if name in _MONEY:
        return getattr(row.figures, name) or ()
    figure = getattr(row.figures, name, None)
    return [] if figure is None else [figure]
