"""Time comes in by the door: read once per request, then passed on."""

import time
from typing import Protocol


class Clock(Protocol):
    """Where "now" comes from."""

    def now_ms(self) -> int:
        """Return the time in epoch milliseconds, UTC."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000
