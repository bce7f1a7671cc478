"""A bound on how long a body may take to arrive, at next to no cost for those that arrive at once."""

import asyncio
from typing import Final

SWEEP_EVERY_S: Final = 1.0
_PATIENCE_SWEEPS: Final = 10


class Deadlines:
    """Who is waiting for a body since which sweep. Who waits too long is cancelled, and told why.

    A timer for each request would cost more than reading a small body does.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._sweep = 0
        self._waiting: dict[asyncio.Task[object], int] = {}

    def begin(self) -> asyncio.Task[object]:
        task = asyncio.current_task(self._loop)
        assert task is not None  # noqa: S101 - a request is always answered by a task
        self._waiting[task] = self._sweep
        return task

    def end(self, task: asyncio.Task[object]) -> None:
        self._waiting.pop(task, None)

    def is_overdue(self, task: asyncio.Task[object]) -> bool:
        """Tell whether a cancellation was ours; it is then forgotten."""
        if task in self._waiting:
            return False
        task.uncancel()
        return True

    def sweep(self) -> None:
        """Cancel who has waited for too many sweeps. Called every `SWEEP_EVERY_S`."""
        self._sweep += 1
        overdue = [task for task, since in self._waiting.items() if self._sweep - since > _PATIENCE_SWEEPS]
        for task in overdue:
            del self._waiting[task]
            task.cancel()

    async def sweep_forever(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_EVERY_S)
            self.sweep()
