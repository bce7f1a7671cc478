"""Count the workers that share a limit now, by the beats that all of them send and hear."""

from typing import Final, NamedTuple

MISSED_MAX: Final = 4
ANSWERS_MAX: Final = 4
"""From one beat to the next. If more workers start together, the rest of them wait for the next beat."""
BEATS_OF_USE: Final = 30
"""A worker shares the limit for so many beats after it was last used there."""
_WORKERS_MAX: Final = 10_000


class Beat(NamedTuple):
    worker: str
    number: int  # counts the worker's own beats from 1; 0 is an answer to the first beat of another
    is_sharing: bool = True


class _Heard(NamedTuple):
    at: int  # own beats that we had heard by then
    is_sharing: bool


class LiveWorkers:
    """A worker is gone once we have heard several of our own beats, and none of its.

    No clock is compared. A worker whose server is away hears no beat of its own either, and forgets none. One that is
    cut off together with its server hears its own and forgets the others, which exceeds nothing: without a majority of
    the servers it cannot accept events. Workers at which the limit is not used leave
    their share to the others, so that a client with a single connection gets the whole of it.
    """

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._sent = 0
        self._used_at = -BEATS_OF_USE - 1  # own beats that we had sent by then
        self._answers_left = ANSWERS_MAX
        self._heard_own = 0
        self._others: dict[str, _Heard] = {}
        self.sharing = 1
        """The number of workers that share the limit, this one included."""

    @property
    def live(self) -> int:
        return 1 + len(self._others)

    def use(self) -> bool:
        """Note that the limit is used here; return whether the others must hear of that at once."""
        is_news = not self._is_sharing
        self._used_at = self._sent
        return is_news

    def next_beat(self) -> Beat:
        self._sent += 1
        self._answers_left = ANSWERS_MAX
        return Beat(self._worker, self._sent, self._is_sharing)

    def hear(self, beat: Beat) -> Beat | None:
        """Note a beat; return what to send at once if it is from a worker that knows no other yet."""
        if beat.worker == self._worker:
            if beat.number == self._sent:  # Earlier ones were held up, and arrive at once after a pause.
                self._heard_own += 1
                self._forget_silent_workers()
            return None
        known = self._others.get(beat.worker)
        if known is not None or len(self._others) < _WORKERS_MAX:
            self._others[beat.worker] = _Heard(self._heard_own, beat.is_sharing)
            self.sharing += beat.is_sharing - (known is not None and known.is_sharing)
        if beat.number != 1 or not self._answers_left:
            return None
        self._answers_left -= 1
        return Beat(self._worker, 0, self._is_sharing)

    @property
    def _is_sharing(self) -> bool:
        return self._sent - self._used_at <= BEATS_OF_USE

    def _forget_silent_workers(self) -> None:
        self._others = {
            worker: heard for worker, heard in self._others.items() if self._heard_own - heard.at <= MISSED_MAX
        }
        self.sharing = 1 + sum(other.is_sharing for other in self._others.values())
