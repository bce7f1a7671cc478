"""Rows as an Arrow stream, which ClickHouse reads.

The arrays are made from plain buffers: pyarrow's own conversion of lists imports pandas, which costs seconds.
"""

from array import array
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from mauve.stores.warehouse import EventRows, Texts


def _required(name: str, type_: pa.DataType) -> pa.Field:
    return pa.field(name, type_, nullable=False)


_EVENTS: Final = pa.schema(
    [
        _required("project", pa.string()),
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


def events_as_arrow(rows: EventRows) -> bytes:
    arrays = [
        _texts(_column_of(rows.project)),
        _texts(rows.name),
        _numbers(pa.int64(), rows.received_at),
        _numbers(pa.int64(), rows.occurred_at),
        _texts(rows.claimed_at),
        _texts(rows.user),
        _texts(_column_of(rows.id)),
        _texts(rows.props),
        _numbers(pa.uint64(), rows.seq),
    ]
    return _as_stream(pa.RecordBatch.from_arrays(arrays, schema=_EVENTS))


def seqs_as_arrow(seqs: Iterable[int]) -> bytes:
    return _as_stream(pa.RecordBatch.from_arrays([_numbers(pa.uint64(), array("Q", seqs))], schema=_SEQS))


def _column_of(texts: Sequence[str]) -> Texts:
    column = Texts()
    column.extend(texts)
    return column


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
