"""The protocol between the supervisor and its child processes.

The config is a command-line argument, so it holds no secrets. The child's standard input stays open until the
supervisor exits or requests an immediate stop. Its standard output carries one report, then a line every second: a
heartbeat, or the message that its loader hangs. On SIGQUIT, a child writes the stacks of its threads to an unnamed
file that the supervisor also holds open; the handler is C code that needs neither the event loop nor the interpreter
lock.
"""

import asyncio
import dataclasses
import faulthandler
import os
import signal
import sys
import tempfile
import time
from asyncio.subprocess import Process
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Final, Literal

import msgspec

from mauve.config import Settings, settings_from

HEARTBEAT_EVERY_S: Final = 1.0
CHECK_EVERY_S: Final = 1.0
# A longer gap means that this process itself was suspended, so the watched work is not at fault.
_GAP_S_MAX: Final = 2 * CHECK_EVERY_S

_DUMP_SIGNAL: Final = signal.SIGQUIT  # The warehouse engine uses SIGUSR1 and SIGUSR2.
_POLL_EVERY_S: Final = 0.1
_POLLS_MAX: Final = 50
_STACKS_BYTES_MAX: Final = 256 * 1024
_NO_STACKS: Final = "none: the process is stopped, or blocked in a system call"
ChildRole = Literal["core", "ingest", "api", "loader"]
HEARTBEAT: Final = b".\n"  # The event loop is alive.
LOADER_HANGS: Final = b"!\n"  # The event loop is alive, but a load step hangs.


class Watchdog:
    """Detects work that makes no progress. `progress` changes with every step; None if there is nothing to do."""

    def __init__(
        self, hang_s: float, progress: Callable[[], int | None], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._hang_s = hang_s  # 0: never
        self._progress = progress
        self._monotonic = monotonic
        self._last = progress()
        self._checked_at = monotonic()
        self.silent_s = 0.0

    def is_hung(self) -> bool:
        """Check once a second. Time in which this process was suspended does not count."""
        progress, now = self._progress(), self._monotonic()
        passed_s, self._checked_at = now - self._checked_at, now
        if progress is None or progress != self._last:
            self._last, self.silent_s = progress, 0.0
            return False
        self.silent_s += min(passed_s, _GAP_S_MAX)
        return 0 < self._hang_s <= self.silent_s


def dump_stacks_on_signal(descriptor: int) -> None:
    """Write the stack of every thread to the descriptor whenever the signal arrives."""
    faulthandler.register(_DUMP_SIGNAL, file=descriptor, all_threads=True)


def open_stack_file() -> IO[bytes]:
    """Open an unnamed file, in memory if possible: a full disk must not keep a process from starting."""
    if sys.platform != "linux":
        return tempfile.TemporaryFile(buffering=0)
    return os.fdopen(os.memfd_create("stacks"), "r+b", buffering=0)


async def request_stacks(process: Process, file: IO[bytes]) -> str:
    """Ask a child for its stacks and return them once it has written them."""
    with suppress(ProcessLookupError):
        process.send_signal(_DUMP_SIGNAL)
    size = 0
    for _ in range(_POLLS_MAX):
        await asyncio.sleep(_POLL_EVERY_S)
        before, size = size, os.fstat(file.fileno()).st_size
        if 0 < size == before:
            break
    return os.pread(file.fileno(), _STACKS_BYTES_MAX, 0).decode(errors="replace") or _NO_STACKS


class ChildConfig(msgspec.Struct, frozen=True):
    role: ChildRole
    number: int
    data: str
    host: str
    port: int
    ingest_port: int
    is_first: bool = False  # It prepares the installation before any other process starts.
    stacks_fd: int | None = None  # where to write the threads' stacks on request

    @property
    def name(self) -> str:
        return f"{self.role}-{self.number}" if self.role == "ingest" else self.role

    def settings(self) -> Settings:
        return dataclasses.replace(
            settings_from(),
            data=Path(self.data),
            host=self.host,
            port=self.port,
            ingest_port=self.ingest_port,
        )


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    setup_path: str | None = None
    setup_link_printed_by: str | None = None  # another machine
    is_prepared: bool = True  # False: a server is down, and the installation is prepared once it is back


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The child cannot start, and a retry would not help."""

    reason: str
    exit_code: int = 2  # of the service: 2 for a usage error, 1 for an unusable server


Report = Ready | Refused
