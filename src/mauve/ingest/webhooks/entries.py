"""What was read of a delivery → what the ledger records for a project."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import msgspec

from mauve.core.app import Environment
from mauve.core.biller import Provider
from mauve.core.times import occurred_at
from mauve.ingest.webhooks.billers import Content
from mauve.ingest.webhooks.parsed import BilledPayment, BilledSubscription, Skipped
from mauve.ingest.webhooks.texts import kept_texts
from mauve.ingest.webhooks.warnings import DeliveryWarning
from mauve.stores.deliveries import Delivery, DeliveryResult
from mauve.stores.ledger import Entry, Payment, SubscriptionVersion

_ENCODER: Final = msgspec.json.Encoder()

PaymentMoment = Callable[[int | None, int], int]
"""Returns when a payment counts as made, from what the biller says and when we heard of it; epoch ms."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Whose deliveries they are."""

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
    """Keep a payment near its arrival, like every event."""
    return occurred_at(paid_at, None, received_at)


def as_claimed(paid_at: int | None, received_at: int) -> int:
    """Take the biller's word, as far back as it reaches."""
    return received_at if paid_at is None else paid_at


def mapped(content: Content, endpoint: Endpoint, received_at: int, moment: PaymentMoment) -> MappedDelivery:
    """Return what is to be recorded, all at once, with a note of the delivery itself."""
    reading = content.reading
    if isinstance(reading, Skipped):
        note = _note(content, endpoint, received_at, reading.result, 0)
        return MappedDelivery(Entry(delivery=note), 0)
    kept = kept_texts(reading.texts)
    facts = {"type": content.type, **reading.facts, "flags": reading.flags, **kept.texts}
    payload = _ENCODER.encode(facts | ({"truncated": kept.fingerprints} if kept.fingerprints else {}))
    entry = _entry(reading, endpoint, received_at, moment, payload)
    rows = len(entry.payments) + len(entry.subscriptions)
    note = _note(content, endpoint, received_at, DeliveryResult.STORED, rows)
    return MappedDelivery(replace(entry, delivery=note), rows, tuple(kept.fingerprints))


def suspended(content: Content, endpoint: Endpoint, received_at: int) -> Entry:
    """Return the note of a delivery that is acknowledged and not stored."""
    return Entry(delivery=_note(content, endpoint, received_at, DeliveryResult.SUSPENDED, 0))


def _note(content: Content, endpoint: Endpoint, at: int, result: DeliveryResult, rows: int) -> Delivery:
    other_plane = (DeliveryWarning.PLANE_MISMATCH,) if content.environment not in {None, endpoint.environment} else ()
    return Delivery(
        project=endpoint.project,
        provider=endpoint.provider,
        at=at,
        type=content.type,
        result=result,
        rows=rows,
        warnings=(*content.reading.flags, *other_plane),
    )


def _entry(
    reading: BilledPayment | BilledSubscription,
    endpoint: Endpoint,
    received_at: int,
    moment: PaymentMoment,
    payload: bytes,
) -> Entry:
    if isinstance(reading, BilledSubscription):
        return Entry(subscriptions=[_version(reading, endpoint, received_at, payload)])
    made_at = moment(reading.paid_at, received_at)
    return Entry(
        payments=[
            Payment(
                org_id=endpoint.org_id,
                project=endpoint.project,
                id=share.id,
                digest=_digest(reading, share),
                claimed_at=reading.paid_at,
                amount=share.amount,
                currency=reading.currency,
                earned=share.earned,
                user=reading.user,
                occurred_at=made_at,
                received_at=received_at,
                payload=payload,
                source=endpoint.provider,
                # Another delivery of the invoice may show a fee that the first did not: it moves nothing.
                part_of=None if share.id == reading.id else reading.id,
            )
            for share in _shares(reading)
        ]
    )


class _Share(NamedTuple):
    """What one row holds of a payment."""

    id: str
    amount: int
    earned: bool


def _shares(reading: BilledPayment) -> list[_Share]:
    if reading.fee is None:
        return [_Share(reading.id, reading.amount, earned=True)]
    # A marketplace earns the fee and processes the gross.
    return [
        _Share(reading.id, reading.fee, earned=True),
        _Share(f"{reading.id}:volume", reading.amount, earned=False),
    ]


def _digest(reading: BilledPayment, share: _Share) -> bytes:
    return hashlib.sha256(_ENCODER.encode([*share, reading.currency, reading.user])).digest()


def _version(reading: BilledSubscription, endpoint: Endpoint, received_at: int, payload: bytes) -> SubscriptionVersion:
    return SubscriptionVersion(
        project=endpoint.project,
        id=reading.id,
        at=received_at * 1000 if reading.at is None else reading.at,
        received_at=received_at,
        status=reading.status,
        mrr=reading.mrr,
        currency=reading.currency,
        payload=payload,
        rank=reading.rank,
    )
