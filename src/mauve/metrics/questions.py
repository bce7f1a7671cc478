"""A question, a metric of a project in a window, perhaps for one event, and the encoding of its answer.

A parameter that the metric uses may be given once; a second value is refused as ambiguous. Parameters that the metric
does not use are ignored.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property
from itertools import islice
from typing import Final, NamedTuple

import msgspec

from mauve.core.problems import Code, Problem
from mauve.core.window import Window
from mauve.metrics.registry import LedgerSource, Metric

ROWS_MAX: Final = 100_000
_ROWS_AT_ONCE: Final = 1_000
Row = tuple[str | int, ...]
_encoder: Final = msgspec.json.Encoder()
NAME_CHARACTERS_MAX: Final = 128
_DEFAULT_LENGTH: Final = timedelta(days=29)
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
Parameters = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Question:
    """Equal questions have equal keys: a name that the metric does not use is not part of the key."""

    project: str
    metric: Metric
    window: Window
    name: str | None = None

    @cached_property
    def key(self) -> str:
        first, last = self.window
        # The name comes last because it alone may contain a slash.
        return f"{self.project}/{self.metric.name}/{first}/{last}/{self.name or ''}"

    @property
    def is_money(self) -> bool:
        """Return whether the ledger answers it: no event has to be loaded for it."""
        return isinstance(self.metric.source, LedgerSource)


@dataclass(frozen=True)
class QuestionBatch:
    """One question about several projects, answered together."""

    projects: tuple[str, ...]
    metric: Metric
    window: Window
    name: str | None = None

    @property
    def is_money(self) -> bool:
        return isinstance(self.metric.source, LedgerSource)

    @property
    def questions(self) -> list[Question]:
        return [Question(project, self.metric, self.window, self.name) for project in self.projects]


def batches_of(questions: Iterable[Question], projects_max: int) -> list[QuestionBatch]:
    """Group questions that differ only in the project, up to a number of projects each."""
    projects: dict[tuple[Metric, Window, str | None], list[str]] = {}
    for each in questions:
        projects.setdefault((each.metric, each.window, each.name), []).append(each.project)
    return [
        QuestionBatch(tuple(found[start : start + projects_max]), *asked)
        for asked, found in projects.items()
        for start in range(0, len(found), projects_max)
    ]


def question_from(metric: Metric, project: str, parameters: Parameters, today: date) -> Question:
    """Return the question with every default filled in, so that it means the same after midnight."""
    window = _window_of(metric, parameters, today)
    return Question(project, metric, window, _name_from(parameters) if metric.needs_name else None)


def only(parameters: Parameters, name: str) -> str | None:
    """Return a parameter that may be given at most once."""
    given = parameters.get(name, ())
    if len(given) > 1:
        raise Problem(Code.MALFORMED, f"{name} is given {len(given)} times: give it once")
    return given[0] if given else None


def _window_of(metric: Metric, parameters: Parameters, today: date) -> Window:
    last = _date_from(parameters, "date_to") or today
    if metric.is_windowless:
        # The current value, whatever was asked for: `date_from` is ignored even if it is not a date, and the answer
        # names the one day it is valid for.
        return Window(today, today)
    first = _date_from(parameters, "date_from") or today - _DEFAULT_LENGTH
    if first > last:
        raise Problem(
            Code.MALFORMED,
            f"the window from {first} to {last} ends before it begins: give date_from and date_to in order",
        )
    return Window(first, last)


def _date_from(parameters: Parameters, name: str) -> date | None:
    text = only(parameters, name)
    if text is None:
        return None
    try:
        if _DATE.fullmatch(text):
            return date.fromisoformat(text)
    except ValueError:  # not a calendar day
        pass
    raise Problem(Code.MALFORMED, f"{name} must be a day of the calendar as YYYY-MM-DD")


def _name_from(parameters: Parameters) -> str:
    name = only(parameters, "name")
    if not name:
        raise Problem(Code.MALFORMED, "name is required: give the event to count")
    if len(name) > NAME_CHARACTERS_MAX:
        raise Problem(Code.MALFORMED, f"name has at most {NAME_CHARACTERS_MAX} characters, as every event's has")
    return name


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
