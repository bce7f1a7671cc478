"""The clock. It is passed in, read once per request, and its value handed on."""

import time
from typing import Final, Protocol

CLOCK_SLACK_MS: Final = 5_000
"""How far in the future a time noted by another process may lie. Anything beyond means the clock was set back."""


class Clock(Protocol):
    def now_ms(self) -> int: ...

    def now_us(self) -> int:
        """Return the time in epoch microseconds, UTC: precise enough to order two requests."""
        ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def now_us(self) -> int:
        return time.time_ns() // 1_000
