"""Ingest statistics of a project: how much was accepted, and how much was rejected and why."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mauve.core.rejections import RejectionCode
from mauve.core.window import Window
from mauve.dashboard.context import MemberContext
from mauve.dashboard.text import words
from mauve.stores import StoreUnavailableError
from mauve.stores.ingest_stats import ACCEPTED, DUPLICATE, REFUSED, REJECTED, REPEAT, IngestCount


@dataclass(frozen=True, slots=True)
class RejectedCount:
    """How many items or requests were rejected for one reason."""

    kind: str  # _ITEM or _REQUEST
    reason: str
    count: int
    last_at: int  # epoch ms


@dataclass(frozen=True, slots=True)
class IngestHealth:
    accepted: int
    repeats: int
    duplicates: int
    rejections: Sequence[RejectedCount]  # most frequent first

    @property
    def rejected(self) -> int:
        """Return how many single items were rejected; whole requests are not included."""
        return sum(each.count for each in self.rejections if each.kind == _ITEM)


_ITEM, _REQUEST = "item", "request"
_REASONS: Final[Mapping[RejectionCode, str]] = {
    RejectionCode.NAME: "name is missing, empty or too long",
    RejectionCode.USER: "user is not a string or is too long",
    RejectionCode.ID: "id is missing, not a string, or too long",
    RejectionCode.AT: "at is not a valid time",
    RejectionCode.SENT_AT: "sent_at is not a valid time",
    RejectionCode.PROPS: "props is not an object or has too many keys",
    RejectionCode.PROPS_VALUE: "a value in props is nested or too long",
    RejectionCode.AMOUNT: "amount is not a whole number of minor units",
    RejectionCode.CURRENCY: "currency is not an ISO 4217 code",
    RejectionCode.EARNED: "earned is neither true nor false",
    RejectionCode.TYPE: "type is not subscription",
    RejectionCode.STATUS: "status is missing or not a string",
    RejectionCode.MRR: "mrr is not a whole number of minor units",
    RejectionCode.NOT_AN_OBJECT: "an item is not a JSON object",
    RejectionCode.NUMBER_OUT_OF_RANGE: "a number is out of range",
    RejectionCode.LONE_SURROGATE: "a string contains half a character (a lone surrogate)",
    RejectionCode.REPEATED_KEY: "a key appears twice",
    RejectionCode.TOO_DEEP: "an item is nested too deeply",
    RejectionCode.TOO_LARGE: "an item is too large",
    RejectionCode.SERVER_KEY_REQUIRED: "a payment was sent with a publishable key",
    RejectionCode.CONFLICT: "a payment id was already used by a different payment",
}
_KINDS = {REJECTED: _ITEM, REFUSED: _REQUEST}


def health_of(context: MemberContext, project: str, window: Window) -> IngestHealth | None:
    """Return the ingest statistics of a window; None if they cannot be read now."""
    try:
        return health_from(context.parts.ingest_stats.counts(project, window))
    except StoreUnavailableError:
        return None


def health_from(counts: Sequence[IngestCount]) -> IngestHealth:
    found = {each.word: each.count for each in counts}
    rejections = [rejected for each in counts if (rejected := _rejected_from(each))]
    return IngestHealth(
        accepted=found.get(ACCEPTED, 0),
        repeats=found.get(REPEAT, 0),
        duplicates=found.get(DUPLICATE, 0),
        rejections=sorted(rejections, key=lambda each: (-each.count, each.kind, each.reason)),
    )


def reason_text(code: str) -> str:
    """Describe a rejection code. Counts of earlier versions may carry codes that are no longer in use."""
    if code not in set(RejectionCode):
        return f"recorded by an earlier version as \N{LEFT DOUBLE QUOTATION MARK}{code}\N{RIGHT DOUBLE QUOTATION MARK}"
    return _REASONS[RejectionCode(code)]


def _rejected_from(counted: IngestCount) -> RejectedCount | None:
    kind, _, reason = counted.word.partition(":")
    if kind not in _KINDS:
        return None
    text = reason_text(reason) if kind == REJECTED else words(reason).lower()
    return RejectedCount(_KINDS[kind], text, counted.count, counted.last_at)
