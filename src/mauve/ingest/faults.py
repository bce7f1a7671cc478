"""Why an item is rejected. A reason names the field, says what to send, and never echoes a value."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from mauve.core.events import PropValue
from mauve.core.money import is_currency
from mauve.core.problems import Fault, RejectionCode

MINOR_UNITS_MAX: Final = 2**53 - 1

NEEDS_SERVER_KEY: Final = Fault(RejectionCode.SERVER_KEY_REQUIRED, "a payment requires a server key")
_NOT_AN_OBJECT: Final = Fault(RejectionCode.NOT_AN_OBJECT, "an item must be a JSON object")
_MINOR_UNITS: Final = f"an integer of minor units from 0 to {MINOR_UNITS_MAX}"
_CURRENCY: Final = "an ISO 4217 code such as eur"
_TIME: Final = "an RFC 3339 date-time with an offset"
_MISSING_FIELD: Final = "Object missing required field `"  # how msgspec's message begins
_GOT_NULL: Final = ", got `null`"
_OUT_OF_RANGE: Final = ("Integer value out of range", "Number out of range")


class _FieldFaults(NamedTuple):
    missing: Fault
    invalid: Fault


def _field(code: RejectionCode, expected: str, name: str = "") -> _FieldFaults:
    name = name or code
    return _FieldFaults(Fault(code, f"{name} is required: {expected}"), Fault(code, f"{name} must be {expected}"))


_EVENT_FIELDS: Final = {
    ".name": _field(RejectionCode.NAME, "a string of 1 to 128 characters"),
    ".user": _field(RejectionCode.USER, "a string of at most 256 characters"),
    ".id": _field(RejectionCode.ID, "a string of at most 256 characters"),
    ".at": _field(RejectionCode.AT, f"{_TIME}, or an integer of epoch milliseconds"),
    ".sent_at": _field(RejectionCode.SENT_AT, f"{_TIME}, or an integer of epoch milliseconds"),
    ".props": _field(RejectionCode.PROPS, "an object of at most 100 keys"),
    ".props[...]": _field(
        RejectionCode.PROPS_VALUE,
        "a string of at most 1024 characters, a number, a boolean or null",
        "each value in props",
    ),
}
AT_INVALID: Final = _EVENT_FIELDS[".at"].invalid
SENT_AT_INVALID: Final = _EVENT_FIELDS[".sent_at"].invalid

_PAYMENT_ID: Final = Fault(RejectionCode.ID, "id is required for a payment: a string of 1 to 256 characters")
_AMOUNT: Final = _field(RejectionCode.AMOUNT, _MINOR_UNITS, "props.amount")
_NEGATIVE_AMOUNT: Final = Fault(
    RejectionCode.AMOUNT, "props.amount must not be negative: refunds are not recorded, revenue is gross of them"
)
_PAYMENT_CURRENCY: Final = _field(RejectionCode.CURRENCY, f"{_CURRENCY}, in lowercase letters", "props.currency")
_UPPERCASE_CURRENCY: Final = Fault(RejectionCode.CURRENCY, "props.currency must be in lowercase letters, such as eur")
_UNKNOWN_PAYMENT_CURRENCY: Final = Fault(
    RejectionCode.CURRENCY, "props.currency is not an ISO 4217 code: send one such as eur"
)
_EARNED: Final = Fault(RejectionCode.EARNED, "props.earned must be a boolean: true or false")

_OBJECT_FIELDS: Final = {
    ".type": _FieldFaults(
        Fault(RejectionCode.TYPE, 'type is required: only "subscription" is supported'),
        Fault(RejectionCode.TYPE, 'type is not supported: only "subscription" is supported'),
    ),
    ".id": _field(RejectionCode.ID, "a string that is not empty"),
    ".status": _field(RejectionCode.STATUS, "a string such as active"),
    ".mrr": _field(RejectionCode.MRR, _MINOR_UNITS),
    ".currency": _field(RejectionCode.CURRENCY, _CURRENCY),
    ".at": _field(RejectionCode.AT, _TIME),
}
UNKNOWN_CURRENCY: Final = Fault(RejectionCode.CURRENCY, "currency is not an ISO 4217 code: send one such as eur")
OBJECT_AT_INVALID: Final = _OBJECT_FIELDS[".at"].invalid


# The messages hold types and limits, never client data: there are few of them.
@lru_cache(maxsize=256)
def event_fault(message: str) -> Fault:
    """Return our own fault for msgspec's message about an event."""
    return _fault(message, _EVENT_FIELDS)


@lru_cache(maxsize=256)
def object_fault(message: str) -> Fault:
    """Return our own fault for msgspec's message about a subscription."""
    return _fault(message, _OBJECT_FIELDS)


def type_fault(type_: object) -> Fault | None:
    """Return the fault of an object that is not a subscription: it comes before those of fields it need not have."""
    faults = _OBJECT_FIELDS[".type"]
    return None if type_ == "subscription" else faults.missing if type_ is None else faults.invalid


def payment_fault(payment_id: str | None, props: Mapping[str, PropValue]) -> Fault | None:
    """Return the first fault of a payment, or None."""
    amount, earned = props.get("amount"), props.get("earned")
    if not payment_id:
        return _PAYMENT_ID
    if type(amount) is not int or not 0 <= amount <= MINOR_UNITS_MAX:  # a bool is an int to isinstance
        return _amount_fault(amount)
    if (fault := _currency_fault(props.get("currency"))) is not None:
        return fault
    if earned is not None and not isinstance(earned, bool):
        return _EARNED
    return None


def _amount_fault(amount: PropValue) -> Fault:
    if amount is None:
        return _AMOUNT.missing
    return _NEGATIVE_AMOUNT if type(amount) is int and amount < 0 else _AMOUNT.invalid


def _currency_fault(currency: PropValue) -> Fault | None:
    if not isinstance(currency, str):
        return _PAYMENT_CURRENCY.missing if currency is None else _PAYMENT_CURRENCY.invalid
    if is_currency(currency):
        return None
    is_uppercase = currency.isascii() and is_currency(currency.lower())
    return _UPPERCASE_CURRENCY if is_uppercase else _UNKNOWN_PAYMENT_CURRENCY


def _fault(message: str, fields: Mapping[str, _FieldFaults]) -> Fault:
    field = _refused_field(message)
    if message.startswith(_OUT_OF_RANGE):
        text = f"{field[1:].removesuffix('[...]')} holds a number that is out of range"
        return Fault(RejectionCode.NUMBER_OUT_OF_RANGE, text)
    if field not in fields:
        return _NOT_AN_OBJECT
    is_missing = message.startswith(_MISSING_FIELD) or _GOT_NULL in message
    return fields[field].missing if is_missing else fields[field].invalid


def _refused_field(message: str) -> str:
    """Return the field that msgspec's message names, such as `.name`; "" for the item itself."""
    if message.startswith(_MISSING_FIELD):
        return "." + message[len(_MISSING_FIELD) : -1]
    _, at, field = message.rpartition(" - at `$")
    return field[:-1] if at else ""
