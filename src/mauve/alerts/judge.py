"""Judge a rule by what was read: is it true now, and why."""

from collections.abc import Sequence
from datetime import date
from typing import Final, NamedTuple

from mauve.alerts.figures import Answers, CurrentMrr, Measure, amount_of, amount_text, whole_days_before
from mauve.alerts.notice import Fact
from mauve.alerts.schedule import HOUR_MS
from mauve.alerts.terms import (
    METRIC_NAMES,
    Change,
    DeliveriesFailing,
    Direction,
    NoEvents,
    Side,
    Terms,
    Threshold,
)
from mauve.core.app import App
from mauve.core.biller import BILLER_NAMES
from mauve.core.text import count, counted, days, moment
from mauve.ingest.webhooks.signatures import SignatureFailure
from mauve.metrics.questions import Question
from mauve.metrics.sources import WarehouseSource
from mauve.stores.deliveries import DeliveryResult, Tally

_HUNDRED: Final = 100


class Judgment(NamedTuple):
    """Whether a rule is true, with what a message about it says."""

    is_true: bool
    found: str  # what was found, as the page shows it
    title: str
    reason: str
    facts: list[Fact]
    path: str  # of the page that shows the same numbers


class Watch(NamedTuple):
    """A rule, the app it watches, and the moment of the judgment."""

    terms: Terms
    app: App
    created_at: int
    now_ms: int
    today: date

    @property
    def path(self) -> str:
        return f"/apps/{self.app.app_id}"


Reading = Measure | CurrentMrr


def readings_of(watch: Watch) -> list[Reading]:
    """Return what has to be read to judge the rule: this period, and the one before if they are compared."""
    terms, project = watch.terms, watch.app.public_id
    match terms:
        case Threshold(metric="mrr"):
            return [CurrentMrr(project, watch.today)]
        case Threshold():
            return [Measure(project, terms.metric, whole_days_before(watch.today, terms.days))]
        case Change():
            window = whole_days_before(watch.today, terms.days)
            return [Measure(project, terms.metric, window), Measure(project, terms.metric, window.before)]
        case _:
            return []


def questions_of(watch: Watch) -> list[Question]:
    return [reading.question for reading in readings_of(watch)]


def needs_loading(watch: Watch) -> bool:
    """Return whether a rule is judged by events that the loader has loaded. Money needs no loading."""
    return any(isinstance(question.metric.source, WarehouseSource) for question in questions_of(watch))


def judge_numbers(watch: Watch, answers: Answers) -> Judgment | None:
    """Judge a rule about a metric; return None if its numbers cannot be read now."""
    terms = watch.terms
    assert isinstance(terms, Threshold | Change)  # noqa: S101 - the caller chose by the kind
    found = [reading.amounts(answers) for reading in readings_of(watch)]
    known = [amount_of(amounts, terms.metric, terms.currency) for amounts in found if amounts is not None]
    if len(known) < len(found):
        return None
    return _judge_value(watch, terms, *known) if isinstance(terms, Threshold) else _judge_change(watch, terms, *known)


def _judge_value(watch: Watch, terms: Threshold, now: int) -> Judgment:
    limit = terms.value * 10 if terms.metric == "dau" else terms.value
    is_true = now > limit if terms.side is Side.ABOVE else now < limit
    name, text = METRIC_NAMES[terms.metric], amount_text(terms.metric, now, terms.currency)
    limit_text = amount_text(terms.metric, limit, terms.currency)
    window = whole_days_before(watch.today, terms.days)
    if terms.metric == "mrr":
        over, query, found = "", f"days={terms.days}", f"It is {text}."
    else:
        over, query = f" over {terms.days} days", f"from={window.first}&to={window.last}"
        found = f"It was {text} from {days(window)}."
    return Judgment(
        is_true,
        text,
        f"{watch.app.name}: {name} is {terms.side} {limit_text}",
        f"The rule asks to be told when {name}{over} is {terms.side} {limit_text}. {found}",
        [Fact(watch.app.name, f"{name}{over}", text, None, None)],
        f"{watch.path}?{query}",
    )


