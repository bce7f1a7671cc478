"""The backup schedule. Its state is stored, so that a restart neither skips nor repeats a backup."""

from typing import Final, NamedTuple

import msgspec

RETRY_MS_MIN: Final = 5 * 60_000
RETRY_MS_MAX: Final = 60 * 60_000
_JITTER_MS_MAX: Final = 10 * 60_000


class BackupState(msgspec.Struct, frozen=True):
    url: str = ""  # target of the last backup, even if it failed
    next_at: int = 0  # epoch ms
    made_at: int | None = None  # when the last complete one was created
    place: str = ""  # its address
    bytes: int = 0
    failures: int = 0  # since then
    reason: str = ""  # of the last failure
    since: int | None = None  # when the first backup to this target began


class Made(msgspec.Struct, frozen=True):
    file: str  # its address
    bytes: int
    created_at: int


class Schedule(NamedTuple):
    url: str  # where backups go
    every_ms: int


def is_due(schedule: Schedule, state: BackupState, now_ms: int) -> bool:
    """Return whether to begin now. A new target is due immediately, as is a next time beyond any interval."""
    latest = now_ms + max(schedule.every_ms, RETRY_MS_MAX) + _JITTER_MS_MAX  # later only if clock or interval changed
    return state.url != schedule.url or now_ms >= state.next_at or state.next_at > latest


def after_begin(schedule: Schedule, state: BackupState, now_ms: int) -> BackupState:
    """Return the state to save before a backup begins: if the process dies, the next attempt still waits."""
    since = state.since if state.url == schedule.url and state.since is not None else now_ms
    next_at = now_ms + _retry_ms(schedule, state.failures)
    return msgspec.structs.replace(state, url=schedule.url, next_at=next_at, since=since)


def is_late(state: BackupState, every_ms: int, now_ms: int) -> bool:
    """Return whether the last complete backup, or the start of the schedule if there is none, is too long ago."""
    last = state.since if state.made_at is None else state.made_at
    return last is not None and now_ms - last > 2 * every_ms


def after_success(schedule: Schedule, state: BackupState, made: Made, share: float) -> BackupState:
    """Return the state after a backup; `share` is random (0 to 1) and spreads the backups of several services."""
    next_at = made.created_at + schedule.every_ms + _jitter(schedule.every_ms, share)
    return BackupState(schedule.url, next_at, made.created_at, made.file, made.bytes, since=state.since)


def after_failure(schedule: Schedule, state: BackupState, now_ms: int, reason: str, share: float) -> BackupState:
    """Return the state after a failure: the first retries come soon, later ones hourly."""
    failures = state.failures + 1
    wait_ms = _retry_ms(schedule, state.failures)
    next_at = now_ms + wait_ms + _jitter(wait_ms, share)
    return msgspec.structs.replace(state, url=schedule.url, next_at=next_at, failures=failures, reason=reason)


def _retry_ms(schedule: Schedule, failures: int) -> int:
    return min(schedule.every_ms, RETRY_MS_MAX, RETRY_MS_MIN << min(failures, 10))


def _jitter(interval_ms: int, share: float) -> int:
    return int(share * min(interval_ms // 20, _JITTER_MS_MAX))
