"""The output of commands: a result on standard output, as text or JSON, and progress on standard error."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from mauve.maintenance import Progress
from mauve.maintenance.disk_space import format_bytes

if TYPE_CHECKING:
    from mauve.maintenance.erase import Erased

_REDRAW_EVERY_S: Final = 0.1


def print_result(value: Any, *, as_json: bool, text: str) -> None:  # noqa: ANN401 - anything that msgspec can encode
    """Print the result once: as JSON for programs, or as text for people."""
    click.echo(msgspec.json.encode(value).decode() if as_json else text)


def printable(text: str) -> str:
    """Escape every character that is not printable, so that the text cannot control the terminal."""
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 event`, `2 events`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def counts_of(erased: "Erased") -> str:
    """Return what was erased or deleted: `1 event, 2 payments, …`."""
    names = ("events", "payments", "subscription_versions", "dead_letters", "damaged_records")
    return ", ".join(counted(getattr(erased, name), name[:-1].replace("_", " ")) for name in names)


def table(headings: Sequence[str], rows: Sequence[Sequence[object]], if_empty: str) -> str:
    """Return aligned columns, or `if_empty` if there are no rows."""
    if not rows:
        return if_empty
    lines = [list(headings), *[[printable(str(cell)) for cell in row] for row in rows]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def utc_time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


class StageLines(Progress):
    """Prints one line per stage, for a log or a pipe."""

    def __init__(self, format_total: Callable[[int], str] = format_bytes) -> None:
        self._format_total = format_total

    def begin(self, stage: str, total: int) -> None:
        size = f", {self._format_total(total)}" if total else ""
        sys.stderr.write(f"{stage}{size}\n")


class StatusLine(Progress):
    """Redraws one line on a terminal; `end` clears it."""

    def __init__(self, format_total: Callable[[int], str] = format_bytes) -> None:
        self._format_total = format_total
        self._stage = ""
        self._total = self._done = 0
        self._drawn_at = 0.0

    def begin(self, stage: str, total: int) -> None:
        self._stage, self._total, self._done = stage, total, 0
        self._draw()

    def add(self, count: int) -> None:
        self._done += count
        if time.monotonic() - self._drawn_at >= _REDRAW_EVERY_S:
            self._draw()

    def end(self) -> None:
        sys.stderr.write("\r\033[K")
        sys.stderr.flush()

    def _draw(self) -> None:
        self._drawn_at = time.monotonic()
        percent = min(100, 100 * self._done // self._total) if self._total else 0
        share = f" {percent} % of {self._format_total(self._total)}" if self._total else ""
        sys.stderr.write(f"\r\033[K{self._stage}{share}")
        sys.stderr.flush()


@contextmanager
def shown_progress(*, as_json: bool, format_total: Callable[[int], str] = format_bytes) -> Iterator[Progress]:
    """Show progress: a line on a terminal, a line per stage elsewhere, nothing with JSON."""
    if as_json:
        yield Progress()
    elif not sys.stderr.isatty():
        yield StageLines(format_total)
    else:
        line = StatusLine(format_total)
        try:
            yield line
        finally:
            line.end()
