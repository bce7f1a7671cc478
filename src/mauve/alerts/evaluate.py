"""Evaluate a rule: is it true now, and why.

The numbers are the pages' answers: reads go through their cache and do not count toward the allowance. Stale answers
count as missing.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Final, NamedTuple

from mauve.alerts.channels import Draft, Fact
from mauve.alerts.rules import (
    METRIC_NAMES,
    Change,
    DeliveriesFailing,
    Direction,
    NoEvents,
    Side,
    Terms,
    Threshold,
    amount_text,
)
from mauve.alerts.schedule import HOUR_MS
from mauve.core.app import App
from mauve.core.biller import BILLER_NAMES
from mauve.core.text import count, counted, days, moment
from mauve.core.window import Window, today_at
from mauve.ingest.webhooks.signatures import SignatureFailure
from mauve.metrics.questions import Question
from mauve.metrics.registry import METRICS
from mauve.metrics.summaries import amounts_of, whole_days_before
from mauve.query.numbers import Answers, Numbers
from mauve.stores.deliveries import DeliveryResult, Tally

_VERIFIED: Final = frozenset(DeliveryResult)  # Other words are failures or warnings.


Facts = Sequence[tuple[str, str, str | None]]  # label, value, and the value before


def answers_about(numbers: Numbers, asked: Mapping[App, Iterable[Question]]) -> Answers:
    """Answer questions about apps. Leave no answer in the cache before an app's first event, which it would hide."""
    known = [question for app, own in asked.items() for question in own if app.first_event_at is not None]
    new = [question for app, own in asked.items() for question in own if app.first_event_at is None]
    return numbers.cached(known) | numbers.fresh(new)


class Measure(NamedTuple):
    """A metric of a project in a period. MRR is that of the last day, and `current_mrr` the current value."""

    project: str
    metric: str
    window: Window

    @property
    def question(self) -> Question:
        name = {"mrr": "mrr_history", "current_mrr": "mrr"}.get(self.metric, self.metric)
        return Question(self.project, METRICS[name], self.window)

    def amounts(self, answers: Answers) -> dict[str | None, int] | None:
        """Return the amount of each currency, or one number, in tenths for DAU. None: it cannot be read now."""
        rows = answers.current_rows(self.question)
        return None if rows is None else amounts_of(self.question.metric.name, rows, self.window)


class Evaluation(NamedTuple):
    is_true: bool
    found: str  # as the page shows it
    draft: Draft  # of the message about it


class Watch(NamedTuple):
    """A rule, the app it watches, and the time of the evaluation."""

    terms: Terms
    app: App
    created_at: int
    now_ms: int

    @property
    def today(self) -> date:
        return today_at(self.now_ms)

    def draft(self, title: str, reason: str, facts: Facts, page: str) -> Draft:
        """Return the message about the app, which links to one of its pages."""
        app = self.app
        named = [Fact(app.name, label, value, before, None) for label, value, before in facts]
        return Draft(self.terms.kind, f"{app.name}: {title}", reason, named, f"/apps/{app.app_id}{page}")


def measures_of(watch: Watch) -> list[Measure]:
    """Return what a rule about a metric reads: this period, and the one before if they are compared."""
    terms, project = watch.terms, watch.app.public_id
    match terms:
        case Threshold(metric="mrr"):
            return [Measure(project, "current_mrr", Window(watch.today, watch.today))]
        case Threshold():
            return [Measure(project, terms.metric, whole_days_before(watch.today, terms.days))]
        case Change():
            window = whole_days_before(watch.today, terms.days)
            return [Measure(project, terms.metric, window), Measure(project, terms.metric, window.before)]
        case _:
            return []


def questions_of(watch: Watch) -> list[Question]:
    return [measure.question for measure in measures_of(watch)]


def needs_loading(watch: Watch) -> bool:
    """Return whether a rule depends on events that the loader has loaded. Money needs no loading."""
    return any(not question.is_money for question in questions_of(watch))


def evaluate_metric(watch: Watch, terms: Threshold | Change, answers: Answers) -> Evaluation | None:
    """Evaluate a metric rule; return None if the metric is unavailable."""
    found = [measure.amounts(answers) for measure in measures_of(watch)]
    known = [amounts.get(terms.currency, 0) for amounts in found if amounts is not None]
    if len(known) < len(found):
        return None
    return _threshold(watch, terms, *known) if isinstance(terms, Threshold) else _change(watch, terms, *known)


