"""How far a long command is, on standard error: one line that is written anew, or a line for each stage."""

import sys
import time
from typing import Final

from mauve.maintenance.disk_space import in_words

_EVERY_S: Final = 0.1


class NoProgress:
    """Nobody watches."""

    def begin(self, stage: str, bytes_total: int) -> None:
        pass

    def add(self, byte_count: int) -> None:
        pass


class StageLines:
    """For a log or a pipe."""

    def begin(self, stage: str, bytes_total: int) -> None:
        size = f", {in_words(bytes_total)}" if bytes_total else ""
        sys.stderr.write(f"{stage}{size}\n")

    def add(self, byte_count: int) -> None:
        pass


class RewrittenLine:
    """For a terminal. Used as a context: at its end the line is gone."""

    def __init__(self) -> None:
        self._stage = ""
        self._total = self._done = 0
        self._shown_at = 0.0

    def begin(self, stage: str, bytes_total: int) -> None:
        self._stage, self._total, self._done = stage, bytes_total, 0
        self._show()

    def add(self, byte_count: int) -> None:
        self._done += byte_count
        if time.monotonic() - self._shown_at >= _EVERY_S:
            self._show()

    def end(self) -> None:
        sys.stderr.write("\r\033[K")
        sys.stderr.flush()

    def _show(self) -> None:
        self._shown_at = time.monotonic()
        share = f" {min(100, 100 * self._done // self._total)} % of {in_words(self._total)}" if self._total else ""
        sys.stderr.write(f"\r\033[K{self._stage}{share}")
        sys.stderr.flush()