def _judge_change(watch: Watch, terms: Change, now: int, before: int) -> Judgment:
    """Compare two periods. Without a number in the earlier one there is no percentage, so nothing is true."""
    is_rise, is_fall = now > before, now < before
    is_beyond = before > 0 and abs(now - before) * _HUNDRED > terms.percent * before
    is_wanted = {Direction.EITHER: True, Direction.UP: is_rise, Direction.DOWN: is_fall}[terms.direction]
    percent = abs(now - before) * _HUNDRED // before if before > 0 else 0
    verb = "rose" if is_rise else "fell" if is_fall else "stayed"
    by = f"{verb} by {count(percent)}\N{NO-BREAK SPACE}%" if is_rise or is_fall else verb
    name = METRIC_NAMES[terms.metric]
    text, earlier = (amount_text(terms.metric, each, terms.currency) for each in (now, before))
    window = whole_days_before(watch.today, terms.days)
    return Judgment(
        is_beyond and is_wanted,
        f"{text} after {earlier}",
        f"{watch.app.name}: {name} {by}",
        f"The rule asks to be told when {name} changes by more than {count(terms.percent)}\N{NO-BREAK SPACE}% "
        f"against the {terms.days} days before. It was {text} from {days(window)}, after {earlier}.",
        [Fact(watch.app.name, f"{name}, {days(window)}", text, earlier, None)],
        f"{watch.path}?from={window.first}&to={window.last}",
    )


def judge_silence(watch: Watch, last_at: int | None) -> Judgment:
    """Judge whether events have stopped, by the time of the last one that is known."""
    terms = watch.terms
    assert isinstance(terms, NoEvents)  # noqa: S101 - the caller chose by the kind
    since = watch.created_at if last_at is None else last_at
    span = counted(terms.hours, "hour")
    last = "none is known" if last_at is None else moment(last_at)
    return Judgment(
        watch.now_ms - since >= terms.hours * HOUR_MS,
        f"last event: {last}",
        f"{watch.app.name}: no events for {span}",
        f"The rule asks to be told when no event arrives for {span}. The last one: {last}.",
        [Fact(watch.app.name, "Last event", last, None, None)],
        f"{watch.path}/events",
    )


def judge_deliveries(watch: Watch, tallies: Sequence[Tally]) -> Judgment:
    """Check whether a biller's deliveries fail: a signature did not match, and no delivery was verified since.

    Other refusals do not count: scanners cause them. Someone who knows the project's id can still forge a well-formed,
    current signature that does not match; nothing tells that from a wrong secret.
    """
    terms = watch.terms
    assert isinstance(terms, DeliveriesFailing)  # noqa: S101 - the caller chose by the kind
    failing = [
        mismatch
        for mismatch in tallies
        if mismatch.word == SignatureFailure.MISMATCH
        and watch.now_ms - mismatch.last_at < terms.hours * HOUR_MS
        and not any(_verifies(each, mismatch) for each in tallies)
    ]
    names = " and ".join(_biller(each) for each in failing)
    facts = [
        Fact(watch.app.name, f"{_biller(each)}: wrong signatures", str(each.count), None, None) for each in failing
    ]
    last_at = max((each.last_at for each in failing), default=0)
    return Judgment(
        bool(failing),
        f"{names}: wrong signature" if failing else "no wrong signature",
        f"{watch.app.name}: deliveries of {names} fail verification",
        f"Deliveries of {names} are not signed with the saved secret, the last one at {moment(last_at)}, and none was "
        "verified since. Copy the signing secret from the biller again and save it on the webhooks page.",
        facts,
        f"{watch.path}/webhooks",
    )


def _verifies(tally: Tally, mismatch: Tally) -> bool:
    is_result = tally.word in frozenset(DeliveryResult) - {DeliveryResult.REFUSED}
    return is_result and tally.provider == mismatch.provider and tally.last_at > mismatch.last_at


def _biller(tally: Tally) -> str:
    return BILLER_NAMES.get(tally.provider, tally.provider)
