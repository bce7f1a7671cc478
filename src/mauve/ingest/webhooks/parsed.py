"""What a delivery comes to, before it is a row of anybody's project."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

from mauve.core.money import is_currency
from mauve.ingest.webhooks.bounded_json import Document, Part, TooLong
from mauve.ingest.webhooks.warnings import DeliveryWarning
from mauve.stores.deliveries import DeliveryResult

MINOR_UNITS_MAX: Final = 2**53 - 1
_ID_BYTES_MAX: Final = 255
_STATUS_CHARACTERS_MAX: Final = 128  # the billers' words are far shorter
_SECONDS_MAX: Final = 253_402_300_799  # the last second of the year 9999

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BilledPayment:
    """Money that a biller took in."""

    id: str
    user: str | None
    amount: int  # minor units, all that was paid, above zero
    currency: str
    fee: int | None  # in a marketplace: the part that was earned; None: all of it
    paid_at: int | None  # epoch ms, as the biller says
    facts: Json = field(default_factory=dict)  # kept beside the row
    texts: Json = field(default_factory=dict)  # what customers wrote: kept, but not at any length
    flags: tuple[DeliveryWarning, ...] = ()


@dataclass(frozen=True, slots=True)
class BilledSubscription:
    """What a biller says of a subscription at a moment."""

    id: str
    status: str
    mrr: int
    currency: str
    at: int | None  # epoch microseconds, as the biller says
    rank: bytes  # of two of the same moment the higher is the later one, in whichever order they arrive
    facts: Json = field(default_factory=dict)
    texts: Json = field(default_factory=dict)
    flags: tuple[DeliveryWarning, ...] = ()


@dataclass(frozen=True, slots=True)
class Skipped:
    """A delivery that makes no row."""

    result: DeliveryResult
    flags: tuple[DeliveryWarning, ...] = ()


Reading = BilledPayment | BilledSubscription | Skipped
IGNORED: Final = Skipped(DeliveryResult.IGNORED)
NO_MONEY: Final = Skipped(DeliveryResult.IGNORED, (DeliveryWarning.ZERO_AMOUNT,))


class UnusableError(Exception):
    """Content that cannot be booked as it stands. The remark says what is wrong."""

    def __init__(self, remark: DeliveryWarning) -> None:
        super().__init__(remark)
        self.remark = remark


def held_in(document: object, shape: Part) -> Any:  # noqa: ANN401 - whatever JSON may hold
    """Return what a shape reads of a part of the event that was left unread; None if there is none."""
    return document.read(shape) if isinstance(document, Document) else None


def found(value: Any, *names: str) -> Any:  # noqa: ANN401 - whatever JSON may hold
    """Return what stands under a path of names; None where the path ends early."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def first_present(*values: Any) -> Any:  # noqa: ANN401 - whatever JSON may hold
    """Return the first that is neither absent nor null."""
    return next((value for value in values if value is not None), None)


def minor_units(value: object) -> int:
    """Return an amount of money, which is never guessed, rounded or coerced."""
    if type(value) is not int or not 0 <= value <= MINOR_UNITS_MAX:  # a bool is an int to isinstance
        raise UnusableError(DeliveryWarning.AMOUNT_UNUSABLE)
    return value


def exact(amount: Fraction) -> int | str:
    """Return an amount as it is kept beside a row: a whole number, or else the fraction."""
    return amount.numerator if amount.denominator == 1 else str(amount)


def currency_code(value: object) -> str:
    code = value.lower() if isinstance(value, str) and value.isascii() else ""
    if not is_currency(code):
        raise UnusableError(DeliveryWarning.CURRENCY_UNUSABLE)
    return code


def own_id(value: object) -> str:
    """Return the id of what was delivered."""
    identifier = other_id(value)
    if identifier is None:
        raise UnusableError(DeliveryWarning.ID_UNUSABLE)
    return identifier


def other_id(value: Any) -> str | None:  # noqa: ANN401 - whatever JSON may hold
    """Return an id, or that of an object in its place. It is never cut: one too long is not the biller's."""
    text = value.get("id") if isinstance(value, dict) else value
    if isinstance(text, TooLong) or (isinstance(text, str) and len(text.encode()) > _ID_BYTES_MAX):
        raise UnusableError(DeliveryWarning.ID_UNUSABLE)
    return text if isinstance(text, str) and text else None


def status_word(value: object) -> str:
    if not isinstance(value, str) or not value or len(value) > _STATUS_CHARACTERS_MAX:
        raise UnusableError(DeliveryWarning.STATUS_UNUSABLE)
    return value


def epoch_seconds(value: object) -> int | None:
    """Return a moment of the calendar, if it is one."""
    return value if type(value) is int and 0 <= value <= _SECONDS_MAX else None
