"""Build the items of a call, or raise if the service would reject them. Pure: no clock, no I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from math import isfinite
from numbers import Number
from typing import Any, Callable, NoReturn, Union

from mauve_metrics._currencies import CURRENCIES

PropValue = Union[str, int, float, bool, None]
Item = dict[str, Any]

SIGNUP = "user_signup"
PAYMENT = "payment"
NAME_CHARACTERS_MAX = 128
ID_CHARACTERS_MAX = 256
PROPS_MAX = 100
TEXT_CHARACTERS_MAX = 1024
MINOR_UNITS_MAX = 2**53 - 1
ITEM_BYTES_MAX = 120 * 1024
SENT_AT_BYTES = len(',"sent_at":1700000000000')

_INTEGER_END = 10**4300  # The service parses no more digits,
_INTEGER_BEFORE = -(10**4299)  # and counts a sign as one.
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_FIRST = datetime.min.replace(tzinfo=timezone.utc) - _EPOCH
_LAST = datetime.max.replace(tzinfo=timezone.utc) - _EPOCH
_SURROGATE = "a string holds a lone surrogate, which is not a character: remove it"
_NAME_SHOWN = 40  # characters of a property's name in a log line
_PAYMENT_PROPS = ("amount", "currency", "earned")
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False)


def event_item(name: str, user: str | None, props: Mapping[str, PropValue] | None, id_: str, at_ms: int) -> Item:
    """Return an event as it is sent, without `sent_at`."""
    _check_text("name", name, NAME_CHARACTERS_MAX)
    if not name:
        raise ValueError("name must not be empty: say what happened")
    _check_text("id", id_, ID_CHARACTERS_MAX)
    item: Item = {"name": name}
    if user is not None:
        _check_text("user", user, ID_CHARACTERS_MAX)
        if user:
            item["user"] = user
    item["id"] = id_
    item["at"] = at_ms
    if props is not None:
        item["props"] = _checked_props(props)
    if name == PAYMENT:
        _check_payment(item)
    return item


def check_behavior(name: str, *, needs_user: bool, has_user: bool) -> None:
    """Raise if the name is reserved for `payment()`, or a user is missing."""
    if name == PAYMENT:
        raise ValueError("name must not be payment: call payment()")
    if needs_user and not has_user:
        raise ValueError("user must not be empty: signups count distinct users, so pass the id of the new one")


def sendable(
    user: object, props: object, note: Callable[[str], None]
) -> tuple[str | None, Mapping[str, PropValue] | None]:
    """Return the user and props, converted where possible, without the properties that cannot be sent.

    Note each change. Leave other invalid values for `event_item` to refuse.
    """
    is_number = isinstance(user, (int, float, Number)) and not isinstance(user, bool)
    if is_number and not (isinstance(user, float) and not isfinite(user)):
        note("user is a number, and is sent as text: pass a string")
        user = str(int(user)) if isinstance(user, float) and user.is_integer() else str(user)
    if isinstance(props, Mapping):
        props = _sendable_props(dict(props), note)
    return user, props  # type: ignore[return-value] # checked by `event_item`


def payment_props(
    amount: int, currency: str, *, earned: bool, props: Mapping[str, PropValue] | None
) -> dict[str, PropValue]:
    """Return the props of a payment, to be checked as part of its event."""
    _check_minor_units("amount", amount)
    if props is not None and not isinstance(props, Mapping):
        _refuse_type("props", "a mapping", props)
    further = dict(props or {})
    repeated = [name for name in _PAYMENT_PROPS if name in further]
    if repeated:
        raise ValueError(f"props must not hold {repeated[0]}: pass it as an argument of payment()")
    if not isinstance(earned, bool):
        _refuse_type("earned", "True or False", earned)
    said: dict[str, PropValue] = {"amount": amount, "currency": currency}
    return {**said, **further} if earned else {**said, "earned": False, **further}


def subscription_item(id_: str, status: str, mrr: int, currency: str, at: str) -> Item:
    """Return the state of a subscription as it is sent."""
    for name, value in (("id", id_), ("status", status), ("currency", currency)):
        if not isinstance(value, str):
            _refuse_type(name, "a string", value)
    if not id_:
        raise ValueError("id must not be empty: give the subscription's id at the biller")
    _check_minor_units("mrr", mrr)
    if not currency.isascii() or currency.lower() not in CURRENCIES:
        raise ValueError("currency must be an ISO 4217 code such as eur")
    return {"type": "subscription", "id": id_, "status": status, "mrr": mrr, "currency": currency, "at": at}


def encoded(item: Item) -> bytes:
    """Return the item as compact JSON; raise if it is too large."""
    try:
        body = _ENCODER.encode(item).encode()
    except UnicodeEncodeError:
        raise ValueError(_SURROGATE) from None
    if len(body) > ITEM_BYTES_MAX - SENT_AT_BYTES:
        raise ValueError(f"the item takes {len(body)} bytes: at most {ITEM_BYTES_MAX - SENT_AT_BYTES} are allowed")
    return body


def batch_body(bodies: Sequence[bytes], sent_at_ms: int | None) -> bytes:
    """Return the body of a request with the items. Add the time of sending to each, if it is given."""
    if sent_at_ms is not None:
        sent_at = b',"sent_at":%d}' % sent_at_ms
        bodies = [body[:-1] + sent_at for body in bodies]
    return b"[%b]" % b",".join(bodies)


def epoch_ms(at: datetime) -> int:
    """Return the epoch milliseconds of a time with a timezone."""
    return _since_epoch(at) // timedelta(milliseconds=1)


def rfc_3339(at: datetime) -> str:
    """Return a time with a timezone as UTC text, to the microsecond."""
    return (_EPOCH + _since_epoch(at)).isoformat(timespec="microseconds")


def _since_epoch(at: datetime) -> timedelta:
    if not isinstance(at, datetime):
        _refuse_type("at", "a datetime", at)
    if at.utcoffset() is None:
        raise ValueError("at must have a timezone: pass datetime.now(timezone.utc), for example")
    since = at - _EPOCH
    if not _FIRST <= since <= _LAST:
        raise ValueError("at must be in the years 1 to 9999, UTC")
    return since


def _sendable_props(props: Mapping[Any, Any], note: Callable[[str], None]) -> dict[str, PropValue]:
    kept: dict[str, PropValue] = {}
    for key, value in props.items():
        if len(kept) == PROPS_MAX:
            note(f"props beyond {PROPS_MAX} keys are left out")
            break
        name = f"the property {key[:_NAME_SHOWN]!r}" if isinstance(key, str) else "a property"
        if isinstance(value, str) and len(value) > TEXT_CHARACTERS_MAX:
            value = value[:TEXT_CHARACTERS_MAX]  # noqa: PLW2901 - as it is sent
            note(f"{name} is truncated to {TEXT_CHARACTERS_MAX} characters")
        try:
            _check_prop(key, value)
            _ENCODER.encode({key: value}).encode()
        except (TypeError, ValueError) as error:
            note(f"{name} is left out: {_about(error)}")
        else:
            kept[key] = value
    return kept


def _checked_props(props: Mapping[str, PropValue]) -> dict[str, PropValue]:
    if not isinstance(props, Mapping):
        _refuse_type("props", "a mapping", props)
    copy = dict(props)
    if len(copy) > PROPS_MAX:
        raise ValueError(f"props must hold at most {PROPS_MAX} keys")
    for key, value in copy.items():
        _check_prop(key, value)
    return copy


def _check_prop(key: str, value: PropValue) -> None:
    if not isinstance(key, str):
        _refuse_type("each key of props", "a string", key)
    if isinstance(value, str):
        if len(value) > TEXT_CHARACTERS_MAX:
            raise ValueError(f"a string in props must have at most {TEXT_CHARACTERS_MAX} characters")
    elif isinstance(value, float):
        if not isfinite(value):
            raise ValueError("a number in props must be finite: JSON has no NaN and no infinity")
    elif isinstance(value, int):
        if not _INTEGER_BEFORE < value < _INTEGER_END:
            raise ValueError("an integer in props must have at most 4300 digits, of which the sign counts as one")
    elif value is not None:
        _refuse_type("each value in props", "a string, a number, a boolean or None", value)


def _check_payment(item: Item) -> None:
    if not item["id"]:
        raise ValueError("id must not be empty for a payment: give one that identifies it, such as the invoice's")
    props = item.get("props", {})
    _check_minor_units("amount", props.get("amount"))
    currency, earned = props.get("currency"), props.get("earned")
    if not isinstance(currency, str):
        _refuse_type("currency", "a string", currency)
    if currency not in CURRENCIES:
        raise ValueError("currency must be an ISO 4217 code in lowercase letters, such as eur")
    if earned is not None and not isinstance(earned, bool):
        _refuse_type("earned", "True or False", earned)


def _check_minor_units(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        _refuse_type(name, "a whole number of minor units", value)
    if not 0 <= value <= MINOR_UNITS_MAX:
        raise ValueError(f"{name} must be from 0 to {MINOR_UNITS_MAX} minor units")


def _check_text(name: str, value: object, characters_max: int) -> None:
    if not isinstance(value, str):
        _refuse_type(name, "a string", value)
    if len(value) > characters_max:
        raise ValueError(f"{name} must have at most {characters_max} characters")


def _about(error: Exception) -> str:
    return _SURROGATE if isinstance(error, UnicodeEncodeError) else str(error)


def _refuse_type(name: str, expected: str, value: object) -> NoReturn:
    raise TypeError(f"{name} must be {expected}, not {type(value).__name__}")
