"""The overview page of one app: its figures and its charts."""

from collections.abc import Iterable

from starlette.responses import Response

from mauve.core.app import App, Environment
from mauve.core.window import today_at
from mauve.dashboard.charts.chart import CHART_TYPES, charts_from
from mauve.dashboard.charts.figures import ProjectQuestions, figures_from
from mauve.dashboard.charts.periods import period_from
from mauve.dashboard.context import (
    MemberContext,
    ParameterProblem,
    environment_of,
    environment_parameters,
    shown_project,
)
from mauve.dashboard.pages.apps import first_numbers, is_onboarding
from mauve.dashboard.pages.imports import reconstructed_in
from mauve.dashboard.refreshing import as_of, refresh
from mauve.dashboard.rendering import page, project_page, see_other
from mauve.metrics.questions import NAME_CHARACTERS_MAX, Question
from mauve.query.numbers import Answers


def show_app(context: MemberContext) -> Response:
    app = context.app()
    if app.first_event_at is None and environment_of(context) is Environment.LIVE:
        return _show_waiting_app(context, app)
    questions = questions_of(context)
    asked = _all_questions(questions)
    answers = answers_about(context, app, asked)
    return project_page(
        context,
        "app.html",
        app,
        figures=figures_from(questions, answers),
        charts=charts_from(questions, answers),
        as_of=as_of(answers, asked),
        answers=answers,
        reconstructed=reconstructed_in(context, [questions.project], questions.period).get(questions.project),
        period=questions.period,
    )


def refresh_app(context: MemberContext) -> Response:
    """Read the figures and charts again, and show them."""
    app, questions = context.app(), questions_of(context)
    context.parts.refreshes.check(context.user.user_id, context.organization.org_id, context.now_ms)
    done = refresh_about(context, app, _all_questions(questions))
    return see_other(f"/apps/{app.app_id}", **questions.period.address, **environment_parameters(context), done=done)


def _show_waiting_app(context: MemberContext, app: App) -> Response:
    """Show how to send the first event. Do not query metrics: a cached answer would hide the first event."""
    first = first_numbers(context, app)
    is_new = is_onboarding(app, context.now_ms)
    return page(context, "waiting_app.html", app=app, first=first, is_new=is_new)


def questions_of(context: MemberContext) -> ProjectQuestions:
    """Return the questions about the app's project in the selected environment and period."""
    period = period_from(context.query, today_at(context.now_ms))
    return ProjectQuestions(shown_project(context, context.app()), period)


def answers_about(context: MemberContext, app: App, questions: Iterable[Question]) -> Answers:
    """Answer questions about one app. Before its first event, cache nothing: a cached answer would hide that event."""
    numbers = context.parts.numbers
    return numbers.fresh(questions) if app.first_event_at is None else numbers.cached(questions)


def refresh_about(context: MemberContext, app: App, questions: Iterable[Question]) -> str:
    """Refresh the answers, for an app without events only cached ones; return the notice to show."""
    numbers = context.parts.numbers
    return refresh(numbers, filter(numbers.find, questions) if app.first_event_at is None else questions)


def event_name_of(context: MemberContext) -> str:
    """Return the event name in the URL's query; empty if there is none."""
    name = context.asked("name")
    if len(name) > NAME_CHARACTERS_MAX:
        raise ParameterProblem(f"an event name has at most {NAME_CHARACTERS_MAX} characters", "name")
    return name


def _all_questions(questions: ProjectQuestions) -> list[Question]:
    metrics = [chart_type.metric for chart_type in CHART_TYPES]
    for_charts = [question for metric in metrics for question in (questions.now(metric), questions.before(metric))]
    return [*questions.for_figures, *for_charts]
