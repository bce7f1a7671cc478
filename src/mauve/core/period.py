"""The billing period: a calendar month, UTC."""

from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

_HOUR_MS: Final = 3_600_000


def period_of(moment_ms: int) -> str:
    """Return the period that a moment falls into, such as `2026-11`."""
    return _period_of_hour(moment_ms // _HOUR_MS)


@lru_cache(maxsize=256)
def _period_of_hour(hour: int) -> str:
    """Return the period of an hour, which never belongs to two: it is asked for at every request of a capped one."""
    return datetime.fromtimestamp(hour * _HOUR_MS // 1000, UTC).strftime("%Y-%m")


def period_ends_at(moment_ms: int) -> int:
    """Return when that period ends, in epoch milliseconds: the first moment of the next."""
    now = datetime.fromtimestamp(moment_ms / 1000, UTC)
    year, month = (now.year + 1, 1) if now.month == 12 else (now.year, now.month + 1)  # noqa: PLR2004 - December
    return int(datetime(year, month, 1, tzinfo=UTC).timestamp()) * 1000
