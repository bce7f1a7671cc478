"""When the events of a batch occurred. Pure; the same as `core.times.occurred_at`, for many at once."""

from collections.abc import Sequence
from datetime import date
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from mauve.core.times import FUTURE_MAX_MS, PAST_MAX_MS, known_time_ms, occurred_at
from mauve.core.window import today_at
from mauve.stores.warehouse import EventRows

Time: TypeAlias = str | int  # as a client wrote it, and found to be one

# The two usual forms, by their length: with milliseconds, and without. Their last letter is a Z.
_UNITS: Final = {len("2026-11-15T03:20:00.123Z"): "ms", len("2026-11-15T03:20:00Z"): "s"}


def occurred_moments(ats: Sequence[Time], sent_ats: Sequence[Time | None], received_at: int) -> npt.NDArray[np.int64]:
    """Return when each event occurred that says so."""
    claims = _moments(ats)
    skews = _skews(sent_ats, received_at)
    if claims is None or skews is None:
        one_by_one = (_occurred_at(at, sent_at, received_at) for at, sent_at in zip(ats, sent_ats, strict=True))
        return np.fromiter(one_by_one, np.int64, len(ats))
    earliest, latest = received_at - PAST_MAX_MS, received_at + FUTURE_MAX_MS
    moments: npt.NDArray[np.int64] = np.clip(claims + skews, earliest, latest)
    return moments


def _occurred_at(at: Time, sent_at: Time | None, received_at: int) -> int:
    return occurred_at(known_time_ms(at), None if sent_at is None else known_time_ms(sent_at), received_at)


def _skews(sent_ats: Sequence[Time | None], received_at: int) -> npt.NDArray[np.int64] | int | None:
    """Return what to add to each claim; None if that is not told at once. A batch is usually sent at one moment."""
    if sent_ats.count(sent_ats[0]) == len(sent_ats):
        return 0 if sent_ats[0] is None else _bounded(received_at - known_time_ms(sent_ats[0]))
    moments = None if None in sent_ats else _moments(sent_ats)
    return None if moments is None else received_at - moments


def _bounded(skew: int) -> int | None:
    return skew if abs(skew) < 2**60 else None


def _moments(times: Sequence[Time | None]) -> npt.NDArray[np.int64] | None:
    """Return the moments if all are written in one of the usual forms, all in the same."""
    try:
        joined = "".join(times)  # type: ignore[arg-type]  # numbers among them end it
        size, count = len(joined) // len(times), len(times)
        unit = _UNITS.get(size)
        if unit is None or set(map(len, times)) != {size}:  # type: ignore[arg-type]  # all are texts by now
            return None
        if joined[10::size] != "T" * count or joined[size - 1 :: size] != "Z" * count:
            return None
        texts = np.frombuffer(joined.encode(), f"S{size}").astype(f"S{size - 1}")
        return texts.astype(f"M8[{unit}]").astype("M8[ms]").astype(np.int64)
    except (TypeError, ValueError):  # a number, or a leap second
        return None


def first_day_of(rows: EventRows) -> date:
    """Return the earliest day of rows that are some."""
    return today_at(int(np.frombuffer(rows.occurred_at, np.int64).min()))
