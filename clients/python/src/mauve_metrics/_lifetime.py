"""Close clients when the process ends, and start them again in a child after a fork."""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from contextlib import suppress
from typing import Protocol


class Living(Protocol):
    """A client, as far as the process's life concerns it."""

    def begin_close(self) -> None:
        """Accept nothing more, and deliver what is queued."""

    def finish_close(self) -> bool:
        """Wait for that, at most as long as the client's timeout."""

    def start_again_in_child(self) -> None:
        """Forget what belongs to the parent process."""


_living: weakref.WeakSet[Living] = weakref.WeakSet()
_closes_in: set[int] = set()  # the children of `multiprocessing`, by process id, that close at their end


def register(living: Living) -> None:
    _living.add(living)


def close_at_exit_of_child() -> None:
    """Close at the end of a child of `multiprocessing`, which runs no exit handlers. Call this in the child."""
    processes = sys.modules.get("multiprocessing.process")
    if processes is None or os.getpid() in _closes_in or processes.parent_process() is None:
        return
    from multiprocessing.util import Finalize  # noqa: PLC0415 - only if the program uses it

    _closes_in.add(os.getpid())
    Finalize(None, _close_all, exitpriority=0)


def _close_all() -> None:
    """Close every client, all at once."""
    living = list(_living)
    for each in living:
        each.begin_close()
    for each in living:
        each.finish_close()


def _start_again_in_child() -> None:
    for each in list(_living):
        with suppress(OSError):  # One client must not keep the others from their new start.
            each.start_again_in_child()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_again_in_child)
