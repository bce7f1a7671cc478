"""Encode rows as an Arrow stream for ClickHouse.

The arrays are built from plain buffers: pyarrow's own conversion of lists imports pandas, which takes seconds.
"""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mauve.stores.warehouse import EventRows, Texts
from mauve.stores.warehouse.id_filter import Hashes


def _required(name: str, type_: pa.DataType) -> pa.Field:
    return pa.field(name, type_, nullable=False)


_EVENTS: Final = pa.schema(
    [
        _required("project", pa.dictionary(pa.int32(), pa.string())),
        _required("name", pa.string()),
        _required("received_at", pa.int64()),
        _required("occurred_at", pa.int64()),
        _required("claimed_at", pa.string()),
        _required("user", pa.string()),
        _required("id", pa.string()),
        _required("props", pa.string()),
        _required("seq", pa.uint64()),
    ]
)
_SEQS: Final = pa.schema([_required("seq", pa.uint64())])
_ID_CANDIDATES: Final = pa.schema([_required("id_hash", pa.binary(16)), _required("day", pa.uint16())])
_SEEN: Final = pa.schema(
    [_required("id_hash", pa.binary(16)), _required("received_at", pa.int64()), _required("received_day", pa.uint16())]
)


def events_as_arrow(rows: EventRows) -> bytes:
    arrays = [
        _dictionary(rows.project),
        _texts(rows.name),
        _numbers(pa.int64(), rows.received_at),
        _numbers(pa.int64(), rows.occurred_at),
        _texts(rows.claimed_at),
        _texts(rows.user),
        _texts(rows.id),
        _texts(rows.props),
        _numbers(pa.uint64(), rows.seq),
    ]
    return _as_stream(pa.RecordBatch.from_arrays(arrays, schema=_EVENTS))


def seqs_as_arrow(seqs: Iterable[int]) -> bytes:
    return _as_stream(pa.RecordBatch.from_arrays([_numbers(pa.uint64(), array("Q", seqs))], schema=_SEQS))


def id_candidates_as_arrow(places_by_day: Mapping[int, npt.NDArray[np.intp]], hashes: Hashes) -> bytes:
    places = np.concatenate(list(places_by_day.values()))
    days = np.repeat(np.array(list(places_by_day), np.uint16), [len(each) for each in places_by_day.values()])
    columns = [
        (pa.binary(16), hashes[places].astype(">u8")),
        (pa.uint16(), days),
    ]
    return _as_stream(pa.RecordBatch.from_arrays([_column(*each) for each in columns], schema=_ID_CANDIDATES))


def seen_as_arrow(hashes: Hashes, received_at: npt.NDArray[np.int64], days: npt.NDArray[np.int64]) -> bytes:
    columns = [
        (pa.binary(16), hashes.astype(">u8")),
        (pa.int64(), received_at),
        (pa.uint16(), days.astype(np.uint16)),
    ]
    return _as_stream(pa.RecordBatch.from_arrays([_column(*each) for each in columns], schema=_SEEN))


def _column(type_: pa.DataType, values: npt.NDArray[Any]) -> pa.Array:
    return pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def _dictionary(texts: Sequence[str]) -> pa.Array:
    """Return a dictionary-encoded column for texts with few distinct values."""
    numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    values = Texts()
    values.extend(list(numbers))
    places = np.fromiter(map(numbers.__getitem__, texts), np.int32, len(texts))
    return pa.DictionaryArray.from_arrays(_column(pa.int32(), places), _texts(values))


def _texts(column: Texts) -> pa.Array:
    count = len(column.lengths)
    ends = np.zeros(count + 1, np.int32)
    np.cumsum(np.frombuffer(column.lengths, np.int32), out=ends[1:])
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(ends), pa.py_buffer(b"".join(column.pieces))])


def _numbers(type_: pa.DataType, values: "array[int]") -> pa.Array:
    return pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(values)])


def _as_stream(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue())
