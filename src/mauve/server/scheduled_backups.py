"""Scheduled backups, each in a separate `mauve backup` process.

A separate process does not slow down the core, and ends with it, even if the core is killed.
"""

import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import IO, Any, Final

import msgspec
import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from mauve.config import Settings
from mauve.control import ControlParts
from mauve.core.clock import Clock
from mauve.maintenance.backup_schedule import (
    BackupState,
    Made,
    Schedule,
    after_begin,
    after_failure,
    after_success,
    is_due,
)
from mauve.server.child import repeat
from mauve.wiring.backups import backup_state, save_backup_state

CHECK_EVERY_S: Final = 10.0
_STOP_S_MAX: Final = 5.0
_REASON_CHARACTERS_MAX: Final = 500
_COMMAND: Final = "mauve.cli.scheduled_backup"
_made: Final = msgspec.json.Decoder(Made)

log = structlog.get_logger()


def backup_jobs(
    settings: Settings, parts: ControlParts, process: "BackupProcess", registry: CollectorRegistry
) -> list[Coroutine[Any, Any, None]]:
    """Return the job that makes scheduled backups, if configured."""
    if settings.backup.every_s is None:
        return []
    load, save = partial(backup_state, parts), partial(save_backup_state, parts)
    schedule = Schedule(settings.backup.url or "", settings.backup.every_s * 1000)
    backups = ScheduledBackups(schedule, process.run, parts.clock, load=load, save=save, registry=registry)
    return [repeat(CHECK_EVERY_S, backups.back_up_if_due, "backup_not_begun")]


class BackupProcess:
    """Runs `mauve backup`. Stopping ends it immediately and leaves nothing that looks like a backup."""

    def __init__(self, settings: Settings) -> None:
        self._data = str(settings.data.absolute())
        self._running: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    def run(self) -> Made | str | None:
        """Return the backup or the reason for the failure; None if the service is stopping."""
        watched, held = os.pipe()  # The command ends when the pipe is closed, also when this process dies.
        with open(held, "wb"), open(watched, "rb") as stdin:  # noqa: PTH123 - descriptors
            process = self._start(stdin)
            if process is None:
                return None
            with process:
                out, errors = process.communicate()
        if self._stopped.is_set():
            return None
        said = (errors.decode(errors="replace").strip().splitlines() or [""])[-1][:_REASON_CHARACTERS_MAX]
        if process.returncode:
            return said or f"the command ended with {process.returncode}"
        if said:
            log.warning("backup_made_with_warning", reason=said)
        return _made.decode(out)

    def _start(self, stdin: IO[bytes]) -> subprocess.Popen[bytes] | None:
        with self._lock:
            if self._stopped.is_set():
                return None
            self._running = subprocess.Popen(  # noqa: S603 - our own command
                [sys.executable, "-P", "-m", _COMMAND, "backup", "--data", self._data, "--json"],
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            return self._running

    def stop(self) -> None:
        """End the command, which aborts its upload if there is time."""
        with self._lock:
            self._stopped.set()
        process = self._running
        if process is not None and process.poll() is None:
            process.terminate()
            killing = threading.Timer(_STOP_S_MAX, process.kill)
            killing.daemon = True
            killing.start()


class ScheduledBackups:
    """Makes a backup when it is due, one at a time."""

    def __init__(
        self,
        schedule: Schedule,
        run: Callable[[], Made | str | None],
        clock: Clock,
        *,
        load: Callable[[], BackupState],
        save: Callable[[BackupState], None],
        registry: CollectorRegistry,
    ) -> None:
        self._schedule = schedule
        self._run = run
        self._clock = clock
        self._load = load
        self._save = save
        self._state: BackupState | None = None  # valid even if it could not be saved
        self._is_saved = True
        self._failures = Counter("mauve_backup_failures", "Scheduled backups that failed", registry=registry)
        age = Gauge("mauve_backup_age_seconds", "Age of the last complete backup; NaN if none", registry=registry)
        age.set_function(self._age_s)

    def back_up_if_due(self) -> None:
        state = self._state = self._state or self._load()
        if not self._is_saved:
            self._remember(state)
        if not is_due(self._schedule, state, self._clock.now_ms()):
            return
        begun = after_begin(self._schedule, state, self._clock.now_ms())
        self._remember(begun)
        self._remember(self._after(begun, self._run()))

    def _after(self, begun: BackupState, made: Made | str | None) -> BackupState:
        now_ms, share = self._clock.now_ms(), random.random()  # noqa: S311 - only spreads the load
        if made is None:
            return msgspec.structs.replace(begun, next_at=now_ms)  # due at the next start
        if isinstance(made, Made):
            log.info("backup_made", place=made.file, bytes=made.bytes)
            return after_success(self._schedule, begun, made, share)
        state = after_failure(self._schedule, begun, now_ms, made, share)
        self._failures.inc()
        wait_min = (state.next_at - now_ms) // 60_000
        advice = f"fix the cause; the next attempt is in {wait_min} minutes, or run 'mauve backup' now"
        log.warning("backup_failed", reason=made, failures=state.failures, advice=advice)
        return state

    def _remember(self, state: BackupState) -> None:
        """Keep the state in memory, then save it: with a full disk, a backup must not be repeated at each check."""
        self._state, self._is_saved = state, False
        self._save(state)
        self._is_saved = True

    def _age_s(self) -> float:
        made_at = None if self._state is None else self._state.made_at
        return float("nan") if made_at is None else (self._clock.now_ms() - made_at) / 1000
