"""The billers, one table."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NoReturn

import msgspec

from mauve.core.facts import Plane, Provider
from mauve.core.secret import Secret
from mauve.ingest.webhooks import biller_a, biller_b
from mauve.ingest.webhooks.readings import Json, Reading, Skipped, UnusableError
from mauve.ingest.webhooks.remarks import Remark
from mauve.ingest.webhooks.signatures import Headers, Refusal, refusal_by_biller_a, refusal_by_biller_b
from mauve.stores.deliveries import DeliveryResult

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_TYPE: Final = re.compile(r"[a-z0-9_.]{1,100}", re.ASCII)
_NO_EVENT: Final = Skipped(DeliveryResult.UNUSABLE, (Remark.NOT_AN_EVENT,))


@dataclass(frozen=True, slots=True)
class Biller:
    """How one biller signs, and what its deliveries mean."""

    refusal: Callable[[Headers, bytes, Secret, int], Refusal | None]
    reading_of: Callable[[Json], Reading]
    is_live: Callable[[Json], bool | None]


BILLERS: Final[Mapping[Provider, Biller]] = MappingProxyType(
    {
        Provider.BILLER_A: Biller(refusal_by_biller_a, biller_a.reading_of, biller_a.is_live),
        Provider.BILLER_B: Biller(refusal_by_biller_b, biller_b.reading_of, biller_b.is_live),
    }
)


@dataclass(frozen=True, slots=True)
class Content:
    """What the body of a delivery says."""

    type: str
    reading: Reading
    plane: Plane | None = None  # as the payload has it; the endpoint decides, not this


def content_of(biller: Biller, body: bytes) -> Content:
    """Read a body that is known to be the biller's; nothing in it can make this raise."""
    event = _event_in(body)
    if event is None:
        return Content("unknown", _NO_EVENT)
    try:
        reading = biller.reading_of(event)
    except UnusableError as error:
        reading = Skipped(DeliveryResult.UNUSABLE, (error.remark,))
    except RecursionError:  # It was read, but is nested too deeply to be written again.
        reading = _NO_EVENT
    is_live = biller.is_live(event)
    plane = None if is_live is None else Plane.LIVE if is_live else Plane.TEST
    return Content(_type_of(event), reading, plane)


def _type_of(event: Json) -> str:
    type_ = event.get("type")
    return type_ if isinstance(type_, str) and _TYPE.fullmatch(type_) else "unknown"


def _event_in(body: bytes) -> dict[str, Any] | None:
    try:
        event = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        event = _with_flaws_replaced(body)
    except RecursionError:
        return None
    return event if isinstance(event, dict) else None


def _with_flaws_replaced(body: bytes) -> object:
    """Read what msgspec refuses for half a character in some customer's name: the payment is worth more."""
    try:
        text = json.dumps(json.loads(body.decode(errors="replace"), parse_constant=_refuse), ensure_ascii=False)
        return msgspec.json.decode(_SURROGATE.sub("\ufffd", text))
    except (ValueError, msgspec.DecodeError, RecursionError):
        return None


def _refuse(_name: str) -> NoReturn:
    raise ValueError("NaN and infinities are not JSON")
