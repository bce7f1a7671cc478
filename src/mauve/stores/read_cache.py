"""The read cache: earlier answers, for callers that ask the same again."""

from typing import NamedTuple, Protocol

from mauve.core.clock import CLOCK_SLACK_MS


class CachedAnswer(NamedTuple):
    value: bytes
    stored_at: int  # epoch milliseconds


def is_fresh(answer: CachedAnswer, now_ms: int, max_age_s: float) -> bool:
    """Return whether an answer may be served without reading again.

    One from the future was stored before the clock was set back, so its age is unknown.
    """
    age_ms = now_ms - answer.stored_at
    return age_ms >= -CLOCK_SLACK_MS and max(0, age_ms) < max_age_s * 1000


def replaces(answer: CachedAnswer, earlier: CachedAnswer) -> bool:
    """Return whether an answer replaces the one stored before it.

    A slower reader does not undo the answer of a faster one. A clock that was set back is not a slow reader.
    """
    return not 0 < earlier.stored_at - answer.stored_at <= CLOCK_SLACK_MS


class ReadCache(Protocol):
    """Answers by key, shared by all processes of the machine.

    - Answers of any age are found: the caller decides whether one is fresh, and an old one serves as a stale copy.
    - An answer of another process may appear up to a second late, but never an older one after a newer one.
    - Limited in entries and bytes. The first stored is the first evicted, whatever the clock said.
    - The cache never fails a read: without its file it appears empty, and it returns only what was stored.
    - Safe to use from several threads.
    """

    def find(self, key: str) -> CachedAnswer | None: ...

    def keep(self, key: str, answer: CachedAnswer) -> bool:
        """Store the answer unless there is a slightly newer one; return False if it is too large or storing failed."""
        ...

    def forget(self, project: str) -> None:
        """Remove the answers about a project, whose keys begin with its id and a slash.

        Other processes drop them within a second. Raise `StoreUnavailableError` if that failed.
        """
        ...

    def close(self) -> None: ...
