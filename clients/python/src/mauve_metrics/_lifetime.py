"""Close clients when the process ends, and start them again in a child after a fork."""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from contextlib import suppress
from typing import Protocol


class Living(Protocol):
    """A client whose lifetime is tied to the process."""

    def begin_close(self) -> None:
        """Stop accepting items, and deliver the queued ones."""

    def finish_close(self) -> bool:
        """Wait for the delivery, at most for the client's timeout."""

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
    """Close all clients concurrently."""
    living = list(_living)
    for each in living:
        each.begin_close()
    for each in living:
        each.finish_close()


def _start_again_in_child() -> None:
    for each in list(_living):
        with suppress(OSError):  # One failure must not keep the other clients from restarting.
            each.start_again_in_child()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_again_in_child)
