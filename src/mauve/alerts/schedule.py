"""When to send: quiet hours, cooldown, digests and further attempts. Pure rules over epoch milliseconds."""

from datetime import UTC, date, datetime, timedelta, tzinfo
from enum import StrEnum
from functools import cache
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from mauve.core.window import DAY, Window
from mauve.stores.alerts import OrganizationTimes

HOUR_MS: Final = 3_600_000
MINUTE_MS: Final = 60_000
JUDGE_EVERY_MS: Final = 5 * MINUTE_MS
ATTEMPTS_MAX: Final = 8
_BACKOFF_MINUTES: Final = (1, 5, 15, 60, 180, 360, 720)


class Cadence(StrEnum):
    """How often a member wants the digest."""

    NEVER = "never"
    DAILY = "daily"
    WEEKLY = "weekly"  # on Mondays


@cache
def time_zones() -> frozenset[str]:
    """Return the names of the time zones, such as `Europe/Berlin`."""
    return frozenset(name for name in available_timezones() if "/" in name or name == "UTC")


def is_quiet(times: OrganizationTimes, now_ms: int) -> bool:
    """Return whether the organization is not to be disturbed now."""
    return is_quiet_hour(times, _local(times, now_ms).hour)


def is_quiet_hour(times: OrganizationTimes, hour: int) -> bool:
    """Return whether an hour of the day is quiet. Quiet hours may span midnight."""
    if times.quiet_from is None or times.quiet_until is None:
        return False
    if times.quiet_from <= times.quiet_until:
        return times.quiet_from <= hour < times.quiet_until
    return hour >= times.quiet_from or hour < times.quiet_until


def next_digest_at(times: OrganizationTimes, cadence: Cadence, now_ms: int) -> int | None:
    """Return when the next digest after now is due; None if none is wanted."""
    if cadence is Cadence.NEVER:
        return None
    day = _local(times, now_ms).date()
    for days_ahead in range(2 + 7):
        at_ms = _moment(times, day + timedelta(days=days_ahead), times.digest_hour)
        if at_ms > now_ms and (cadence is Cadence.DAILY or _is_monday(day + timedelta(days=days_ahead))):
            return at_ms
    raise AssertionError("every week has a Monday")


def digest_window(cadence: Cadence, today: date) -> Window:
    """Return the whole UTC days that a digest reports on: those up to yesterday."""
    days = 1 if cadence is Cadence.DAILY else 7
    return Window(today - timedelta(days=days), today - DAY)


def retry_at(attempts: int, now_ms: int) -> int | None:
    """Return when to try again after so many attempts; None if it is time to give up."""
    if attempts >= ATTEMPTS_MAX:
        return None
    return now_ms + _BACKOFF_MINUTES[attempts - 1] * MINUTE_MS


def _local(times: OrganizationTimes, now_ms: int) -> datetime:
    return datetime.fromtimestamp(now_ms / 1000, _zone(times))


def _zone(times: OrganizationTimes) -> tzinfo:
    """Return the time zone, or UTC if this machine does not know it: a late alert is better than none."""
    return ZoneInfo(times.time_zone) if times.time_zone in time_zones() else UTC


def _moment(times: OrganizationTimes, day: date, hour: int) -> int:
    """Return when it is this hour; an hour that a change of clocks skips begins at once after it."""
    local = datetime(day.year, day.month, day.day, hour, tzinfo=_zone(times))
    return int(local.astimezone(UTC).timestamp()) * 1000


def _is_monday(day: date) -> bool:
    return day.isoweekday() == 1
