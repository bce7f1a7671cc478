"""The subscriptions page of an app: which subscriptions count toward the MRR, and why."""

from typing import Final

from starlette.responses import Response

from mauve.core.problems import Code, Problem
from mauve.core.window import today_at
from mauve.dashboard.charts.figures import ProjectQuestions
from mauve.dashboard.charts.periods import period_from
from mauve.dashboard.context import MemberContext
from mauve.dashboard.rendering import page
from mauve.dashboard.selection import environment_of, shown_project

PAGE_ROWS: Final = 50
_COUNTS_MAX: Final = 50


def show_subscriptions(context: MemberContext) -> Response:
    app = context.app()
    project, today = shown_project(context, app), today_at(context.now_ms)
    mrr = ProjectQuestions(project, period_from({}, today), today).mrr
    answers = context.parts.numbers.ask([mrr])
    found = context.parts.subscriptions.page(project, _cursor(context.asked("after")), PAGE_ROWS + 1)
    shown = found[:PAGE_ROWS]
    return page(
        context,
        "subscriptions.html",
        app=app,
        environment=environment_of(context),
        mrr=answers.rows(mrr),
        answers=answers,
        counts=context.parts.subscriptions.counts(project, _COUNTS_MAX),
        subscriptions=shown,
        next_page=shown[-1].key.hex() if len(found) > PAGE_ROWS else None,
    )


def _cursor(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise Problem(Code.MALFORMED, "this page of the list does not exist: start at the first page") from None
