"""The supervisor's view of a child process: start it, wait until it is ready, watch it until it exits or hangs."""

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, Final

import msgspec
import structlog

from mauve.server.child_protocol import (
    CHECK_EVERY_S,
    HEARTBEAT,
    LOADER_HANGS,
    ChildConfig,
    ChildRole,
    Ready,
    Refused,
    Report,
    Watchdog,
    open_stack_file,
    request_stacks,
)

_MODULES: Final[Mapping[ChildRole, str]] = {
    "core": "mauve.server.core",
    "ingest": "mauve.server.worker",
    "api": "mauve.server.api",
    "loader": "mauve.server.loader",
}
_reports: Final[msgspec.json.Decoder[Report]] = msgspec.json.Decoder(Report)

log = structlog.get_logger()


class ServeRefusedError(Exception):
    """The service cannot start. The message says why and what to do."""

    def __init__(self, reason: str, exit_code: int = 2) -> None:
        super().__init__(reason)
        self.exit_code = exit_code


class ChildProcess:
    def __init__(self, name: str, process: Process, stacks: IO[bytes], hang_s: float) -> None:
        self.name = name
        self.process = process
        self._stacks = stacks
        self.beats = 0
        self._watchdog = Watchdog(hang_s, lambda: self.beats)

    @classmethod
    async def start(cls, config: ChildConfig, lock: IO[bytes], hang_s: float) -> "ChildProcess":
        stacks = open_stack_file()
        passed = msgspec.structs.replace(config, stacks_fd=stacks.fileno())
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "mauve.server",
            _MODULES[config.role],
            msgspec.json.encode(passed).decode(),
            stdin=PIPE,
            stdout=PIPE,
            # Children inherit the lock: it is held until the last one exits, even if the supervisor is killed.
            pass_fds=(lock.fileno(), stacks.fileno()),
            # Ctrl-C must reach only the supervisor, which then stops its children.
            start_new_session=True,
        )
        return cls(config.name, process, stacks, hang_s)

    async def ready(self) -> Ready:
        """Return the child's report once it serves. There is no time limit, because migrations run first."""
        assert self.process.stdout is not None  # noqa: S101 - requested above
        line = await self.process.stdout.readline()
        if not line:
            raise ServeRefusedError(_early_end(self.name, await self.process.wait()))
        report = _reports.decode(line)
        if isinstance(report, Refused):
            raise ServeRefusedError(report.reason, report.exit_code)
        return report

    async def ended(self) -> None:
        """Wait until the child exits. If it hangs, log where and kill it."""
        watching = [asyncio.ensure_future(self._read_heartbeats()), asyncio.ensure_future(self._watch())]
        try:
            await self.process.wait()
        finally:
            for task in watching:
                task.cancel()
        self._stacks.close()

    def cut_drain_short(self) -> None:
        """Tell a stopping child not to wait for clients to move. Requests in flight are still answered."""
        assert self.process.stdin is not None  # noqa: S101 - requested above
        self.process.stdin.close()

    def terminate(self) -> None:
        with suppress(ProcessLookupError):
            self.process.terminate()

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self.process.kill()

    async def _read_heartbeats(self) -> None:
        assert self.process.stdout is not None  # noqa: S101 - requested above
        while True:
            try:
                line = await self.process.stdout.readline()
            except ValueError:
                continue  # Too long to be a heartbeat; the reader has dropped the line.
            if not line:
                return
            if line == HEARTBEAT:
                self.beats += 1
            elif line == LOADER_HANGS:
                await self._kill_hung("a load step hangs")
                return

    async def _watch(self) -> None:
        while not self._watchdog.is_hung():  # noqa: ASYNC110 - silence is no event
            await asyncio.sleep(CHECK_EVERY_S)
        await self._kill_hung("no heartbeat")

    async def _kill_hung(self, reason: str) -> None:
        stacks = await request_stacks(self.process, self._stacks)
        log.error(
            "process_hangs",
            child=self.name,
            reason=reason,
            silent_s=round(self._watchdog.silent_s),
            stacks=stacks,
            advice="the process is killed and restarted; no acknowledged event is lost",
        )
        self.kill()


def _early_end(name: str, exit_code: int) -> str:
    """Return why a process exited before its report, and what to do."""
    if exit_code >= 0:
        return f"the process {name} exited before it was ready (exit code {exit_code}): see the log above"
    return (
        f"the process {name} was killed by {signal.Signals(-exit_code).name} before it was ready: "
        "check whether the machine is out of memory, and start the service again"
    )
