"""The rows of an export, as JSON lines or Parquet columns with the same names and values.

Events and payments are valid items for `POST /v1/events`, which ignores unknown fields. Subscriptions are valid for
`POST /v1/objects`, except that their time is a number here.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from mauve.stores.export import EventPage, ExportedPayment, ExportedVersion

_US: Final = 1000  # in a millisecond
_SPACES: Final = bytes.maketrans(b"\r\n", b"  ")
_encoder: Final = msgspec.json.Encoder()
_json: Final = msgspec.json.Decoder(msgspec.Raw)

Raw = msgspec.Raw


class EventLine(msgspec.Struct, tag_field="kind", tag="event", omit_defaults=True, kw_only=True, gc=False):
    name: str
    user: str | None = None
    id: str | None = None
    at: int  # epoch ms of the occurrence, clamped
    props: Raw | str | None = None
    source: str | None = None  # an import
    received_at: int
    claimed_at: str | None = None  # the raw `at`
    counted: bool  # False: a repeat
    seq: int  # unique


class Booked(msgspec.Struct, gc=False):
    amount: int  # minor units
    currency: str
    earned: bool


class PaymentLine(msgspec.Struct, tag_field="kind", tag="payment", omit_defaults=True, kw_only=True, gc=False):
    name: str
    user: str | None = None
    id: str
    at: int
    props: Booked
    source: str
    received_at: int
    claimed_at: str | None = None  # It may exceed 64 bits.
    payload: Raw | str


class SubscriptionLine(
    msgspec.Struct, tag_field="kind", tag="subscription", omit_defaults=True, kw_only=True, gc=False
):
    type: str
    id: str
    status: str
    mrr: int
    currency: str
    at: int  # epoch ms
    at_us: int  # exact
    customer: str | None = None
    plan: str | None = None
    source: str | None = None  # an import
    received_at: int
    payload: Raw | str


def _required(name: str, type_: pa.DataType) -> pa.Field:
    return pa.field(name, type_, nullable=False)


EVENTS: Final = pa.schema(
    [
        _required("name", pa.string()),
        pa.field("user", pa.string()),
        pa.field("id", pa.string()),
        _required("at", pa.int64()),
        pa.field("props", pa.string()),
        pa.field("source", pa.string()),
        _required("received_at", pa.int64()),
        pa.field("claimed_at", pa.string()),
        _required("counted", pa.bool_()),
        _required("seq", pa.uint64()),
    ]
)
PAYMENTS: Final = pa.schema(
    [
        _required("id", pa.string()),
        _required("at", pa.int64()),
        pa.field("user", pa.string()),
        _required("amount", pa.int64()),
        _required("currency", pa.string()),
        _required("earned", pa.bool_()),
        _required("source", pa.string()),
        _required("received_at", pa.int64()),
        pa.field("claimed_at", pa.string()),
        _required("payload", pa.string()),
    ]
)
SUBSCRIPTIONS: Final = pa.schema(
    [
        _required("id", pa.string()),
        _required("at_us", pa.int64()),
        _required("status", pa.string()),
        _required("mrr", pa.int64()),
        _required("currency", pa.string()),
        pa.field("customer", pa.string()),
        pa.field("plan", pa.string()),
        _required("received_at", pa.int64()),
        _required("payload", pa.string()),
        pa.field("source", pa.string()),
        _required("at", pa.int64()),
    ]
)


def event_table(page: EventPage) -> pa.Table:
    """Return the events of a page, which must not be empty."""
    with pa.ipc.open_stream(page.arrow) as stream:
        found = stream.read_all()
    return found.rename_columns(EVENTS.names).cast(EVENTS)


def payment_table(payments: Sequence[ExportedPayment]) -> pa.Table:
    return _table(PAYMENTS, [(*each[:-2], _claim(each), _text(each.payload)) for each in payments])


def subscription_table(versions: Sequence[ExportedVersion]) -> pa.Table:
    return _table(
        SUBSCRIPTIONS, [(*each[:-2], _text(each.payload), each.source, each.at_us // _US) for each in versions]
    )


def event_lines(events: pa.Table) -> bytes:
    columns = [column.to_pylist() for column in events.columns]
    return _encoder.encode_lines(
        [
            EventLine(
                name=name,
                user=user,
                id=id_,
                at=at,
                props=None if props is None else _one_line(props),
                source=source,
                received_at=received_at,
                claimed_at=claimed_at,
                counted=counted,
                seq=seq,
            )
            for name, user, id_, at, props, source, received_at, claimed_at, counted, seq in zip(*columns, strict=True)
        ]
    )


def payment_lines(payments: Iterable[ExportedPayment]) -> bytes:
    return _encoder.encode_lines(
        [
            PaymentLine(
                name="payment",
                user=each.user,
                id=each.id,
                at=each.at,
                props=Booked(each.amount, each.currency, each.earned),
                source=each.source,
                received_at=each.received_at,
                claimed_at=_claim(each),
                payload=_one_line(_text(each.payload)),
            )
            for each in payments
        ]
    )


def subscription_lines(versions: Iterable[ExportedVersion]) -> bytes:
    return _encoder.encode_lines(
        [
            SubscriptionLine(
                type="subscription",
                id=each.id,
                status=each.status,
                mrr=each.mrr,
                currency=each.currency,
                at=each.at_us // _US,
                at_us=each.at_us,
                customer=each.customer,
                plan=each.plan,
                source=each.source,
                received_at=each.received_at,
                payload=_one_line(_text(each.payload)),
            )
            for each in versions
        ]
    )


def _claim(payment: ExportedPayment) -> str | None:
    return None if payment.claimed_at is None else str(payment.claimed_at)


def _one_line(text: str) -> Raw | str:
    """Return JSON as sent, on one line: newlines occur only between values. Any other text becomes a string."""
    encoded = text.encode().translate(_SPACES)
    try:
        return Raw(_json.decode(encoded))
    except (msgspec.DecodeError, RecursionError):
        return text


def _text(payload: bytes) -> str:
    return payload.decode(errors="replace")


def _table(schema: pa.Schema, rows: Sequence[Sequence[Any]]) -> pa.Table:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)
