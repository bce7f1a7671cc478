"""An app's events: which there are and how often, one of them day by day, and those that arrived last."""

from typing import Final

from mauve.dashboard.charts.cards import Chart, event_chart
from mauve.dashboard.charts.figures import Asked
from mauve.dashboard.charts.numbers import Readings
from mauve.dashboard.context import MemberVisit
from mauve.dashboard.pages.app import asked_by, name_asked
from mauve.dashboard.pages.ingest_health import health_of
from mauve.dashboard.rendering import page
from mauve.dashboard.selection import environment_of, plane_address, shown_project
from mauve.metrics.questions import Question
from mauve.metrics.registry import METRICS
from mauve.web.messages import Reply

NAMES_SHOWN: Final = 100
EVENTS_SHOWN: Final = 20
BOTH_PERIODS: Final = 2


def show_events(visit: MemberVisit) -> Reply:
    asked, name = asked_by(visit), name_asked(visit)
    names = asked.now("event_names")
    readings = visit.parts.numbers.ask([names, *_series_of(asked, name)])
    return page(
        visit,
        "events.html",
        app=visit.app(),
        names=readings.rows(names),
        names_shown=NAMES_SHOWN,
        name=name,
        chart=_chart(asked, name, readings),
        events=visit.parts.numbers.latest_events(asked.project, EVENTS_SHOWN),
        health=health_of(visit, asked.project, asked.period.window),
        readings=readings,
        period=asked.period,
        environment=environment_of(visit),
        keep=plane_address(visit),
    )


def show_latest_events(visit: MemberVisit) -> Reply:
    """Return the part of the page that shows what arrived last; the page asks for it again and again."""
    project = shown_project(visit, visit.app())
    return page(visit, "latest_events.html", events=visit.parts.numbers.latest_events(project, EVENTS_SHOWN))


def _series_of(asked: Asked, name: str) -> list[Question]:
    """Return what to ask for one event; nothing if none was chosen."""
    if not name:
        return []
    windows = (asked.period.window, asked.period.before)
    return [Question(asked.project, METRICS["event_series"], window, name) for window in windows]


def _chart(asked: Asked, name: str, readings: Readings) -> Chart | None:
    """Return the chart of the chosen event; None if there is none, or if it cannot be read now."""
    found = [rows for question in _series_of(asked, name) if (rows := readings.rows(question)) is not None]
    return event_chart(name, asked.period, *found) if len(found) == BOTH_PERIODS else None
