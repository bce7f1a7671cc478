"""Time comes in by the door: read once per request, then passed on."""

import time
from typing import Final, Protocol

CLOCK_SLACK_MS: Final = 5_000
"""How far into the future a moment may lie that another process noted. More means that the clock was set back."""


class Clock(Protocol):
    """Where "now" comes from."""

    def now_ms(self) -> int:
        """Return the time in epoch milliseconds, UTC."""
        ...

    def now_us(self) -> int:
        """Return the time in epoch microseconds, UTC: fine enough to tell which of two requests came first."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def now_us(self) -> int:
        return time.time_ns() // 1_000
