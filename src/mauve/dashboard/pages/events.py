"""The events page of an app: counts by name, one event day by day, and what arrived last."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from starlette.responses import Response

from mauve.dashboard.charts.chart import Chart, event_chart
from mauve.dashboard.charts.figures import ProjectQuestions
from mauve.dashboard.charts.numbers import Answers, Numbers
from mauve.dashboard.context import MemberContext
from mauve.dashboard.pages.app import event_name_of, questions_of
from mauve.dashboard.pages.ingest_health import health_of
from mauve.dashboard.rendering import page
from mauve.dashboard.selection import environment_of, environment_parameters, shown_project
from mauve.dashboard.text import money
from mauve.metrics.questions import Question
from mauve.metrics.registry import METRICS
from mauve.stores.ledger import ReceivedPayment
from mauve.stores.warehouse import StoredEvent

NAMES_SHOWN: Final = 100
ARRIVALS_SHOWN: Final = 20
PERIODS_COMPARED: Final = 2
_LATE_MS: Final = 60_000  # Below it, the two times would look the same.


@dataclass(frozen=True, slots=True)
class Arrival:
    """An event or a payment, in the list of what arrived last."""

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
    has_all_events: bool  # False: they cannot be read now
    has_all_payments: bool


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
        latest=latest_arrivals(context.parts.numbers, questions.project),
        health=health_of(context, questions.project, questions.period.window),
        answers=answers,
        period=questions.period,
        environment=environment_of(context),
        environment_query=environment_parameters(context),
    )


def show_latest_events(context: MemberContext) -> Response:
    """Return the fragment with the latest arrivals; the page polls it."""
    project = shown_project(context, context.app())
    return page(context, "latest_events.html", latest=latest_arrivals(context.parts.numbers, project))


def latest_arrivals(numbers: Numbers, project: str) -> LatestArrivals:
    """Return the latest events and payments together, in order of arrival, latest first."""
    events, payments = numbers.latest_arrivals(project, ARRIVALS_SHOWN)
    arrivals = [*map(_event_arrival, events or ()), *map(_payment_arrival, payments or ())]
    arrivals.sort(key=lambda arrival: arrival.received_at, reverse=True)
    return LatestArrivals(
        arrivals[:ARRIVALS_SHOWN], has_all_events=events is not None, has_all_payments=payments is not None
    )


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
    """Return the chart of the selected event; None if there is none, or if it cannot be read now."""
    found = [rows for question in _series_of(questions, name) if (rows := answers.rows(question)) is not None]
    return event_chart(name, questions.period, *found) if len(found) == PERIODS_COMPARED else None
