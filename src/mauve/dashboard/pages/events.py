"""The events page of an app: counts by name, one event day by day, and the most recent events."""

from typing import Final

from starlette.responses import Response

from mauve.dashboard.charts.chart import Chart, event_chart
from mauve.dashboard.charts.figures import ProjectQuestions
from mauve.dashboard.charts.numbers import Answers
from mauve.dashboard.context import MemberContext
from mauve.dashboard.pages.app import event_name_of, questions_of
from mauve.dashboard.pages.ingest_health import health_of
from mauve.dashboard.rendering import page
from mauve.dashboard.selection import environment_of, environment_parameters, shown_project
from mauve.metrics.questions import Question
from mauve.metrics.registry import METRICS

NAMES_SHOWN: Final = 100
EVENTS_SHOWN: Final = 20
PERIODS_COMPARED: Final = 2


def show_events(context: MemberContext) -> Response:
    questions, name = questions_of(context), event_name_of(context)
    names = questions.now("event_names")
    answers = context.parts.numbers.ask([names, *_series_of(questions, name)])
    return page(
        context,
        "events.html",
        app=context.app(),
        names=answers.rows(names),
        names_shown=NAMES_SHOWN,
        name=name,
        chart=_chart(questions, name, answers),
        events=context.parts.numbers.latest_events(questions.project, EVENTS_SHOWN),
        health=health_of(context, questions.project, questions.period.window),
        answers=answers,
        period=questions.period,
        environment=environment_of(context),
        environment_query=environment_parameters(context),
    )


def show_latest_events(context: MemberContext) -> Response:
    """Return the fragment with the most recent events; the page polls it."""
    project = shown_project(context, context.app())
    return page(context, "latest_events.html", events=context.parts.numbers.latest_events(project, EVENTS_SHOWN))


def _series_of(questions: ProjectQuestions, name: str) -> list[Question]:
    """Return the questions about the selected event in both periods; none if no event is selected."""
    if not name:
        return []
    windows = (questions.period.window, questions.period.before)
    return [Question(questions.project, METRICS["event_series"], window, name) for window in windows]


def _chart(questions: ProjectQuestions, name: str, answers: Answers) -> Chart | None:
    """Return the chart of the selected event; None if there is none, or if it cannot be read now."""
    found = [rows for question in _series_of(questions, name) if (rows := answers.rows(question)) is not None]
    return event_chart(name, questions.period, *found) if len(found) == PERIODS_COMPARED else None
