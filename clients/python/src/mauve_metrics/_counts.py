"""Count the items by outcome, and log the counts: promptly, but at most one line a minute."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from dataclasses import dataclass

from mauve_metrics._answers import Accepted, Held, Outcome, Refused, TooLarge
from mauve_metrics._outbox import NEVER, Outbox
from mauve_metrics._reports import FailedItem
from mauve_metrics._segment import Entry

FULL = "the queue is full"

_COLLECT_S = 1.0  # before the first line, so that it counts a whole burst
_LOG_EVERY_S = 60.0
_ADVICE = {FULL: ". Call wait() in a loop that sends, or raise max_queue"}
_EXPIRED = ", held for almost seven days: events sent later could count twice"
_MOVED = ": at may be up to seven days old and five minutes ahead. Import older payments with `mauve import`"


@dataclass(frozen=True)
class Stats:
    """The number of items in each state; each item is in exactly one. `retries` counts repeated requests."""

    queued: int = 0
    accepted: int = 0
    rejected: int = 0
    dropped: int = 0
    expired: int = 0
    retries: int = 0


class Tally:
    """A count that is logged."""

    def __init__(self) -> None:
        self.due_at = NEVER
        self._logged = 0
        self._logged_at = -NEVER

    def text(self, total: int, now: float, *, is_prompt: bool, is_last: bool) -> str | None:
        """Return the count since the last line, as text, if a line is due.

        A prompt line does not wait for the rest of a burst, and the last one does not wait for anything.
        """
        new = total - self._logged
        if not new:
            return None
        next_at = self._logged_at + _LOG_EVERY_S
        self.due_at = min(self.due_at, max(next_at, now if is_prompt else now + _COLLECT_S))
        if now < self.due_at and not is_last:
            return None
        items = f"{new} item{'s' * (new > 1)}" if not self._logged else f"{new} more, {total} in all"
        self._logged, self._logged_at, self.due_at = total, now, NEVER
        return items


class Counts:
    """The counts of one client in one process. Used under the client's lock, apart from `by_handlers`."""

    def __init__(self, outboxes: Sequence[Outbox], deferred: Sized) -> None:
        self.accepted = self.rejected = self.expired = self.retries = self.moved = 0
        self.refused = 0  # by the service
        self.unsent = 0  # dropped because they cannot be sent, or the client was closed
        self.by_handlers = 0  # dropped by calls of signal handlers that interrupted another call
        self.left_spooled = 0
        self.last_reason = "the spool was damaged"
        self._outboxes = outboxes
        self.spools = [outbox.spool for outbox in outboxes if outbox.spool is not None]
        self._deferred = deferred
        self._dropped_tally, self._expired_tally, self._moved_tally = Tally(), Tally(), Tally()

    @property
    def stats(self) -> Stats:
        queued = sum(map(len, self._outboxes)) + len(self._deferred) + self.left_spooled
        return Stats(queued, self.accepted, self.rejected, self._dropped, self.expired, self.retries)

    @property
    def given_up(self) -> int:
        """How many items of this client were dropped or expired, and never answered."""
        lost_of_others = sum(spool.lost - spool.lost_own for spool in self.spools)
        return self._dropped - self.refused - lost_of_others + self.expired

    @property
    def due_at(self) -> float:
        """When the next line is due."""
        return min(self._dropped_tally.due_at, self._expired_tally.due_at, self._moved_tally.due_at)

    def lines(self, now: float, *, is_prompt: bool = False, is_last: bool = False) -> list[str]:
        """Return the log lines that are due, and start new counts."""
        reason = self.last_reason + _ADVICE.get(self.last_reason, "")
        tallies = (
            (self._dropped_tally, self._dropped, "dropped", f". Last reason: {reason}"),
            (self._expired_tally, self.expired, "gave up", _EXPIRED),
            (self._moved_tally, self.moved, "the service moved the time of", _MOVED),
        )
        counted = [
            (each.text(total, now, is_prompt=is_prompt, is_last=is_last), *text) for each, total, *text in tallies
        ]
        return [f"{before} {count}{after}" for count, before, after in counted if count is not None]

    def settle(
        self, outbox: Outbox, batch: list[Entry], outcome: Outcome, now: float
    ) -> tuple[list[FailedItem], list[FailedItem]]:
        """Apply the outcome, and return the rejected and the dropped entries."""
        if isinstance(outcome, Held):
            outbox.hold(now + outcome.seconds)
            return [], []
        if isinstance(outcome, TooLarge) and len(batch) > 1:
            outbox.halve(batch)
            return [], []
        outbox.settle(batch)
        if isinstance(outcome, Accepted):
            outbox.grow_batches()
            rejected: list[FailedItem] = [
                (entry, outcome.reasons[n]) for n, entry in enumerate(batch) if n in outcome.reasons
            ]
            self.rejected += len(rejected)
            self.accepted += len(batch) - len(rejected)
            self.moved += outcome.moved
            return rejected, []
        reasons = outcome.reasons if isinstance(outcome, Refused) else {}
        self.refused += len(batch)
        self.last_reason = reasons.get(0, outcome.reason)
        return [], [(entry, reasons.get(n, outcome.reason)) for n, entry in enumerate(batch)]

    @property
    def _dropped(self) -> int:
        overflowed = sum(outbox.dropped for outbox in self._outboxes)
        lost = sum(spool.lost for spool in self.spools)
        return self.refused + self.unsent + self.by_handlers + overflowed + lost
