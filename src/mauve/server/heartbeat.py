"""Tells a process that hangs from one that is slow: by how long its event loop was silent.

The rule is pure. Time comes in as what has passed since the last look, so that it can be forgiven: what passed while
the supervisor itself did not run (stopped, or the machine asleep) says nothing about its children.
"""

from typing import Final

BEAT_EVERY_S: Final = 1.0
LOOK_EVERY_S: Final = 1.0
_FORGIVEN_ABOVE_S: Final = 2 * LOOK_EVERY_S


class Heartbeat:
    """One child's. It counts from the moment at which the child is ready: starting may take as long as it takes."""

    def __init__(self, hang_s: float) -> None:
        self._hang_s = hang_s  # 0: never
        self._silent_s = 0.0

    @property
    def silent_s(self) -> float:
        return self._silent_s

    def heard(self) -> None:
        self._silent_s = 0.0

    def has_stopped(self, passed_s: float) -> bool:
        """Tell whether the child hangs, when so much time has passed since the last look."""
        self._silent_s += min(passed_s, _FORGIVEN_ABOVE_S)
        return 0 < self._hang_s <= self._silent_s
