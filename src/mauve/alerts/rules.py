"""Rules: what one watches for, how pages describe it, and the state it is in."""

from enum import StrEnum
from typing import Final

import msgspec

from mauve.alerts.schedule import HOUR_MS
from mauve.control.bodies import invalid_body
from mauve.core.money import is_currency, minor_digits
from mauve.core.text import count, counted, money, tenths

RULES_PER_APP_MAX: Final = 20
RULES_PER_ORGANIZATION_MAX: Final = 500
HOURS_MAX: Final = 168
COOLDOWN_HOURS_MAX: Final = 720
PERCENT_MAX: Final = 10_000
VALUE_MAX: Final = 10**15
DAYS: Final = (7, 30, 90)  # the lengths of the pages' periods
MONEY: Final = ("revenue", "mrr")
METRIC_NAMES: Final = {"mau": "MAU", "dau": "DAU", "signups": "signups", "revenue": "gross revenue", "mrr": "MRR"}


class Kind(StrEnum):
    NO_EVENTS = "no_events"
    DELIVERIES_FAILING = "deliveries_failing"
    THRESHOLD = "threshold"
    CHANGE = "change"


class Side(StrEnum):
    ABOVE = "above"
    BELOW = "below"


class Direction(StrEnum):
    EITHER = "either"
    UP = "up"
    DOWN = "down"


class _Terms(msgspec.Struct, frozen=True, tag_field="kind", kw_only=True):
    cooldown_h: int = 24  # It sends nothing more for this long, even if it stays true.

    @property
    def kind(self) -> str:
        return str(self.__struct_config__.tag)


class NoEvents(_Terms, frozen=True, tag=Kind.NO_EVENTS.value):
    hours: int


class DeliveriesFailing(_Terms, frozen=True, tag=Kind.DELIVERIES_FAILING.value):
    hours: int


class Threshold(_Terms, frozen=True, tag=Kind.THRESHOLD.value):
    metric: str
    days: int
    side: Side
    value: int  # in minor units for money; DAU is the average over the days
    currency: str | None = None

    @property
    def limit(self) -> int:
        """Return the value in the unit in which the metric is read: DAU in tenths."""
        return self.value * 10 if self.metric == "dau" else self.value


class Change(_Terms, frozen=True, tag=Kind.CHANGE.value):
    metric: str
    days: int
    direction: Direction
    percent: int
    currency: str | None = None


Terms = NoEvents | DeliveriesFailing | Threshold | Change

TERMS: Final[msgspec.json.Decoder[Terms]] = msgspec.json.Decoder(Terms)


def check(terms: Terms) -> None:
    """Raise a problem that says what to change, unless the terms are within their bounds."""
    _check(1 <= terms.cooldown_h <= COOLDOWN_HOURS_MAX, f"choose a cooldown of 1 to {COOLDOWN_HOURS_MAX} hours")
    match terms:
        case NoEvents() | DeliveriesFailing():
            _check(1 <= terms.hours <= HOURS_MAX, f"choose 1 to {HOURS_MAX} hours")
        case Threshold():
            check_metric(terms.metric, terms.days, terms.currency)
            _check(0 <= terms.value <= VALUE_MAX, "the value must be a positive number that is not too large")
        case Change():
            check_metric(terms.metric, terms.days, terms.currency)
            _check(1 <= terms.percent <= PERCENT_MAX, f"choose a change of 1 to {PERCENT_MAX} %")


def check_metric(metric: str, days: int, currency: str | None) -> None:
    """Check what a rule watches, before its value is read in the currency's units."""
    _check(metric in METRIC_NAMES, f"choose one of these metrics: {', '.join(METRIC_NAMES)}")
    _check(days in DAYS, f"choose a period of {', '.join(map(str, DAYS))} days")
    if metric in MONEY:
        is_known = currency is not None and is_currency(currency)
        _check(is_known, "name the currency of the amount by its code, such as EUR")
    else:
        _check(currency is None, "leave the currency empty: only gross revenue and MRR have one")


def _check(is_right: bool, advice: str) -> None:  # noqa: FBT001 - reads as an assertion
    if not is_right:
        raise invalid_body(advice)


def minor_units(text: str, currency: str | None) -> int:
    """Return an amount such as `1234.50` in minor units, or a whole number if there is no currency."""
    digits = 0 if currency is None else minor_digits(currency)
    whole, _, rest = text.strip().partition(".")
    is_number = whole.isascii() and whole.isdigit() and len(whole) <= len(str(VALUE_MAX))
    is_fraction = rest == "" or (rest.isascii() and rest.isdigit() and len(rest) <= digits)
    if not is_number or not is_fraction:
        example = "such as 250" if digits == 0 else "such as 1234.50"
        raise invalid_body(f"the value must be a number {example}, without separators")
    return int(whole + rest.ljust(digits, "0"))


def amount_text(metric: str, amount: int, currency: str | None) -> str:
    if currency is not None:
        return money(amount, currency)
    return tenths(amount) if metric == "dau" else count(amount)


def describe(terms: Terms) -> str:
    match terms:
        case NoEvents():
            return f"No events for {counted(terms.hours, 'hour')}"
        case DeliveriesFailing():
            return f"A biller's deliveries fail verification, within {counted(terms.hours, 'hour')}"
        case Threshold():
            over = "" if terms.metric == "mrr" else f" over {terms.days} days"
            value = amount_text(terms.metric, terms.limit, terms.currency)
            return f"{_subject(terms)}{over} is {terms.side} {value}"
        case Change():
            changes = {Direction.EITHER: "changes", Direction.UP: "rises", Direction.DOWN: "falls"}[terms.direction]
            percent = f"{count(terms.percent)}\N{NO-BREAK SPACE}%"
            return f"{_subject(terms)} over {terms.days} days {changes} by more than {percent}"


def _subject(terms: Threshold | Change) -> str:
    name = METRIC_NAMES[terms.metric]
    return name[0].upper() + name[1:] + ("" if terms.currency is None else f" in {terms.currency.upper()}")


class RuleState(msgspec.Struct, frozen=True):
    true_since: int | None = None  # None: it is not true
    sent_at: int | None = None  # kept when it ends, so that one that comes and goes does not send each time
    is_unknown: bool = False  # the numbers could not be read at the last evaluation
    value: str = ""  # what the last evaluation found, for the page


STATE: Final = msgspec.json.Decoder(RuleState)


def after_unknown(state: RuleState) -> RuleState:
    """Return the state after an evaluation without numbers: nothing begins and nothing ends."""
    return msgspec.structs.replace(state, is_unknown=True)


def after_evaluation(state: RuleState, now_ms: int, value: str, *, is_true: bool) -> RuleState:
    """Return the state after an evaluation, before anything is sent."""
    since = (now_ms if state.true_since is None else state.true_since) if is_true else None
    return RuleState(since, state.sent_at, is_unknown=False, value=value)


def should_send(state: RuleState, now_ms: int, cooldown_h: int, *, is_quiet: bool) -> bool:
    """Return whether to send now: the rule is true, it is not a quiet hour, and the cooldown is over."""
    if state.true_since is None or is_quiet:
        return False
    # A last time in the future means that the clock was set back.
    return state.sent_at is None or not 0 <= now_ms - state.sent_at < cooldown_h * HOUR_MS


def after_sending(state: RuleState, now_ms: int) -> RuleState:
    return msgspec.structs.replace(state, sent_at=now_ms)
