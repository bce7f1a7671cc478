"""Encode rows as an Arrow stream for ClickHouse.

The arrays are built from plain buffers: pyarrow's own conversion of lists imports pandas, which takes seconds.
"""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mauve.stores.warehouse import EventRows, Texts
from mauve.stores.warehouse.id_filter import Hashes


def events_as_arrow(rows: EventRows) -> bytes:
    return _as_stream(
        project=_dictionary(rows.project),
        name=_texts(rows.name),
        received_at=_column(pa.int64(), rows.received_at),
        occurred_at=_column(pa.int64(), rows.occurred_at),
        claimed_at=_texts(rows.claimed_at),
        user=_texts(rows.user),
        id=_texts(rows.id),
        props=_texts(rows.props),
        seq=_column(pa.uint64(), rows.seq),
    )


def seqs_as_arrow(seqs: Iterable[int]) -> bytes:
    return _as_stream(seq=_column(pa.uint64(), array("Q", seqs)))


def id_candidates_as_arrow(places_by_day: Mapping[int, npt.NDArray[np.intp]], hashes: Hashes) -> bytes:
    places = np.concatenate(list(places_by_day.values()))
    days = np.repeat(np.array(list(places_by_day), np.uint16), [len(each) for each in places_by_day.values()])
    return _as_stream(id_hash=_hashes(hashes[places]), day=_column(pa.uint16(), days))


def seen_as_arrow(hashes: Hashes, received_at: npt.NDArray[np.int64], days: npt.NDArray[np.int64]) -> bytes:
    return _as_stream(
        id_hash=_hashes(hashes),
        received_at=_column(pa.int64(), received_at),
        received_day=_column(pa.uint16(), days.astype(np.uint16)),
    )


def _column(type_: pa.DataType, values: "array[int] | npt.NDArray[Any]") -> pa.Array:
    return pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def _hashes(hashes: Hashes) -> pa.Array:
    return _column(pa.binary(16), hashes.astype(">u8"))


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


def _as_stream(**columns: pa.Array) -> bytes:
    schema = pa.schema([pa.field(name, column.type, nullable=False) for name, column in columns.items()])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as stream:
        stream.write_batch(pa.RecordBatch.from_arrays(list(columns.values()), schema=schema))
    return bytes(sink.getvalue())
