"""Encode rows as an answer."""

from collections.abc import Iterable
from itertools import islice
from typing import Final, NamedTuple

import msgspec

from mauve.core.problems import Code, Problem
from mauve.metrics.questions import Question

ROWS_MAX: Final = 100_000
_ROWS_AT_ONCE: Final = 1_000
Row = tuple[str | int, ...]

_encoder: Final = msgspec.json.Encoder()


class Body(NamedTuple):
    bytes: bytes  # JSON, as sent and cached
    cut_at: int | None = None  # the number of rows included, if there were more


def body_of(question: Question, rows: Iterable[Row]) -> Body:
    """Return the encoded answer. Integers may have any size.

    Take rows one by one, and no more than the answer may have; only their bytes are held.
    """
    metric = question.metric
    rows_max = metric.rows_max or ROWS_MAX
    rows = iter(rows)
    pieces = list(_encoded(metric.columns, islice(rows, rows_max)))
    has_more = next(rows, None) is not None
    if has_more and metric.rows_max is None:
        raise Problem(Code.MALFORMED, f"the answer has more than {ROWS_MAX} rows: ask for fewer days")
    head = _encoder.encode(
        {
            "ok": True,
            "metric": metric.name,
            "project": question.project,
            "date_from": question.window.first.isoformat(),
            "date_to": question.window.last.isoformat(),
        }
    )
    return Body(b'%b,"data":[%b]}' % (head[:-1], b",".join(pieces)), rows_max if has_more else None)


def _encoded(columns: tuple[str, ...], rows: Iterable[Row]) -> Iterable[bytes]:
    while some := [dict(zip(columns, row, strict=True)) for row in islice(rows, _ROWS_AT_ONCE)]:
        yield _encoder.encode(some)[1:-1]
