"""When to send: quiet hours, digests and retries. Pure rules over epoch milliseconds."""

from datetime import UTC, date, datetime, timedelta, tzinfo
from enum import StrEnum
from functools import cache
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from mauve.core.window import Window
from mauve.metrics.summaries import whole_days_before
from mauve.stores.alerts import OrganizationTimes

HOUR_MS: Final = 3_600_000
MINUTE_MS: Final = 60_000
EVALUATE_EVERY_MS: Final = 5 * MINUTE_MS
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
    """Return when the next digest is due; None if none is wanted."""
    if cadence is Cadence.NEVER:
        return None
    today = _local(times, now_ms).date()
    days = [today + timedelta(days=ahead) for ahead in range(2 + 7)]
    moments = [_moment(times, day) for day in days if cadence is Cadence.DAILY or day.isoweekday() == 1]
    return next(at_ms for at_ms in moments if at_ms > now_ms)


def digest_window(cadence: Cadence, today: date) -> Window:
    """Return the whole UTC days that a digest reports on."""
    return whole_days_before(today, 1 if cadence is Cadence.DAILY else 7)


def retry_at(attempts: int, now_ms: int) -> int | None:
    """Return the time of the next retry, or None if there are no retries left."""
    if attempts >= ATTEMPTS_MAX:
        return None
    return now_ms + _BACKOFF_MINUTES[attempts - 1] * MINUTE_MS


def _local(times: OrganizationTimes, now_ms: int) -> datetime:
    return datetime.fromtimestamp(now_ms / 1000, _zone(times))


def _zone(times: OrganizationTimes) -> tzinfo:
    """Return the time zone, or UTC if this machine does not know it: a late alert is better than none."""
    return ZoneInfo(times.time_zone) if times.time_zone in time_zones() else UTC


def _moment(times: OrganizationTimes, day: date) -> int:
    """Return when a day's digest is due; if a change of clocks skips that hour, right after the change."""
    local = datetime(day.year, day.month, day.day, times.digest_hour, tzinfo=_zone(times))
    return int(local.astimezone(UTC).timestamp()) * 1000
