"""Rows → the bytes of an answer."""

from collections.abc import Iterable
from itertools import islice
from typing import Final

import msgspec

from mauve.core.problems import Code, Problem
from mauve.metrics.questions import Question

ROWS_MAX: Final = 100_000
Row = tuple[str | int, ...]

_encoder: Final = msgspec.json.Encoder()


def body_of(question: Question, rows: Iterable[Row]) -> bytes:
    """Return the answer as it is sent and kept. Whole numbers keep any size."""
    taken = list(islice(rows, ROWS_MAX + 1))
    if len(taken) > ROWS_MAX:
        raise Problem(Code.MALFORMED, f"the answer has more than {ROWS_MAX} rows: ask for fewer days")
    columns = question.metric.columns
    return _encoder.encode(
        {
            "ok": True,
            "metric": question.metric.name,
            "project": question.project,
            "date_from": question.window.first.isoformat(),
            "date_to": question.window.last.isoformat(),
            "data": [dict(zip(columns, row, strict=True)) for row in taken],
        }
    )
