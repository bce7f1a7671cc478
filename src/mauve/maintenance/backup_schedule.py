"""When the service makes its next backup. The state is stored, so that a restart neither skips nor repeats one."""

from typing import Final, NamedTuple

import msgspec

RETRY_MS_MIN: Final = 5 * 60_000
RETRY_MS_MAX: Final = 60 * 60_000
_JITTER_MS_MAX: Final = 10 * 60_000


class BackupState(msgspec.Struct, frozen=True):
    url: str = ""  # where the last one went, or should have gone
    next_at: int = 0  # epoch ms
    made_at: int | None = None  # when the last whole one was created
    place: str = ""  # its address
    bytes: int = 0
    failures: int = 0  # since then
    reason: str = ""  # of the last failure
    since: int | None = None  # when the first one for this place was begun


class Made(msgspec.Struct, frozen=True):
    """A whole backup."""

    file: str  # its address
    bytes: int
    created_at: int


class Schedule(NamedTuple):
    url: str  # where backups go
    every_ms: int


def is_due(schedule: Schedule, state: BackupState, now_ms: int) -> bool:
    """Return whether to begin now. A new place is due at once, and so is a next time that no interval explains."""
    latest = now_ms + max(schedule.every_ms, RETRY_MS_MAX) + _JITTER_MS_MAX  # after it: clock or interval has changed
    return state.url != schedule.url or now_ms >= state.next_at or state.next_at > latest


def after_begin(schedule: Schedule, state: BackupState, now_ms: int) -> BackupState:
    """Return the state to save before a backup begins: if the process dies meanwhile, the next one waits, too."""
    since = state.since if state.url == schedule.url and state.since is not None else now_ms
    next_at = now_ms + _retry_ms(schedule, state.failures)
    return msgspec.structs.replace(state, url=schedule.url, next_at=next_at, since=since)


def is_late(state: BackupState, every_ms: int, now_ms: int) -> bool:
    """Return whether the last whole backup, or the begin of the schedule without one, is too long ago."""
    last = state.since if state.made_at is None else state.made_at
    return last is not None and now_ms - last > 2 * every_ms


def after_success(schedule: Schedule, state: BackupState, made: Made, share: float) -> BackupState:
    """Return the state after a backup; `share` is random, from 0 to 1, so that services do not begin together."""
    next_at = made.created_at + schedule.every_ms + _jitter(schedule.every_ms, share)
    return BackupState(schedule.url, next_at, made.created_at, made.file, made.bytes, since=state.since)


def after_failure(schedule: Schedule, state: BackupState, now_ms: int, reason: str, share: float) -> BackupState:
    """Return the state after a failure: the next try comes soon at first, then each hour."""
    failures = state.failures + 1
    wait_ms = _retry_ms(schedule, state.failures)
    next_at = now_ms + wait_ms + _jitter(wait_ms, share)
    return msgspec.structs.replace(state, url=schedule.url, next_at=next_at, failures=failures, reason=reason)


def _retry_ms(schedule: Schedule, failures: int) -> int:
    return min(schedule.every_ms, RETRY_MS_MAX, RETRY_MS_MIN << min(failures, 10))


def _jitter(interval_ms: int, share: float) -> int:
    return int(share * min(interval_ms // 20, _JITTER_MS_MAX))
