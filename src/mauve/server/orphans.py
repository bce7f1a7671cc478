"""Reap orphans: process 1 of a container becomes the parent of every process that loses its own."""

import asyncio
import os
from collections.abc import Callable, Collection
from typing import Final

INIT: Final = 1
_REAP_EVERY_S: Final = 5.0


async def keep_reaping(own: Callable[[], Collection[int]]) -> None:
    """As process 1, reap ended orphans forever; otherwise the system does. `own` are children that others wait for."""
    while os.getpid() == INIT:
        await asyncio.sleep(_REAP_EVERY_S)
        reap(own())


def reap(own: Collection[int]) -> None:
    """Reap ended children up to the first of our own: its exit code belongs to who waits for it."""
    try:
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and ended.si_pid not in own:
            os.waitpid(ended.si_pid, 0)
    except ChildProcessError:
        return  # There are no children at all.
