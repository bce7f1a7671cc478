"""Map a parsed delivery to the ledger entry of a project, with the texts that customers wrote truncated.

A truncated text ends in a mark and leaves a fingerprint of the original: its length and 64 bits of its hash.
"""

import hashlib
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Final, NamedTuple

import msgspec

from mauve.core.app import Environment
from mauve.core.biller import Provider
from mauve.core.money import Money
from mauve.core.times import occurred_at
from mauve.ingest.webhooks.billers import ParsedDelivery
from mauve.ingest.webhooks.parsed import ParsedPayment, ParsedSubscription, SkippedEvent
from mauve.stores.deliveries import Delivery, DeliveryResult
from mauve.stores.ledger import Entry, Payment, SubscriptionVersion

MARK: Final = "#truncated#"
CHARACTERS_MAX: Final = 1024
_TEXTS_MAX: Final = 64
_NAME_CHARACTERS_MAX: Final = 128
_DEPTH_MAX: Final = 3
_HASH_BYTES: Final = 8
_STEPS_BACK_MAX: Final = 64
_JOINER: Final = "\u200d"
_JOINED: Final = frozenset([_JOINER, *map(chr, range(0x1F3FB, 0x1F400))])  # and skin tones
_ENCODER: Final = msgspec.json.Encoder()
PaymentTime = Callable[[int | None, int], int]
"""Returns when a payment counts as made, from the biller's claim and our receive time; epoch ms."""


class TruncatedTexts(NamedTuple):
    texts: dict[str, str]  # by path, such as `customer.name`
    fingerprints: dict[str, dict[str, object]]  # of the texts that were truncated


def truncate_texts(fields: Mapping[str, Any]) -> TruncatedTexts:
    """Return the texts among the fields, by path, each within the limit."""
    kept = TruncatedTexts({}, {})
    for name, text in _leaves(fields):
        kept.texts[name] = text
        if len(text) > CHARACTERS_MAX:
            kept.texts[name] = truncated(text)
            kept.fingerprints[name] = fingerprint(text)
        if len(kept.texts) == _TEXTS_MAX:
            break
    return kept


def truncated(text: str) -> str:
    """Return the beginning of the text, cut between visible characters, and the mark."""
    end = CHARACTERS_MAX - len(MARK)
    for cut in range(end, end - _STEPS_BACK_MAX, -1):
        if not _splits_a_character(text, cut):
            return text[:cut] + MARK
    return text[:end] + MARK


def fingerprint(text: str) -> dict[str, object]:
    encoded = text.encode()
    return {
        "chars": len(text),
        "utf8_bytes": len(encoded),
        "sha256_64": hashlib.sha256(encoded).digest()[:_HASH_BYTES].hex(),
    }


def _splits_a_character(text: str, cut: int) -> bool:
    """Return whether a cut would separate an accent from its letter, or split a joined emoji."""
    following = text[cut]
    return following in _JOINED or text[cut - 1] == _JOINER or unicodedata.category(following).startswith("M")


def _leaves(fields: Mapping[str, Any], path: str = "", depth: int = 1) -> Iterator[tuple[str, str]]:
    for name, value in fields.items():
        full = path + name
        if len(full) > _NAME_CHARACTERS_MAX:
            continue
        if isinstance(value, str) and value:
            yield full, value
        elif isinstance(value, dict) and depth < _DEPTH_MAX:
            yield from _leaves(value, f"{full}.", depth + 1)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The project and biller that deliveries belong to."""

    project: str  # public id
    org_id: str
    environment: Environment
    provider: Provider


@dataclass(frozen=True, slots=True)
class MappedDelivery:
    entry: Entry
    rows: int
    truncated: tuple[str, ...] = ()


def near_arrival(paid_at: int | None, received_at: int) -> int:
    """Clamp the claimed time to the time of arrival, as for every event."""
    return occurred_at(paid_at, None, received_at)


def as_claimed(paid_at: int | None, received_at: int) -> int:
    """Trust the claimed time, however old."""
    return received_at if paid_at is None else paid_at


def map_delivery(
    delivery: ParsedDelivery, endpoint: Endpoint, received_at: int, payment_time: PaymentTime
) -> MappedDelivery:
    """Return the entry to record in one transaction: the rows, and the delivery itself."""
    event = delivery.event
    if isinstance(event, SkippedEvent):
        row = _delivery_row(delivery, endpoint, received_at, event.result, 0)
        return MappedDelivery(Entry(delivery=row), 0)
    kept = truncate_texts(event.texts)
    details = {"type": delivery.type, **event.details, "flags": event.warnings, **kept.texts}
    payload = _ENCODER.encode(details | ({"truncated": kept.fingerprints} if kept.fingerprints else {}))
    entry = _entry(event, endpoint, received_at, payment_time, payload)
    rows = len(entry.payments) + len(entry.subscriptions)
    row = _delivery_row(delivery, endpoint, received_at, DeliveryResult.STORED, rows)
    return MappedDelivery(replace(entry, delivery=row), rows, tuple(kept.fingerprints))


def suspended_entry(delivery: ParsedDelivery, endpoint: Endpoint, received_at: int) -> Entry:
    """Return the entry for a delivery that is acknowledged but not stored."""
    return Entry(delivery=_delivery_row(delivery, endpoint, received_at, DeliveryResult.SUSPENDED, 0))


def _delivery_row(delivery: ParsedDelivery, endpoint: Endpoint, at: int, result: DeliveryResult, rows: int) -> Delivery:
    return Delivery(
        project=endpoint.project,
        provider=endpoint.provider,
        at=at,
        type=delivery.type,
        result=result,
        rows=rows,
        warnings=delivery.event.warnings,
    )


def _entry(
    event: ParsedPayment | ParsedSubscription,
    endpoint: Endpoint,
    received_at: int,
    payment_time: PaymentTime,
    payload: bytes,
) -> Entry:
    if isinstance(event, ParsedSubscription):
        return Entry(subscriptions=[_version(event, endpoint, received_at, payload)])
    paid_at = payment_time(event.paid_at, received_at)
    return Entry(
        payments=[
            Payment(
                org_id=endpoint.org_id,
                project=endpoint.project,
                id=id_,
                digest=sha256(_ENCODER.encode([id_, money.minor, earned, money.currency, event.user])).digest(),
                claimed_at=event.paid_at,
                amount=money.minor,
                currency=money.currency,
                earned=earned,
                user=event.user,
                occurred_at=paid_at,
                received_at=received_at,
                payload=payload,
                source=endpoint.provider,
                # A later delivery of the invoice may show a fee that the first did not: it changes nothing.
                part_of=None if id_ == event.id else event.id,
            )
            for id_, money, earned in _split(event)
        ]
    )


def _split(payment: ParsedPayment) -> list[tuple[str, Money, bool]]:
    """Return what each row holds of a payment: its id, the amount, and whether it is earned."""
    if payment.fee is None:
        return [(payment.id, payment.amount, True)]
    # A marketplace earns the fee and processes the gross.
    return [(payment.id, payment.fee, True), (f"{payment.id}:volume", payment.amount, False)]


def _version(
    subscription: ParsedSubscription, endpoint: Endpoint, received_at: int, payload: bytes
) -> SubscriptionVersion:
    return SubscriptionVersion(
        project=endpoint.project,
        id=subscription.id,
        at=received_at * 1000 if subscription.at is None else subscription.at,
        received_at=received_at,
        status=subscription.status,
        mrr=subscription.mrr.minor,
        currency=subscription.mrr.currency,
        payload=payload,
        rank=subscription.rank,
        customer=subscription.customer,
        plan=subscription.plan,
    )
