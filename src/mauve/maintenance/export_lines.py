"""The rows of an export, as JSON lines or Parquet columns with the same names and values.

Events and payments are valid items for `POST /v1/events`, which ignores unknown fields. Subscriptions are valid for
`POST /v1/objects`, except that their time is a number here.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from mauve.stores.export import EventPage, ExportedPayment, ExportedVersion

_US: Final = 1000  # in a millisecond
_SPACES: Final = bytes.maketrans(b"\r\n", b"  ")
_BOOKED: Final = ("amount", "currency", "earned")
_TYPES: Final = {  # text unless listed here
    **dict.fromkeys(("at", "at_us", "received_at", "amount", "mrr"), pa.int64()),
    **dict.fromkeys(("counted", "earned"), pa.bool_()),
    "seq": pa.uint64(),
}
_encoder: Final = msgspec.json.Encoder()
_json: Final = msgspec.json.Decoder(msgspec.Raw)

Row = Mapping[str, Any]


def _schema(names: Sequence[str], *, optional: Sequence[str]) -> pa.Schema:
    fields = [pa.field(name, _TYPES.get(name, pa.string()), nullable=name in optional) for name in names]
    return pa.schema(fields)


SCHEMAS: Final = {
    "event": _schema(
        ("name", "user", "id", "at", "props", "source", "received_at", "claimed_at", "counted", "seq"),
        optional=("user", "id", "props", "source", "claimed_at"),
    ),
    "payment": _schema(
        ("id", "at", "user", *_BOOKED, "source", "received_at", "claimed_at", "payload"),
        optional=("user", "claimed_at"),
    ),
    "subscription": _schema(
        ("id", "at_us", "status", "mrr", "currency", "customer", "plan", "received_at", "payload", "source", "at"),
        optional=("customer", "plan", "source"),
    ),
}


def event_table(page: EventPage) -> pa.Table:
    """Return the events of a page, which must not be empty."""
    with pa.ipc.open_stream(page.arrow) as stream:
        found = stream.read_all()
    return found.rename_columns(SCHEMAS["event"].names).cast(SCHEMAS["event"])


def payment_table(payments: Sequence[ExportedPayment]) -> pa.Table:
    return _table("payment", [(*each[:-2], _claim(each), _text(each.payload)) for each in payments])


def subscription_table(versions: Sequence[ExportedVersion]) -> pa.Table:
    return _table(
        "subscription", [(*each[:-2], _text(each.payload), each.source, each.at_us // _US) for each in versions]
    )


def json_lines(kind: str, rows: pa.Table) -> bytes:
    """Return the rows of a table as lines, without fields that have no value."""
    lines = ({"kind": kind, **_FIELDS[kind](row)} for row in rows.to_pylist())
    return _encoder.encode_lines([{name: value for name, value in line.items() if value is not None} for line in lines])


def _event(row: Row) -> Row:
    return row if row["props"] is None else {**row, "props": _one_line(row["props"])}


def _payment(row: Row) -> Row:
    return {
        "name": "payment",
        **_fields(row, "user", "id", "at"),
        "props": _fields(row, *_BOOKED),
        **_fields(row, "source", "received_at", "claimed_at"),
        "payload": _one_line(row["payload"]),
    }


def _subscription(row: Row) -> Row:
    return {
        "type": "subscription",
        **_fields(row, "id", "status", "mrr", "currency", "at", "at_us", "customer", "plan", "source", "received_at"),
        "payload": _one_line(row["payload"]),
    }


_FIELDS: Final[Mapping[str, Callable[[Row], Row]]] = {
    "event": _event,
    "payment": _payment,
    "subscription": _subscription,
}


def _fields(row: Row, *names: str) -> Row:
    return {name: row[name] for name in names}


def _claim(payment: ExportedPayment) -> str | None:
    """Return the raw `at` as text: it may exceed 64 bits."""
    return None if payment.claimed_at is None else str(payment.claimed_at)


def _one_line(text: str) -> msgspec.Raw | str:
    """Return JSON as sent, on one line: newlines occur only between values. Any other text becomes a string."""
    encoded = text.encode().translate(_SPACES)
    try:
        return msgspec.Raw(_json.decode(encoded))
    except (msgspec.DecodeError, RecursionError):
        return text


def _text(payload: bytes) -> str:
    return payload.decode(errors="replace")


def _table(kind: str, rows: Sequence[Sequence[Any]]) -> pa.Table:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMAS[kind], strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMAS[kind])
