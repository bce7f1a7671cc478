"""How well a project is being sent to: what was accepted, and what was not and why."""

from collections.abc import Sequence
from dataclasses import dataclass

from mauve.core.window import Window
from mauve.dashboard.visit import MemberVisit
from mauve.dashboard.wording import words
from mauve.stores.arrivals import ACCEPTED, DUPLICATE, REFUSED, REJECTED, REPEAT, ArrivalCount
from mauve.stores.unavailable import StoreUnavailableError


@dataclass(frozen=True, slots=True)
class Refusals:
    """What was turned away for one reason."""

    what: str
    reason: str
    count: int
    last_at: int  # epoch ms


@dataclass(frozen=True, slots=True)
class Health:
    accepted: int
    repeats: int
    duplicates: int
    refusals: Sequence[Refusals]  # the most frequent first

    @property
    def rejected(self) -> int:
        """Return how many items were turned away, one by one."""
        return sum(each.count for each in self.refusals if each.what == _ITEM)


_ITEM, _REQUEST = "item", "request"
_WHATS = {REJECTED: _ITEM, REFUSED: _REQUEST}


def health_of(visit: MemberVisit, project: str, window: Window) -> Health | None:
    """Return it; None if it cannot be read now."""
    try:
        return health_from(visit.parts.arrivals.counts(project, window))
    except StoreUnavailableError:
        return None


def health_from(counts: Sequence[ArrivalCount]) -> Health:
    found = {each.word: each.count for each in counts}
    refusals = [refusal for each in counts if (refusal := _refusal_from(each))]
    return Health(
        accepted=found.get(ACCEPTED, 0),
        repeats=found.get(REPEAT, 0),
        duplicates=found.get(DUPLICATE, 0),
        refusals=sorted(refusals, key=lambda each: (-each.count, each.what, each.reason)),
    )


def _refusal_from(counted: ArrivalCount) -> Refusals | None:
    kind, _, reason = counted.word.partition(":")
    if kind not in _WHATS:
        return None
    spelled = reason if kind == REJECTED else words(reason).lower()
    return Refusals(_WHATS[kind], spelled, counted.count, counted.last_at)