def _threshold(watch: Watch, terms: Threshold, now: int) -> Evaluation:
    text, limit = (amount_text(terms.metric, each, terms.currency) for each in (now, terms.limit))
    name, window = METRIC_NAMES[terms.metric], whole_days_before(watch.today, terms.days)
    if terms.metric == "mrr":
        over, page, found = "", f"?days={terms.days}", f"It is {text}."
    else:
        over, page = f" over {terms.days} days", f"?from={window.first}&to={window.last}"
        found = f"It was {text} from {days(window)}."
    is_true = now > terms.limit if terms.side is Side.ABOVE else now < terms.limit
    reason = f"The rule asks to be told when {name}{over} is {terms.side} {limit}. {found}"
    facts = [(f"{name}{over}", text, None)]
    return Evaluation(is_true, text, watch.draft(f"{name} is {terms.side} {limit}", reason, facts, page))


def _change(watch: Watch, terms: Change, now: int, before: int) -> Evaluation:
    """Compare two periods. Without a number in the earlier one there is no percentage, so nothing is true."""
    difference = abs(now - before)
    verb = "rose" if now > before else "fell" if now < before else "stayed"
    is_wanted = {Direction.EITHER: True, Direction.UP: now > before, Direction.DOWN: now < before}[terms.direction]
    percent = difference * 100 // before if before > 0 else 0
    by = f"{verb} by {count(percent)}\N{NO-BREAK SPACE}%" if difference else verb
    text, earlier = (amount_text(terms.metric, each, terms.currency) for each in (now, before))
    name, window = METRIC_NAMES[terms.metric], whole_days_before(watch.today, terms.days)
    is_true = is_wanted and before > 0 and difference * 100 > terms.percent * before
    reason = (
        f"The rule asks to be told when {name} changes by more than {count(terms.percent)}\N{NO-BREAK SPACE}% "
        f"against the {terms.days} days before. It was {text} from {days(window)}, after {earlier}."
    )
    facts = [(f"{name}, {days(window)}", text, earlier)]
    draft = watch.draft(f"{name} {by}", reason, facts, f"?from={window.first}&to={window.last}")
    return Evaluation(is_true, f"{text} after {earlier}", draft)


def evaluate_silence(watch: Watch, terms: NoEvents, last_at: int | None) -> Evaluation:
    """Check whether events have stopped, based on the last known event."""
    since = watch.created_at if last_at is None else last_at
    span = counted(terms.hours, "hour")
    last = "none is known" if last_at is None else moment(last_at)
    reason = f"The rule asks to be told when no event arrives for {span}. The last one: {last}."
    draft = watch.draft(f"no events for {span}", reason, [("Last event", last, None)], "/events")
    return Evaluation(watch.now_ms - since >= terms.hours * HOUR_MS, f"last event: {last}", draft)


def evaluate_deliveries(watch: Watch, terms: DeliveriesFailing, tallies: Sequence[Tally]) -> Evaluation:
    """Check whether a biller's deliveries fail: a signature did not match, and no delivery was verified since.

    Other refusals do not count: scanners cause them. Someone who knows the project's id can still forge a well-formed,
    current signature that does not match; it looks the same as a wrong secret.
    """
    failing = {
        BILLER_NAMES.get(mismatch.provider, mismatch.provider): mismatch
        for mismatch in tallies
        if mismatch.word == SignatureFailure.MISMATCH
        and watch.now_ms - mismatch.last_at < terms.hours * HOUR_MS
        and not any(_verifies(each, mismatch) for each in tallies)
    }
    names = " and ".join(failing)
    last_at = max((each.last_at for each in failing.values()), default=0)
    reason = (
        f"Deliveries of {names} are not signed with the saved secret, the last one at {moment(last_at)}, and none was "
        "verified since. Copy the signing secret from the biller again and save it on the webhooks page."
    )
    facts = [(f"{name}: wrong signatures", str(each.count), None) for name, each in failing.items()]
    draft = watch.draft(f"deliveries of {names} fail verification", reason, facts, "/webhooks")
    return Evaluation(bool(failing), f"{names}: wrong signature" if failing else "no wrong signature", draft)


def _verifies(tally: Tally, mismatch: Tally) -> bool:
    return tally.word in _VERIFIED and tally.provider == mismatch.provider and tally.last_at > mismatch.last_at
