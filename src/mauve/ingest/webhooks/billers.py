"""The billers, one table."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import msgspec
import structlog

from mauve.core.app import Environment
from mauve.core.biller import Provider
from mauve.core.secret import Secret
from mauve.ingest.webhooks import biller_a, biller_b
from mauve.ingest.webhooks.bounded_json import BoundError, Part, document_in
from mauve.ingest.webhooks.parsed import Json, Reading, Skipped, UnusableError
from mauve.ingest.webhooks.signatures import Headers, SignatureFlaw, refusal_by_biller_a, refusal_by_biller_b
from mauve.ingest.webhooks.warnings import DeliveryWarning
from mauve.stores.deliveries import DeliveryResult

_TYPE: Final = re.compile(r"[a-z0-9_.]{1,100}", re.ASCII)
_NO_EVENT: Final = Skipped(DeliveryResult.UNUSABLE, (DeliveryWarning.NOT_AN_EVENT,))
_NOT_READ: Final = Skipped(DeliveryResult.UNUSABLE, (DeliveryWarning.NOT_READ,))

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Biller:
    """How one biller signs, and what its deliveries mean."""

    event: Part  # what is read of an event, whatever its type
    refusal: Callable[[Headers, bytes, Secret, int], SignatureFlaw | None]
    reading_of: Callable[[Json], Reading]
    is_live: Callable[[Json], bool | None]


BILLERS: Final[Mapping[Provider, Biller]] = MappingProxyType(
    {
        Provider.BILLER_A: Biller(biller_a.EVENT, refusal_by_biller_a, biller_a.reading_of, biller_a.is_live),
        Provider.BILLER_B: Biller(biller_b.EVENT, refusal_by_biller_b, biller_b.reading_of, biller_b.is_live),
    }
)


@dataclass(frozen=True, slots=True)
class Content:
    """What the body of a delivery says."""

    type: str
    reading: Reading
    environment: Environment | None = None  # as the payload has it; the endpoint decides, not this


def content_of(biller: Biller, body: bytes) -> Content:
    """Read a body that is known to be the biller's; nothing in it can make this raise."""
    try:
        return _content_of(biller, body)
    except (msgspec.DecodeError, RecursionError):
        return Content("unknown", _NO_EVENT)
    except BoundError:
        return Content("unknown", _NOT_READ)
    except Exception:
        # A mistake of ours. The biller would send it for days and then give up on the address, so it is shown instead.
        log.exception("delivery_not_read", bytes=len(body))
        return Content("unknown", _NOT_READ)


def _content_of(biller: Biller, body: bytes) -> Content:
    event = document_in(body).read(biller.event)
    if not isinstance(event, dict):
        return Content("unknown", _NO_EVENT)
    try:
        reading = biller.reading_of(event)
    except UnusableError as error:
        reading = Skipped(DeliveryResult.UNUSABLE, (error.remark,))
    is_live = biller.is_live(event)
    environment = None if is_live is None else Environment.LIVE if is_live else Environment.TEST
    return Content(_type_of(event), reading, environment)


def _type_of(event: dict[str, Any]) -> str:
    type_ = event.get("type")
    return type_ if isinstance(type_, str) and _TYPE.fullmatch(type_) else "unknown"
