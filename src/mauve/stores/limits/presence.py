"""How many processes share a limit: each one that uses it sends heartbeats, as rows or as times of files."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from mauve.stores import StoreUnavailableError

BEAT_EVERY_S: Final = 1.0
ABSENT_AFTER_S: Final = 5.0
USE_S: Final = 30.0
"""How long a process counts as a user of a limit after its last use."""
_SUFFIX: Final = ".alive"

log = structlog.get_logger()


class Presence:
    """Counts the processes that currently use a limit. A thread sends heartbeats while this one does.

    `beat` sends one and returns the number of processes. Of two that begin together, at least one sees the other. If
    `beat` fails, the count does not change.
    """

    def __init__(self, beat: Callable[[], int], *, is_local: bool) -> None:
        self._beat = beat
        self._is_local = is_local  # A heartbeat never waits for a network.
        self._used_at = -USE_S
        self._sharing = 1
        self._has_beaten = True
        self._news = threading.Event()
        self._is_closing = False
        self._thread = threading.Thread(target=self._beat_forever, name="presence", daemon=True)
        self._thread.start()

    def use(self) -> int:
        """Record a use of the limit; return the number of processes using it, including this one."""
        now, used_at = time.monotonic(), self._used_at
        self._used_at = now
        if now - used_at >= USE_S:
            if self._is_local:
                self._try_beat()
            self._news.set()
        return self._sharing

    def close(self) -> None:
        self._is_closing = True
        self._news.set()
        self._thread.join()

    def _beat_forever(self) -> None:
        while not self._is_closing:
            self._news.wait(BEAT_EVERY_S if self._is_used() else None)
            self._news.clear()
            if self._is_used():
                self._try_beat()

    def _is_used(self) -> bool:
        return time.monotonic() - self._used_at < USE_S

    def _try_beat(self) -> None:
        try:
            self._sharing, self._has_beaten = self._beat(), True
        except (StoreUnavailableError, OSError) as error:
            if self._has_beaten:
                advice = "repeated; until then the others count without this process, and allow more than the limit"
                log.warning("presence_not_announced", reason=str(error), advice=advice)
            self._has_beaten = False


def beat_in_files(folder: Path, process: int) -> int:
    """Touch this process's file; return how many files were touched recently."""
    folder.mkdir(mode=0o700, exist_ok=True)
    own = folder / f"{process:03d}{_SUFFIX}"
    own.touch(mode=0o600)
    touched_at = own.stat().st_mtime  # Compared with the others' only: the clock may be wrong.
    times = [path.stat().st_mtime for path in folder.glob(f"*{_SUFFIX}")]
    return sum(abs(touched_at - each) < ABSENT_AFTER_S for each in times)
