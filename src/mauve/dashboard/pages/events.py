"""An app's events: which there are and how often, one of them day by day, and those that arrived last."""

from typing import Final

from starlette.responses import Response

from mauve.dashboard.charts.cards import Chart, event_chart
from mauve.dashboard.charts.figures import Asked
from mauve.dashboard.charts.numbers import Answers
from mauve.dashboard.context import MemberContext
from mauve.dashboard.pages.app import asked_by, name_asked
from mauve.dashboard.pages.ingest_health import health_of
from mauve.dashboard.rendering import page
from mauve.dashboard.selection import environment_of, environment_parameters, shown_project
from mauve.metrics.questions import Question
from mauve.metrics.registry import METRICS

NAMES_SHOWN: Final = 100
EVENTS_SHOWN: Final = 20
BOTH_PERIODS: Final = 2


def show_events(context: MemberContext) -> Response:
    asked, name = asked_by(context), name_asked(context)
    names = asked.now("event_names")
    readings = context.parts.numbers.ask([names, *_series_of(asked, name)])
    return page(
        context,
        "events.html",
        app=context.app(),
        names=readings.rows(names),
        names_shown=NAMES_SHOWN,
        name=name,
        chart=_chart(asked, name, readings),
        events=context.parts.numbers.latest_events(asked.project, EVENTS_SHOWN),
        health=health_of(context, asked.project, asked.period.window),
        readings=readings,
        period=asked.period,
        environment=environment_of(context),
        keep=environment_parameters(context),
    )


def show_latest_events(context: MemberContext) -> Response:
    """Return the part of the page that shows what arrived last; the page asks for it again and again."""
    project = shown_project(context, context.app())
    return page(context, "latest_events.html", events=context.parts.numbers.latest_events(project, EVENTS_SHOWN))


def _series_of(asked: Asked, name: str) -> list[Question]:
    """Return what to ask for one event; nothing if none was chosen."""
    if not name:
        return []
    windows = (asked.period.window, asked.period.before)
    return [Question(asked.project, METRICS["event_series"], window, name) for window in windows]


def _chart(asked: Asked, name: str, readings: Answers) -> Chart | None:
    """Return the chart of the chosen event; None if there is none, or if it cannot be read now."""
    found = [rows for question in _series_of(asked, name) if (rows := readings.rows(question)) is not None]
    return event_chart(name, asked.period, *found) if len(found) == BOTH_PERIODS else None
