"""The list of apps, creating an app and its first numbers, and its settings.

The first numbers bypass the cache, and show when the API will return the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import Response

from mauve.control import apps
from mauve.control.bodies import AppChangesBody, NewAppBody
from mauve.core.app import App, AppType, Ownership
from mauve.core.credential import Scope
from mauve.core.window import Window, today_at
from mauve.dashboard.charts.figures import ProjectQuestions
from mauve.dashboard.charts.periods import period_from
from mauve.dashboard.context import MemberContext
from mauve.dashboard.refreshing import SAME_AGE_MS
from mauve.dashboard.rendering import page, see_other
from mauve.metrics.questions import Question
from mauve.metrics.summaries import Rows, amounts_of, by_day
from mauve.query.numbers import Answers

ONBOARDING_MS: Final = 60 * 60_000
Amounts = Sequence[tuple[int, str | None]]  # numbers, or money in minor units with its currency


@dataclass(frozen=True, slots=True)
class FirstNumber:
    label: str
    metric: str
    amounts: Amounts | None  # None: unavailable; empty: no money yet
    api_at: int | None  # when the API returns the same; None: now


@dataclass(frozen=True, slots=True)
class FirstNumbers:
    numbers: Sequence[FirstNumber] = ()
    older_at: int | None = None  # when they were read, if not just now


def is_onboarding(app: App, now_ms: int) -> bool:
    """Return whether the app is new enough to show its first numbers."""
    return now_ms - app.created_at < ONBOARDING_MS


def awaits_first_event(app: App, now_ms: int) -> bool:
    return app.first_event_at is None and is_onboarding(app, now_ms)


def first_numbers(context: MemberContext, app: App) -> FirstNumbers:
    """Return the live numbers of the default period: for a new app, and for a role that may see them."""
    if not context.may(Scope.METRICS_READ) or not is_onboarding(app, context.now_ms):
        return FirstNumbers()
    questions = ProjectQuestions(app.public_id, period_from({}, today_at(context.now_ms)))
    asked = {
        "Events, without payments": questions.now("event_names"),
        "MAU": questions.now("mau"),
        "DAU, today": questions.now("dau"),
        "Signups": questions.now("signups"),
        "Gross revenue": questions.now("revenue"),
        "MRR": questions.mrr,
    }
    answers = context.parts.numbers.fresh(asked.values())
    found = [_number(context, label, question, answers) for label, question in asked.items()]
    read_at = answers.read_at
    return FirstNumbers(found, read_at if read_at and context.now_ms - read_at > SAME_AGE_MS else None)


def _number(context: MemberContext, label: str, question: Question, answers: Answers) -> FirstNumber:
    rows, name = answers.rows(question), question.metric.name
    if rows is None:
        return FirstNumber(label, name, None, None)
    return FirstNumber(label, name, _amounts(question, rows), _api_at(context, question, rows))


def _amounts(question: Question, rows: Rows) -> Amounts:
    """Return the total of these rows, or one amount per currency. DAU is today's."""
    name, last = question.metric.name, question.window.last
    if name == "dau":
        return [(sum(by_day(rows, "dau", Window(last, last))), None)]
    found = amounts_of(name, rows, question.window)
    return [(found[currency], currency) for currency in sorted(found, key=lambda currency: currency or "")]


def _api_at(context: MemberContext, question: Question, rows: list[dict[str, Any]]) -> int | None:
    """Return when the API stops returning an earlier answer from the cache."""
    numbers = context.parts.numbers
    cached = numbers.find(question)
    if cached is None:
        return None
    is_same = Answers({question.key: cached}).rows(question) == rows
    return None if is_same else cached.read_at + numbers.max_age_s * 1000


def show_apps(context: MemberContext) -> Response:
    catalog, org_id = context.control.catalog, context.organization.org_id
    return page(context, "apps.html", apps=catalog.apps.all_of(org_id), archived=catalog.apps.archived_of(org_id))


def show_new_app(context: MemberContext) -> Response:
    return page(context, "new_app.html")


def create_app(context: MemberContext) -> Response:
    """Create the app and show its first key. Without a redirect, since the key is shown only once."""
    wanted = NewAppBody(context.field("name"), context.chosen("ownership", Ownership), context.chosen("type", AppType))
    app, key = apps.create_app(context.control, context.organization.org_id, wanted, context.user.user_id)
    # The page polls for the first numbers immediately.
    return page(context, "created_app.html", app=app, key=key.reveal(), first=FirstNumbers(), is_new=True)


def show_first_event(context: MemberContext) -> Response:
    """Return the fragment that shows the first event and the first numbers; the page polls it."""
    app = context.app()
    first = first_numbers(context, app)
    return page(context, "first_event.html", app=app, first=first, is_new=is_onboarding(app, context.now_ms))


def show_settings(context: MemberContext) -> Response:
    return page(context, "app_settings.html", app=context.app())


def change_app(context: MemberContext) -> Response:
    wanted = AppChangesBody(
        context.field("name"), context.chosen("ownership", Ownership), context.chosen("type", AppType)
    )
    app = apps.change_app(context.control, context.app(), wanted)
    return see_other(f"/apps/{app.app_id}/settings", done="saved")


def confirm_archiving(context: MemberContext) -> Response:
    return page(context, "archive_app.html", app=context.app())


def archive_app(context: MemberContext) -> Response:
    app = apps.archive_app(context.control, context.app())
    return see_other(f"/apps/{app.app_id}/settings", done="app-archived")


def restore_app(context: MemberContext) -> Response:
    app = apps.restore_app(context.control, context.app())
    return see_other(f"/apps/{app.app_id}/settings", done="app-restored")
