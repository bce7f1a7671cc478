"""A process that the supervisor has started: until it is ready, and until it ends or hangs."""

import asyncio
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, Final

import msgspec
import structlog

from mauve.server.child_protocol import BEAT, ChildOrders, Ready, Refused, Report, Role
from mauve.server.heartbeat import LOOK_EVERY_S, Heartbeat
from mauve.server.stacks import stack_file, stacks_of

_MODULES: Final[Mapping[Role, str]] = {"core": "mauve.server.core", "ingest": "mauve.server.worker"}

log = structlog.get_logger()


class ServeRefusedError(Exception):
    """The service cannot start. The message says why and what to do."""


class Child:
    def __init__(self, name: str, process: Process, stacks: IO[bytes], hang_s: float) -> None:
        self.name = name
        self.process = process
        self._stacks = stacks
        self._pulse = Heartbeat(hang_s)

    @classmethod
    async def start(cls, orders: ChildOrders, lock: IO[bytes], hang_s: float) -> "Child":
        stacks = stack_file()
        told = msgspec.structs.replace(orders, stacks_fd=stacks.fileno())
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            _MODULES[orders.role],
            msgspec.json.encode(told).decode(),
            stdin=PIPE,
            stdout=PIPE,
            # The lock is inherited: it is held until the last child is gone, even if we are killed.
            pass_fds=(lock.fileno(), stacks.fileno()),
            # Ctrl-C goes to us alone; we tell the children.
            start_new_session=True,
        )
        return cls(orders.name, process, stacks, hang_s)

    async def ready(self) -> Ready:
        """Return what it reports when it serves. That may take long: tables are brought up to date first."""
        assert self.process.stdout is not None  # noqa: S101 - asked for above
        line = await self.process.stdout.readline()
        if not line:
            raise ServeRefusedError("a process ended before it was ready: see the log above")
        report: Report = msgspec.json.decode(line, type=Report)
        if isinstance(report, Refused):
            raise ServeRefusedError(report.reason)
        return report

    async def ended(self) -> None:
        """Return when it has ended. One that hangs is ended, and where it hung is logged."""
        watching = [asyncio.ensure_future(self._listen()), asyncio.ensure_future(self._watch())]
        try:
            await self.process.wait()
        finally:
            for task in watching:
                task.cancel()
        self._stacks.close()

    def terminate(self) -> None:
        with suppress(ProcessLookupError):
            self.process.terminate()

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self.process.kill()

    async def _listen(self) -> None:
        assert self.process.stdout is not None  # noqa: S101 - asked for above
        while True:
            try:
                line = await self.process.stdout.readline()
            except ValueError:
                continue  # Too long for the reader, which has dropped what it held of it: no beat.
            if not line:
                return
            if line == BEAT:
                self._pulse.heard()

    async def _watch(self) -> None:
        looked_at = time.monotonic()
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            now = time.monotonic()
            if self._pulse.has_stopped(now - looked_at):
                break
            looked_at = now
        await self._end_where_it_hangs()

    async def _end_where_it_hangs(self) -> None:
        stacks = await stacks_of(self.process, self._stacks)
        log.error(
            "process_hangs",
            child=self.name,
            silent_s=round(self._pulse.silent_s),
            stacks=stacks,
            advice="it is ended and started anew; nothing that was acknowledged is lost",
        )
        self.kill()
