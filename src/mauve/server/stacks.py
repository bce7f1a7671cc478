"""Where a process that hangs is: the stack of each of its threads, written by the process itself when it is told to.

The handler is C and waits for nothing, neither for the event loop nor for the interpreter. It writes into a file that
the supervisor holds as well, and that has no name.
"""

import asyncio
import faulthandler
import os
import signal
import sys
import tempfile
from asyncio.subprocess import Process
from contextlib import suppress
from typing import IO, Final

_SIGNAL: Final = signal.SIGQUIT  # The warehouse's engine takes SIGUSR1 and SIGUSR2 for itself.
_RECHECK_EVERY_S: Final = 0.1
_LOOKS_MAX: Final = 50
_BYTES_MAX: Final = 256 * 1024
_NONE: Final = "none: it is stopped, or hangs in the system"


def write_when_told(descriptor: int) -> None:
    """Write every thread's stack there whenever the signal comes."""
    faulthandler.register(_SIGNAL, file=descriptor, all_threads=True)


def stack_file() -> IO[bytes]:
    """Make the file, in memory where that can be: a full disk must keep no process from starting."""
    if sys.platform != "linux":
        return tempfile.TemporaryFile(buffering=0)
    return os.fdopen(os.memfd_create("stacks"), "r+b", buffering=0)


async def stacks_of(process: Process, file: IO[bytes]) -> str:
    """Return the stacks of a child, as soon as it has written them."""
    with suppress(ProcessLookupError):
        process.send_signal(_SIGNAL)
    size = 0
    for _ in range(_LOOKS_MAX):
        await asyncio.sleep(_RECHECK_EVERY_S)
        before, size = size, os.fstat(file.fileno()).st_size
        if 0 < size == before:
            break
    return os.pread(file.fileno(), _BYTES_MAX, 0).decode(errors="replace") or _NONE
