"""The table of billers, and the parsing of a delivery by it."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

import msgspec
import structlog

from mauve.core.app import Environment
from mauve.core.biller import Provider
from mauve.core.secret import Secret
from mauve.ingest.webhooks import polar as biller_b
from mauve.ingest.webhooks import stripe as biller_a
from mauve.ingest.webhooks.bounded_json import BoundError, Shape, parse_document
from mauve.ingest.webhooks.parsed import IGNORED, DeliveryWarning, Json, ParsedEvent, SkippedEvent, UnusableEventError
from mauve.ingest.webhooks.signatures import (
    Headers,
    SignatureFailure,
    check_biller_a_signature,
    check_biller_b_signature,
)
from mauve.stores.deliveries import DeliveryResult

_TYPE: Final = re.compile(r"[a-z0-9_.]{1,100}", re.ASCII)
_NOT_AN_EVENT: Final = SkippedEvent(DeliveryResult.UNUSABLE, (DeliveryWarning.NOT_AN_EVENT,))
_NOT_READ: Final = SkippedEvent(DeliveryResult.UNUSABLE, (DeliveryWarning.NOT_READ,))

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Biller:
    """How one biller signs its deliveries, and what they mean."""

    event: Shape  # the fields to read of an event of any type
    check_signature: Callable[[Headers, bytes, Secret, int], SignatureFailure | None]
    parse_event: Callable[[Json], ParsedEvent]
    is_live: Callable[[Json], bool | None]
    event_types: tuple[str, ...]  # the types that are booked: choose these at the biller


BILLERS: Final[Mapping[Provider, Biller]] = MappingProxyType(
    {
        Provider.BILLER_A: Biller(
            biller_a.EVENT, check_biller_a_signature, biller_a.parse_event, biller_a.is_live, biller_a.EVENT_TYPES
        ),
        Provider.BILLER_B: Biller(
            biller_b.EVENT, check_biller_b_signature, biller_b.parse_event, biller_b.is_live, biller_b.EVENT_TYPES
        ),
    }
)


@dataclass(frozen=True, slots=True)
class ParsedDelivery:
    """The content of a delivery's body."""

    type: str
    event: ParsedEvent


def parse_delivery(provider: Provider, body: bytes, environment: Environment) -> ParsedDelivery:
    """Parse a body whose signature is valid, for the environment of its address. Nothing in it can make this raise."""
    try:
        return _parse_delivery(BILLERS[provider], body, environment)
    except (msgspec.DecodeError, RecursionError):
        return ParsedDelivery("unknown", _NOT_AN_EVENT)
    except BoundError:
        return ParsedDelivery("unknown", _NOT_READ)
    except Exception:
        # A bug of ours. On an error the biller would retry for days and then disable the endpoint: show it instead.
        log.exception("delivery_not_read", bytes=len(body))
        return ParsedDelivery("unknown", _NOT_READ)


def _parse_delivery(biller: Biller, body: bytes, environment: Environment) -> ParsedDelivery:
    document = parse_document(body).read(biller.event)
    if not isinstance(document, dict):
        return ParsedDelivery("unknown", _NOT_AN_EVENT)
    try:
        event = biller.parse_event(document)
    except UnusableEventError as error:
        event = SkippedEvent(DeliveryResult.UNUSABLE, (error.warning,))
    if biller.is_live(document) is (environment is Environment.TEST):
        # It claims the other environment: test money never enters live revenue, nor the reverse.
        skipped = event if isinstance(event, SkippedEvent) else IGNORED
        event = replace(skipped, warnings=(*skipped.warnings, DeliveryWarning.PLANE_MISMATCH))
    return ParsedDelivery(_type_of(document), event)


def _type_of(document: dict[str, Any]) -> str:
    type_ = document.get("type")
    return type_ if isinstance(type_, str) and _TYPE.fullmatch(type_) else "unknown"
