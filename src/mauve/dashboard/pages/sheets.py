"""CSV files: any metric day by day, and the lists of payments and subscriptions.

A file is sent piece by piece, so that a slow client holds only one piece, for a limited time. Money is in minor units,
and the column's name says so. A file is named after the app, its content and the period.
"""

import asyncio
import csv
import io
import re
import time
import unicodedata
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from http import HTTPStatus
from itertools import islice
from typing import Any, Final

import structlog
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from mauve.core.app import App, Environment
from mauve.core.problems import Code, Problem
from mauve.core.window import Window
from mauve.dashboard.charts.figures import ProjectQuestions
from mauve.dashboard.context import MemberContext, environment_of
from mauve.dashboard.pages.app import answers_about, event_name_of, questions_of
from mauve.dashboard.rendering import SECURITY_HEADERS
from mauve.metrics.questions import Question
from mauve.metrics.registry import Metric, metric_named
from mauve.metrics.summaries import Rows, by_currency, by_day
from mauve.query.ask import cannot_be_read
from mauve.stores.cancellation import deadline_at
from mauve.web.compression import accepts_gzip, gzipped_pieces

PIECE_S_MAX: Final = 10.0
"""The time limit for reading a piece from the store, and for the client to receive it."""
ROWS_MAX: Final = 1_000_000
"""Per file. A longer file is cut, and its last line says so."""
PIECE_ROWS: Final = 500  # read and sent together
_CUT: Final = "cut here: choose a shorter period, or filter, for the rest"
# A spreadsheet would run text that starts with one of these as a formula, and clients choose names and ids.
_FORMULA_STARTS: Final = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # the last four are full-width
_MONEY: Final = frozenset({"revenue", "volume", "mrr"})
_NOT_IN_A_SLUG: Final = re.compile(r"[^a-z0-9]+")

Cell = str | int | None
Pieces = Generator[bytes, None, None]

log = structlog.get_logger()


class FileResponse(Response):
    """A file whose pieces are generated in a thread, each after the client has received the previous one.

    If a piece fails or is not received in time, the connection is closed, so that the client notices the truncation.
    """

    def __init__(self, pieces: Pieces, headers: Mapping[str, str]) -> None:
        super().__init__(status_code=HTTPStatus.OK, headers=headers)
        del self.headers["content-length"]  # It is not known yet.
        self._pieces = pieces
        self._threads: Executor | None = None
        self._on_end: Callable[[], None] = lambda: None

    def run_in(self, threads: Executor, on_end: Callable[[], None]) -> None:
        """Set the threads that generate the pieces, and a function that is always called at the end."""
        self._threads, self._on_end = threads, on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the interface
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            while scope["method"] != "HEAD" and (piece := await self._next_piece()):
                message = {"type": "http.response.body", "body": piece, "more_body": True}
                await asyncio.wait_for(send(message), PIECE_S_MAX)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            log.warning("file_not_taken", timeout_s=PIECE_S_MAX)
        finally:
            self._pieces.close()
            self._on_end()

    async def _next_piece(self) -> bytes:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._make_piece)

    def _make_piece(self) -> bytes:
        with deadline_at(time.monotonic() + PIECE_S_MAX):
            return next(self._pieces, b"")


def show_sheet(context: MemberContext) -> Response:
    """Export a metric: the API's rows, plus a zero for each missing day."""
    metric = metric_named(context.path["metric"])
    question = _question(context, questions_of(context), metric)
    rows = answers_about(context, context.app(), [question]).rows(question)
    if rows is None:
        raise cannot_be_read()
    filled = rows_of_every_day(metric, rows, question.window)
    cells = ([row[column] for column in metric.columns] for row in filled)
    name = sheet_name(context, context.app(), metric.name, question.window)
    return sheet(context, name, [column_title(column) for column in metric.columns], cells)


def sheet(context: MemberContext, name: str, titles: Sequence[str], rows: Iterable[Sequence[Cell]]) -> FileResponse:
    """Return a CSV file. The rows are read while it is sent."""
    headers = {
        **SECURITY_HEADERS,
        "content-type": "text/csv; charset=utf-8",
        "content-disposition": f'attachment; filename="{name}.csv"',
        "vary": "accept-encoding",
    }
    pieces = csv_pieces(titles, rows)
    if accepts_gzip(context.request.headers.get("accept-encoding", "")):
        return FileResponse(gzipped_pieces(pieces), {**headers, "content-encoding": "gzip"})
    return FileResponse(pieces, headers)


def sheet_name(context: MemberContext, app: App, content: str, window: Window) -> str:
    """Return a file name without its ending, such as `my-app-revenue-2026-11-01-2026-11-30`."""
    environment = ("test",) if environment_of(context) is Environment.TEST else ()
    return "-".join((slug_of(app), *environment, content, str(window.first), str(window.last)))


def slug_of(app: App) -> str:
    """Return the app's name in portable file name characters, or its id if there are none."""
    ascii_name = unicodedata.normalize("NFKD", app.name).encode("ascii", "ignore").decode().lower()
    return _NOT_IN_A_SLUG.sub("-", ascii_name).strip("-") or app.app_id


def column_title(column: str) -> str:
    return f"{column}_minor_units" if column in _MONEY else column


def rows_of_every_day(metric: Metric, rows: Rows, window: Window) -> Rows:
    """Return one row per day, with zeros for days that the API omits; for money, one per currency found."""
    if "day" not in metric.columns:
        return rows
    value = metric.columns[-1]
    if "currency" not in metric.columns:
        numbers = by_day(rows, value, window)
        return [{"day": str(day), value: number} for day, number in zip(window.days, numbers, strict=True)]
    return list(_by_day_and_currency(by_currency(rows), value, window))


def _by_day_and_currency(rows: Mapping[str, Rows], value: str, window: Window) -> Iterator[Mapping[str, Any]]:
    amounts = {currency: by_day(rows[currency], value, window) for currency in sorted(rows)}
    for number, day in enumerate(window.days):
        for currency, own in amounts.items():
            yield {"day": str(day), "currency": currency, value: own[number]}


def csv_pieces(titles: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Pieces:
    """Yield a header line and the rows as CSV, many at a time."""
    left, lines = ROWS_MAX, iter(rows)
    piece: list[Sequence[Cell]] = [titles]
    while piece:
        yield _encoded(piece)
        piece = list(islice(lines, min(PIECE_ROWS, left)))
        left -= len(piece)
        if not left and next(lines, None) is not None:
            yield _encoded([*piece, [_CUT]])
            return


def _encoded(rows: Iterable[Sequence[Cell]]) -> bytes:
    text = io.StringIO()
    # Quote every text: a program that expects another separator would split an unquoted text into cells.
    csv.writer(text, quoting=csv.QUOTE_NONNUMERIC).writerows(map(_cell, row) for row in rows)
    return text.getvalue().encode()


def _cell(value: Cell) -> Cell:
    if isinstance(value, str) and value.lstrip().startswith(_FORMULA_STARTS):
        return f"'{value}"
    return value


def _question(context: MemberContext, questions: ProjectQuestions, metric: Metric) -> Question:
    if metric.is_windowless:
        return questions.mrr
    if not metric.needs_name:
        return questions.now(metric.name)
    name = event_name_of(context)
    if not name:
        raise Problem(Code.MALFORMED, "add the name of the event to the address: ?name=…")
    return Question(questions.project, metric, questions.period.window, name)
