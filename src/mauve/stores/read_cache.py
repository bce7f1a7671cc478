"""The read cache: answers that were given before, kept for whoever asks the same again."""

from typing import NamedTuple, Protocol

from mauve.core.clock import CLOCK_SLACK_MS


class CachedAnswer(NamedTuple):
    value: bytes
    stored_at: int  # epoch milliseconds


def is_fresh(answer: CachedAnswer, now_ms: int, max_age_s: float) -> bool:
    """Tell whether an answer may be given without asking anew.

    One from the future is from before the clock was set back: nobody knows how old it is.
    """
    age_ms = now_ms - answer.stored_at
    return age_ms >= -CLOCK_SLACK_MS and max(0, age_ms) < max_age_s * 1000


def replaces(answer: CachedAnswer, earlier: CachedAnswer) -> bool:
    """Tell whether an answer takes the place of the one that was kept before it.

    A slower reader does not undo what a quicker one has kept; a clock that was set back is no slow reader.
    """
    return not 0 < earlier.stored_at - answer.stored_at <= CLOCK_SLACK_MS


class ReadCache(Protocol):
    """Answers by key, shared by all processes of the machine.

    - An answer of any age is found: the caller judges whether it is fresh, and an old one serves as a stale copy.
    - What another process kept may be seen up to a second later, but never an older answer after a newer one.
    - Bounded in entries and bytes. What was kept first goes first, whatever the clock said.
    - Nothing here ever fails a read: without its file the cache is as if empty, and what is found is what was kept.
    - Safe to use from several threads.
    """

    def find(self, key: str) -> CachedAnswer | None: ...

    def keep(self, key: str, answer: CachedAnswer) -> bool:
        """Keep the answer, unless a slightly newer one is there; False: it is too large, or cannot be kept now."""
        ...

    def close(self) -> None: ...
