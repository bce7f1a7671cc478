"""The overview page of one app: its figures and its charts."""

from collections.abc import Iterable

from starlette.responses import Response

from mauve.core.problems import Code, Problem
from mauve.core.window import today_at
from mauve.dashboard.charts.chart import CHART_TYPES, charts_from
from mauve.dashboard.charts.figures import ProjectQuestions, figures_from
from mauve.dashboard.charts.periods import period_from
from mauve.dashboard.context import MemberContext
from mauve.dashboard.rendering import page
from mauve.dashboard.selection import environment_of, environment_parameters, shown_project
from mauve.metrics.questions import NAME_CHARACTERS_MAX, Question


def show_app(context: MemberContext) -> Response:
    app = context.app()
    questions = questions_of(context)
    answers = context.parts.numbers.ask([*questions.for_figures, *_for_charts(questions)])
    return page(
        context,
        "app.html",
        app=app,
        url=context.url,
        figures=figures_from(questions, answers),
        charts=charts_from(questions, answers),
        answers=answers,
        period=questions.period,
        environment=environment_of(context),
        environment_query=environment_parameters(context),
    )


def questions_of(context: MemberContext) -> ProjectQuestions:
    """Return the questions about the app's project in the selected environment and period."""
    today = today_at(context.now_ms)
    return ProjectQuestions(shown_project(context, context.app()), period_from(context.query, today), today)


def event_name_of(context: MemberContext) -> str:
    """Return the event name in the URL's query; empty if there is none."""
    name = context.asked("name")
    if len(name) > NAME_CHARACTERS_MAX:
        raise Problem(Code.MALFORMED, f"an event name has at most {NAME_CHARACTERS_MAX} characters")
    return name


def _for_charts(questions: ProjectQuestions) -> Iterable[Question]:
    metrics = [chart_type.metric for chart_type in CHART_TYPES]
    return [question for metric in metrics for question in (questions.now(metric), questions.before(metric))]
