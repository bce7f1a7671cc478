"""Times as clients write them, and the time at which an event counts as having occurred."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# An offset or a leap second can lead out of the years that a calendar has.
_FIRST: Final = datetime.min.replace(tzinfo=UTC) - _EPOCH
_LAST: Final = datetime.max.replace(tzinfo=UTC) - _EPOCH
_MILLISECOND: Final = timedelta(milliseconds=1)
_MICROSECOND: Final = timedelta(microseconds=1)
_SECOND: Final = timedelta(seconds=1)
DAY_MS: Final = 86_400_000
PAST_MAX_MS: Final = 7 * DAY_MS
FUTURE_MAX_MS: Final = 5 * 60_000

# `fromisoformat` is fast but accepts far more than RFC 3339. The shape of a text, its digits replaced by zeros, tells
# with one lookup whether it may be used.
_DIGITS_TO_ZERO: Final = bytes.maketrans(b"123456789", b"000000000")
_LOCAL_SHAPES: Final = [b"0000-00-00T00:00:00" + b".000000000"[: n and n + 1] for n in range(10)]
_UTC_SHAPES: Final = frozenset(shape + b"Z" for shape in _LOCAL_SHAPES)
_OFFSET_SHAPES: Final = frozenset(shape + sign + b"00:00" for shape in _LOCAL_SHAPES for sign in (b"+", b"-"))
# -0000 lacks a colon but is accepted: the fast path for batches cannot tell it from -00:00.
_RFC_3339: Final = re.compile(
    r"(\d{4}-\d{2}-\d{2})[Tt ](\d{2}:\d{2}):(\d{2})(?:\.(\d+))?([Zz]|[+-]\d{2}:[0-5]\d|-0000)", re.ASCII
)


def parse_time_ms(value: str | int) -> int | None:
    """Return the epoch milliseconds of an RFC 3339 time with offset, or of an integer; None if it is neither."""
    if isinstance(value, str):
        since_epoch = _since_epoch(value)
        return None if since_epoch is None else since_epoch // _MILLISECOND
    return None if isinstance(value, bool) else value


def parse_time_us(value: str) -> int | None:
    """Return the epoch microseconds of an RFC 3339 time with offset, or None; also None outside the years 1 to 9999."""
    since_epoch = _since_epoch(value)
    if since_epoch is None or not _FIRST <= since_epoch <= _LAST:
        return None
    return since_epoch // _MICROSECOND


def known_time_ms(value: str | int) -> int:
    """Return what `parse_time_ms` returns, faster, for a value known to be valid."""
    if not isinstance(value, str):
        return value
    try:
        return (datetime.fromisoformat(value) - _EPOCH) // _MILLISECOND
    except ValueError:
        return parse_time_ms(value) or 0


def occurred_at(at_ms: int | None, sent_at_ms: int | None, received_at_ms: int) -> int:
    """Return when an event occurred: the client's time, corrected for clock skew and clamped around its receipt."""
    if at_ms is None:
        return received_at_ms
    return clamped(claimed_at(at_ms, sent_at_ms, received_at_ms), received_at_ms)


def claimed_at(at_ms: int, sent_at_ms: int | None, received_at_ms: int) -> int:
    return at_ms if sent_at_ms is None else at_ms + received_at_ms - sent_at_ms


def clamped(claim_ms: int, received_at_ms: int) -> int:
    if claim_ms < received_at_ms - PAST_MAX_MS:
        return received_at_ms - PAST_MAX_MS
    if claim_ms > received_at_ms + FUTURE_MAX_MS:
        return received_at_ms + FUTURE_MAX_MS
    return claim_ms


def day_number(ms: int) -> int:
    return ms // DAY_MS


def utc_instant(ms: int) -> str:
    """Return a time in the years 1 to 9999 to the second, in ISO 8601, such as `2026-12-01T00:00:00Z`."""
    moment = _EPOCH + timedelta(milliseconds=ms)
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def _since_epoch(value: str) -> timedelta | None:
    moment = _usual_form(value)
    return _rare_form(value) if moment is None else moment - _EPOCH


def _usual_form(value: str) -> datetime | None:
    try:
        shape = value.encode().translate(_DIGITS_TO_ZERO)
        if shape in _UTC_SHAPES or (shape in _OFFSET_SHAPES and value[-2] < "6"):
            return datetime.fromisoformat(value)
    except ValueError:  # an invalid day or hour, or a leap second: see `_rare_form`
        return None
    return None


def _rare_form(value: str) -> timedelta | None:
    match = _RFC_3339.fullmatch(value)
    if match is None:
        return None
    day, minute, second, fraction, offset = match.groups(default="0")
    is_leap = second == "60"
    common = f"{day}T{minute}:{'59' if is_leap else second}.{fraction[:6]}{offset.upper()}"
    try:
        since_epoch = datetime.fromisoformat(common) - _EPOCH
    except ValueError:
        return None
    return since_epoch + _SECOND if is_leap else since_epoch
