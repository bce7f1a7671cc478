"""The overview page of one app: its figures, its charts, and the CSV export of any metric."""

import csv
import io
from collections.abc import Sequence
from typing import Final

from starlette.responses import Response

from mauve.core.app import App, Environment
from mauve.core.problems import Code, Problem
from mauve.core.window import today_at
from mauve.dashboard.ages import ages_of
from mauve.dashboard.charts.chart import CHART_TYPES, charts_from
from mauve.dashboard.charts.figures import ProjectQuestions, figures_from
from mauve.dashboard.charts.numbers import Answers
from mauve.dashboard.charts.periods import period_from
from mauve.dashboard.charts.series import Rows
from mauve.dashboard.context import MemberContext
from mauve.dashboard.first_numbers import first_numbers, is_onboarding, may_read_first_numbers
from mauve.dashboard.rendering import SECURITY_HEADERS, page, see_other
from mauve.dashboard.request import ParameterProblem
from mauve.dashboard.selection import environment_of, environment_parameters, shown_project
from mauve.metrics.questions import NAME_CHARACTERS_MAX, Question
from mauve.metrics.registry import Metric, metric_named
from mauve.query.ask import cannot_be_read

# A spreadsheet would run text that starts with one of these as a formula, and clients choose event names.
_FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r")


def show_app(context: MemberContext) -> Response:
    app = context.app()
    if app.first_event_at is None and environment_of(context) is Environment.LIVE:
        return _show_waiting_app(context, app)
    questions = questions_of(context)
    answers = context.parts.numbers.ask(_all_questions(questions))
    figures, charts = figures_from(questions, answers), charts_from(questions, answers)
    return page(
        context,
        "app.html",
        app=app,
        figures=figures,
        charts=charts,
        has_earlier_days=any(any(chart.before) for chart in charts),
        ages=ages_of({**figures.read_at, **_charts_read_at(questions, answers)}),
        answers=answers,
        period=questions.period,
        environment=environment_of(context),
        environment_query=environment_parameters(context),
    )


def refresh_app(context: MemberContext) -> Response:
    """Read the figures and charts again, and show them."""
    app, questions = context.app(), questions_of(context)
    context.parts.refreshes.check(context.user.user_id, context.organization.org_id, context.now_ms)
    answers = context.parts.numbers.refresh(_all_questions(questions))
    done = "refreshed" if answers.is_current else "partly-refreshed"
    return see_other(f"/apps/{app.app_id}", **questions.period.address, **environment_parameters(context), done=done)


def _show_waiting_app(context: MemberContext, app: App) -> Response:
    """Show how to send the first event. Ask for no metric: the cached answer would hide the first event later."""
    first = first_numbers(context, app) if may_read_first_numbers(context, app) else []
    is_new = is_onboarding(app, context.now_ms)
    return page(context, "waiting_app.html", app=app, url=context.url, first=first, is_new=is_new)


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


def _all_questions(questions: ProjectQuestions) -> list[Question]:
    metrics = [chart_type.metric for chart_type in CHART_TYPES]
    for_charts = [question for metric in metrics for question in (questions.now(metric), questions.before(metric))]
    return [*questions.for_figures, *for_charts]


def _charts_read_at(questions: ProjectQuestions, answers: Answers) -> dict[str, int]:
    """Return when the numbers of this period were read, for each type of chart."""
    read_at = {each.metric: answers.read_at_of(questions.now(each.metric)) for each in CHART_TYPES}
    return {f"chart-{metric}": at for metric, at in read_at.items() if at is not None}


def _question(context: MemberContext, questions: ProjectQuestions, metric: Metric) -> Question:
    if metric.is_windowless:
        return questions.mrr
    if not metric.needs_name:
        return questions.now(metric.name)
    name = event_name_of(context)
    if not name:
        raise Problem(Code.MALFORMED, "add the name of the event to the address: ?name=…")
    return Question(questions.project, metric, questions.period.window, name)
