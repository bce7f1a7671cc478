"""One app's numbers: its figures, its charts, and any of them as a sheet."""

from collections.abc import Iterable
from typing import Final

from starlette.responses import Response

from mauve.core.problems import Code, Problem
from mauve.core.window import today_at
from mauve.dashboard.charts.cards import KINDS, charts_from
from mauve.dashboard.charts.figures import Asked, figures_from
from mauve.dashboard.charts.periods import period_from
from mauve.dashboard.context import MemberContext
from mauve.dashboard.pages.csv_export import sheet_from
from mauve.dashboard.rendering import SECURITY_HEADERS, page
from mauve.dashboard.selection import environment_of, environment_parameters, shown_project
from mauve.metrics.questions import NAME_CHARACTERS_MAX, Question
from mauve.metrics.registry import Metric, metric_named
from mauve.query.ask import cannot_be_read

_CHARTED: Final = tuple(kind.metric for kind in KINDS)


def show_app(context: MemberContext) -> Response:
    app = context.app()
    asked = asked_by(context)
    readings = context.parts.numbers.ask([*asked.questions, *_charted(asked)])
    return page(
        context,
        "app.html",
        app=app,
        url=context.url,
        figures=figures_from(asked, readings),
        charts=charts_from(asked, readings),
        readings=readings,
        period=asked.period,
        environment=environment_of(context),
        keep=environment_parameters(context),
    )


def show_sheet(context: MemberContext) -> Response:
    """Return the rows of a metric, as the API gives them, for a spreadsheet."""
    asked = asked_by(context)
    metric = metric_named(context.path["metric"])
    question = _question(context, asked, metric)
    rows = context.parts.numbers.ask([question]).rows(question)
    if rows is None:
        raise cannot_be_read()
    name = f"{metric.name}-{question.window.first}-{question.window.last}.csv"
    headers = {"content-type": "text/csv; charset=utf-8", "content-disposition": f'attachment; filename="{name}"'}
    return Response(sheet_from(metric.columns, rows), headers={**SECURITY_HEADERS, **headers})


def asked_by(context: MemberContext) -> Asked:
    """Return what an app's page of numbers asks for: its project on the chosen plane, in the chosen period."""
    today = today_at(context.now_ms)
    return Asked(shown_project(context, context.app()), period_from(context.query, today), today)


def name_asked(context: MemberContext) -> str:
    name = context.asked("name")
    if len(name) > NAME_CHARACTERS_MAX:
        raise Problem(Code.MALFORMED, f"an event's name has at most {NAME_CHARACTERS_MAX} characters")
    return name


def _charted(asked: Asked) -> Iterable[Question]:
    return [question for metric in _CHARTED for question in (asked.now(metric), asked.before(metric))]


def _question(context: MemberContext, asked: Asked, metric: Metric) -> Question:
    if metric.is_windowless:
        return asked.mrr
    if not metric.needs_name:
        return asked.now(metric.name)
    name = name_asked(context)
    if not name:
        raise Problem(Code.MALFORMED, "name the event to count")
    return Question(asked.project, metric, asked.period.window, name)
