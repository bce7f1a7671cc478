"""Clocks that a test controls."""

import asyncio
from types import SimpleNamespace


class ManualClock:
    """A clock that stands still until it is advanced."""

    def __init__(self, now_ms: int = 1_800_000_000_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def now_us(self) -> int:
        return self._now_ms * 1000

    def advance(self, milliseconds: int) -> None:
        self._now_ms += milliseconds


class StandingClock(ManualClock):
    """The clock of a service that tests share."""

    def advance(self, milliseconds: int) -> None:
        raise AssertionError("a test that moves the clock needs a service of its own: mark it with own_service")


class Ticks:
    """Seconds that pass on demand."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class TurnedLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock can be advanced: whatever waits for an earlier time then continues."""

    ahead_s = 0.0

    def time(self) -> float:
        return super().time() + self.ahead_s

    def turn(self, seconds: float) -> None:
        self.ahead_s += seconds

    def as_time(self) -> SimpleNamespace:
        """Return a replacement for the module `time` where a time is compared with those of the loop."""
        return SimpleNamespace(monotonic=self.time)
