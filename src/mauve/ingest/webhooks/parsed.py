"""What a delivery says, as values that do not depend on the biller, and the checks that both billers share."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from mauve.core.money import Money
from mauve.ingest.webhooks.bounded_json import Document, Shape, TooLong
from mauve.stores.deliveries import DeliveryResult


class DeliveryWarning(StrEnum):
    # It makes no row.
    PLANE_MISMATCH = "plane_mismatch"
    THIN_EVENT = "thin_event"
    ZERO_AMOUNT = "zero_amount"
    # It makes a row that the owner should check.
    FEE_UNKNOWN = "fee_unknown"
    # A price adds nothing, or more than it should.
    METERED = "metered"
    NO_AMOUNT = "no_amount"
    ONE_TIME = "one_time"
    OTHER_CURRENCY = "other_currency"
    TAX_INCLUSIVE = "tax_inclusive"
    TIERED = "tiered"
    UNKNOWN_INTERVAL = "unknown_interval"
    ITEMS_INCOMPLETE = "items_incomplete"
    NO_ITEMS = "no_items"
    # It cannot be booked.
    AMOUNT_UNUSABLE = "amount_unusable"
    CURRENCY_UNUSABLE = "currency_unusable"
    ID_UNUSABLE = "id_unusable"
    INTERVAL_UNUSABLE = "interval_unusable"
    ITEMS_TOO_MANY = "items_too_many"
    NOT_AN_EVENT = "not_an_event"
    NOT_READ = "not_read"
    OBJECT_UNUSABLE = "object_unusable"
    QUANTITY_UNUSABLE = "quantity_unusable"
    STATUS_UNUSABLE = "status_unusable"


_ID_BYTES_MAX: Final = 255
_STATUS_CHARACTERS_MAX: Final = 128  # The billers' own are far shorter.
_PLAN_CHARACTERS_MAX: Final = 128
_SECONDS_MAX: Final = 253_402_300_799  # the last second of the year 9999

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ParsedPayment:
    """Money that a biller collected."""

    id: str
    user: str | None
    amount: Money  # everything that was paid, above zero
    fee: Money | None  # in a marketplace: the part that was earned; None: all of it
    paid_at: int | None  # epoch ms, as the biller says
    details: Json = field(default_factory=dict)  # stored with the row
    texts: Json = field(default_factory=dict)  # written by customers: stored too, but truncated
    warnings: tuple[DeliveryWarning, ...] = ()


@dataclass(frozen=True, slots=True)
class ParsedSubscription:
    """The state of a subscription at a moment."""

    id: str
    status: str
    mrr: Money
    at: int | None  # epoch microseconds, as the biller says
    rank: bytes  # Of two versions with the same moment, the one with the higher rank is later.
    customer: str | None = None  # the biller's id of the person
    plan: str | None = None  # what was sold, for people to read
    details: Json = field(default_factory=dict)
    texts: Json = field(default_factory=dict)
    warnings: tuple[DeliveryWarning, ...] = ()


@dataclass(frozen=True, slots=True)
class SkippedEvent:
    """An event that makes no row."""

    result: DeliveryResult
    warnings: tuple[DeliveryWarning, ...] = ()


ParsedEvent = ParsedPayment | ParsedSubscription | SkippedEvent
IGNORED: Final = SkippedEvent(DeliveryResult.IGNORED)
NO_MONEY: Final = SkippedEvent(DeliveryResult.IGNORED, (DeliveryWarning.ZERO_AMOUNT,))


class UnusableEventError(Exception):
    """An event that cannot be booked. The warning says why."""

    def __init__(self, warning: DeliveryWarning) -> None:
        super().__init__(warning)
        self.warning = warning


def read_object(document: object, shape: Shape) -> dict[str, Any]:
    """Read the object of the event, which was left unread."""
    found = document.read(shape) if isinstance(document, Document) else None
    if not isinstance(found, dict):
        raise UnusableEventError(DeliveryWarning.OBJECT_UNUSABLE)
    return found


def value_at(value: Any, *names: str) -> Any:  # noqa: ANN401 - any JSON value
    """Return the value under a path of names; None where the path ends early."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def first_present(*values: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return the first value that is not None."""
    return next((value for value in values if value is not None), None)


def required_id(value: object) -> str:
    identifier = optional_id(value)
    if identifier is None:
        raise UnusableEventError(DeliveryWarning.ID_UNUSABLE)
    return identifier


def optional_id(value: Any) -> str | None:  # noqa: ANN401 - any JSON value
    """Return an id, or the id of an object in its place. Refuse one that is too long instead of cutting it."""
    text = value.get("id") if isinstance(value, dict) else value
    if isinstance(text, TooLong) or (isinstance(text, str) and len(text.encode()) > _ID_BYTES_MAX):
        raise UnusableEventError(DeliveryWarning.ID_UNUSABLE)
    return text if isinstance(text, str) and text else None


def status_text(value: object) -> str:
    if not isinstance(value, str) or not value or len(value) > _STATUS_CHARACTERS_MAX:
        raise UnusableEventError(DeliveryWarning.STATUS_UNUSABLE)
    return value


def plan_text(names: Iterable[object]) -> str | None:
    """Return the names of what was sold, each once, truncated; None if there is none."""
    texts = dict.fromkeys(name.strip() for name in names if isinstance(name, str))
    joined = ", ".join(text for text in texts if text)
    return (joined if len(joined) <= _PLAN_CHARACTERS_MAX else f"{joined[: _PLAN_CHARACTERS_MAX - 1]}…") or None


def epoch_seconds(value: object) -> int | None:
    """Return a time within the calendar, or None."""
    return value if type(value) is int and 0 <= value <= _SECONDS_MAX else None
