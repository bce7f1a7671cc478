"""The events page of an app: counts by name, one event day by day, and the latest arrivals."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Final

from starlette.responses import Response

from mauve.core.text import money
from mauve.dashboard.charts.chart import Chart, event_chart
from mauve.dashboard.charts.figures import ProjectQuestions
from mauve.dashboard.context import MemberContext, environment_parameters, shown_project
from mauve.dashboard.pages.app import answers_about, event_name_of, questions_of, refresh_about
from mauve.dashboard.pages.ingest_health import health_of
from mauve.dashboard.refreshing import as_of
from mauve.dashboard.rendering import page, project_page, see_other
from mauve.metrics.questions import Question
from mauve.metrics.registry import METRICS
from mauve.query.numbers import Answers, Numbers
from mauve.stores.ledger import ReceivedPayment
from mauve.stores.warehouse import StoredEvent

NAMES_SHOWN: Final = 100
ARRIVALS_SHOWN: Final = 20
PERIODS_COMPARED: Final = 2
_LATE_MS: Final = 60_000  # Below this, the two times look the same.


@dataclass(frozen=True, slots=True)
class Arrival:
    """An event or payment in the list of latest arrivals."""

    name: str
    user: str  # empty if absent
    received_at: int
    occurred_at: int
    props: str = ""
    is_counted: bool = True
    amount: str = ""  # of a payment
    kind: str = ""  # of a payment: the metric that contains it

    @property
    def has_two_times(self) -> bool:
        return abs(self.received_at - self.occurred_at) >= _LATE_MS


@dataclass(frozen=True, slots=True)
class LatestArrivals:
    arrivals: Sequence[Arrival]
    has_all_events: bool  # False: unavailable
    has_all_payments: bool


def show_events(context: MemberContext) -> Response:
    app, questions, name = context.app(), questions_of(context), event_name_of(context)
    names = questions.now("event_names")
    asked = [names, *_series_of(questions, name)]
    answers = answers_about(context, app, asked)
    return project_page(
        context,
        "events.html",
        app,
        names=answers.rows(names),
        names_shown=NAMES_SHOWN,
        name=name,
        chart=_chart(questions, name, answers),
        latest=latest_arrivals(context.parts.numbers, questions.project),
        health=health_of(context, questions.project, questions.period.window),
        as_of=as_of(answers, asked),
        answers=answers,
        period=questions.period,
    )


def refresh_events(context: MemberContext) -> Response:
    """Read the counts and the chart again, and show them."""
    app, questions, name = context.app(), questions_of(context), event_name_of(context)
    context.parts.refreshes.check(context.user.user_id, context.organization.org_id, context.now_ms)
    done = refresh_about(context, app, [questions.now("event_names"), *_series_of(questions, name)])
    shown = {**questions.period.address, **environment_parameters(context), **({"name": name} if name else {})}
    return see_other(f"/apps/{app.app_id}/events", **shown, done=done)


def show_latest_events(context: MemberContext) -> Response:
    """Return the fragment with the latest arrivals; the page polls it."""
    project = shown_project(context, context.app())
    return page(context, "latest_events.html", latest=latest_arrivals(context.parts.numbers, project))


def latest_arrivals(numbers: Numbers, project: str) -> LatestArrivals:
    """Return the latest events and payments together, in order of arrival, latest first."""
    events, payments = numbers.latest_arrivals(project, ARRIVALS_SHOWN)
    arrivals = merged(map(_event_arrival, events or ()), map(_payment_arrival, payments or ()))
    return LatestArrivals(
        arrivals[:ARRIVALS_SHOWN], has_all_events=events is not None, has_all_payments=payments is not None
    )


def merged(*kinds: Iterable[Arrival]) -> list[Arrival]:
    """Merge by arrival, latest first. Kinds that arrived together alternate, so that no kind fills the list."""
    ranked = []
    for kind in kinds:
        together: Counter[int] = Counter()
        for arrival in kind:
            ranked.append((-arrival.received_at, together[arrival.received_at], arrival))
            together[arrival.received_at] += 1
    return [arrival for _, _, arrival in sorted(ranked, key=itemgetter(0, 1))]


def _event_arrival(event: StoredEvent) -> Arrival:
    props = event.props
    return Arrival(event.name, event.user, event.received_at, event.occurred_at, props, is_counted=bool(event.counted))


def _payment_arrival(payment: ReceivedPayment) -> Arrival:
    amount = money(payment.amount, payment.currency)
    kind = "revenue" if payment.earned else "volume"
    return Arrival("payment", payment.user or "", payment.received_at, payment.occurred_at, amount=amount, kind=kind)


def _series_of(questions: ProjectQuestions, name: str) -> list[Question]:
    """Return the questions about the selected event in both periods; none if no event is selected."""
    if not name:
        return []
    windows = (questions.period.window, questions.period.before)
    return [Question(questions.project, METRICS["event_series"], window, name) for window in windows]


def _chart(questions: ProjectQuestions, name: str, answers: Answers) -> Chart | None:
    """Return the chart of the selected event; None if no event is selected or it is unavailable."""
    found = [rows for question in _series_of(questions, name) if (rows := answers.rows(question)) is not None]
    return event_chart(name, questions.period, *found) if len(found) == PERIODS_COMPARED else None
