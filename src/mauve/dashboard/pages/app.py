"""The overview page of one app: its figures, its charts, and the CSV export of any metric."""

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Final

from starlette.responses import Response

from mauve.core.problems import Code, Problem
from mauve.core.window import today_at
from mauve.dashboard.charts.chart import CHART_TYPES, charts_from
from mauve.dashboard.charts.figures import ProjectQuestions, figures_from
from mauve.dashboard.charts.periods import period_from
from mauve.dashboard.charts.series import Rows
from mauve.dashboard.context import MemberContext
from mauve.dashboard.rendering import SECURITY_HEADERS, page
from mauve.dashboard.request import ParameterProblem
from mauve.dashboard.selection import environment_of, environment_parameters, shown_project
from mauve.metrics.questions import NAME_CHARACTERS_MAX, Question
from mauve.metrics.registry import Metric, metric_named
from mauve.query.ask import cannot_be_read

# A spreadsheet would run text that starts with one of these as a formula, and clients choose event names.
_FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r")


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


def show_sheet(context: MemberContext) -> Response:
    """Export the rows of a metric, as the API returns them, to CSV."""
    metric = metric_named(context.path["metric"])
    question = _question(context, questions_of(context), metric)
    rows = context.parts.numbers.ask([question]).rows(question)
    if rows is None:
        raise cannot_be_read()
    filename = f"{metric.name}-{question.window.first}-{question.window.last}.csv"
    headers = {"content-type": "text/csv; charset=utf-8", "content-disposition": f'attachment; filename="{filename}"'}
    return Response(csv_from(metric.columns, rows), headers={**SECURITY_HEADERS, **headers})


def questions_of(context: MemberContext) -> ProjectQuestions:
    """Return the questions about the app's project in the selected environment and period."""
    today = today_at(context.now_ms)
    return ProjectQuestions(shown_project(context, context.app()), period_from(context.query, today), today)


def event_name_of(context: MemberContext) -> str:
    """Return the event name in the URL's query; empty if there is none."""
    name = context.asked("name")
    if len(name) > NAME_CHARACTERS_MAX:
        raise ParameterProblem(f"an event name has at most {NAME_CHARACTERS_MAX} characters", "name")
    return name


def csv_from(columns: Sequence[str], rows: Rows) -> bytes:
    """Return a header line and the rows as CSV. Money stays in minor units."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows([_cell(row[column]) for column in columns] for row in rows)
    return text.getvalue().encode()


def _cell(value: str | int) -> str | int:
    if isinstance(value, str) and value.startswith(_FORMULA_STARTS):
        return f"'{value}"
    return value


def _for_charts(questions: ProjectQuestions) -> Iterable[Question]:
    metrics = [chart_type.metric for chart_type in CHART_TYPES]
    return [question for metric in metrics for question in (questions.now(metric), questions.before(metric))]


def _question(context: MemberContext, questions: ProjectQuestions, metric: Metric) -> Question:
    if metric.is_windowless:
        return questions.mrr
    if not metric.needs_name:
        return questions.now(metric.name)
    name = event_name_of(context)
    if not name:
        raise Problem(Code.MALFORMED, "add the name of the event to the address: ?name=…")
    return Question(questions.project, metric, questions.period.window, name)
