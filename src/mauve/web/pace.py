"""How slowly a body may come: its sender must keep a pace, not meet a moment.

A megabyte over a poor mobile connection takes a minute or two and is welcome; who only pretends to send is not. The
clock comes in as an argument, in seconds from any beginning.
"""

from typing import Final

GRACE_S: Final = 10.0
BYTES_PER_S: Final = 8 * 1024
TOTAL_S: Final = 150.0  # A megabyte at that pace takes 128 s.
LOOK_EVERY_S: Final = 1.0


class Pace:
    """One body's. It may stand still for the grace, and each byte buys time, but never more than the grace ahead.

    So a burst at the beginning is no licence to stand still for minutes.
    """

    __slots__ = ("_began_s", "_size", "_until_s")

    def __init__(self, now_s: float) -> None:
        self._began_s = now_s
        self._until_s = now_s + GRACE_S
        self._size = 0

    def is_late(self, now_s: float, size: int) -> bool:
        """Tell whether to wait no longer, by how much has come up to now. Asked about once a second."""
        bought_s = (size - self._size) / BYTES_PER_S
        self._size = size
        self._until_s = min(self._until_s + bought_s, now_s + GRACE_S)
        return now_s > min(self._until_s, self._began_s + TOTAL_S)

    def is_slow(self, now_s: float) -> bool:
        """Tell whether it must go when others wait for the room that it holds."""
        return now_s > self._began_s + GRACE_S
