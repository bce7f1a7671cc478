"""What a rule watches for: one of four kinds, each with its own terms."""

from enum import StrEnum
from typing import Final

import msgspec

from mauve.core.money import is_currency, minor_digits

RULES_PER_APP_MAX: Final = 20
RULES_PER_ORGANIZATION_MAX: Final = 500
HOURS_MAX: Final = 168
COOLDOWN_HOURS_MAX: Final = 720
PERCENT_MAX: Final = 10_000
VALUE_MAX: Final = 10**15
DAYS: Final = (7, 30, 90)  # the lengths of the pages' periods
COUNTS: Final = ("mau", "dau", "signups")
MONEY: Final = ("revenue", "mrr")
METRICS: Final = (*COUNTS, *MONEY)
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
    cooldown_h: int = 24  # for so long it sends nothing more, even if it stays true


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


class Change(_Terms, frozen=True, tag=Kind.CHANGE.value):
    metric: str
    days: int
    direction: Direction
    percent: int
    currency: str | None = None


Terms = NoEvents | DeliveriesFailing | Threshold | Change

_decoder: Final[msgspec.json.Decoder[Terms]] = msgspec.json.Decoder(Terms)


def packed_terms(terms: Terms) -> str:
    return msgspec.json.encode(terms).decode()


def terms_from(text: str) -> Terms:
    return _decoder.decode(text)


def kind_of(terms: Terms) -> Kind:
    match terms:
        case NoEvents():
            return Kind.NO_EVENTS
        case DeliveriesFailing():
            return Kind.DELIVERIES_FAILING
        case Threshold():
            return Kind.THRESHOLD
        case Change():
            return Kind.CHANGE


class TermsError(ValueError):
    """The terms are wrong. The message says what to change."""


def checked(terms: Terms) -> Terms:
    """Return the terms if they are within their bounds."""
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
    return terms


def check_metric(metric: str, days: int, currency: str | None) -> None:
    """Check what a rule watches, before its value is read in the currency's units."""
    _check(metric in METRICS, f"choose one of these metrics: {', '.join(METRICS)}")
    _check(days in DAYS, f"choose a period of {', '.join(map(str, DAYS))} days")
    if metric in MONEY:
        is_known = currency is not None and is_currency(currency)
        _check(is_known, "name the currency of the amount by its code, such as EUR")
    else:
        _check(currency is None, "leave the currency empty: only gross revenue and MRR have one")


def _check(is_right: bool, advice: str) -> None:  # noqa: FBT001 - reads as an assertion
    if not is_right:
        raise TermsError(advice)


def minor_units(text: str, currency: str | None) -> int:
    """Return an amount such as `1234.50` in minor units, or a whole number where there is no currency."""
    digits = 0 if currency is None else minor_digits(currency)
    whole, _, rest = text.strip().partition(".")
    is_number = whole.isascii() and whole.isdigit() and len(whole) <= len(str(VALUE_MAX))
    is_fraction = rest == "" or (rest.isascii() and rest.isdigit() and len(rest) <= digits)
    if not is_number or not is_fraction:
        example = "such as 250" if digits == 0 else "such as 1234.50"
        raise TermsError(f"the value must be a number {example}, without separators")
    return int(whole + rest.ljust(digits, "0"))
