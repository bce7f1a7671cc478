"""How well a project is being sent to: what was accepted, and what was not and why."""

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
_REASONS: Final[Mapping[RejectionCode, str]] = {
    RejectionCode.NAME: "name is missing, empty or too long",
    RejectionCode.USER: "user is no text, or too long",
    RejectionCode.ID: "id is missing, no text, or too long",
    RejectionCode.AT: "at is no time",
    RejectionCode.SENT_AT: "sent_at is no time",
    RejectionCode.PROPS: "props are no object, or have too many keys",
    RejectionCode.PROPS_VALUE: "a value in props is nested or too long",
    RejectionCode.AMOUNT: "amount is no whole number of minor units",
    RejectionCode.CURRENCY: "currency is no ISO 4217 code",
    RejectionCode.EARNED: "earned is neither true nor false",
    RejectionCode.TYPE: "type is not subscription",
    RejectionCode.STATUS: "status is missing or no text",
    RejectionCode.MRR: "mrr is no whole number of minor units",
    RejectionCode.NOT_AN_OBJECT: "an item is no JSON object",
    RejectionCode.NUMBER_OUT_OF_RANGE: "a number is out of range",
    RejectionCode.LONE_SURROGATE: "a text holds half a character",
    RejectionCode.REPEATED_KEY: "a key appears twice",
    RejectionCode.TOO_DEEP: "an item is nested too deeply",
    RejectionCode.TOO_LARGE: "an item is too large",
    RejectionCode.SERVER_KEY_REQUIRED: "a payment was sent with a publishable key",
    RejectionCode.CONFLICT: "a payment's id is taken by another payment",
}
_WHATS = {REJECTED: _ITEM, REFUSED: _REQUEST}


def health_of(context: MemberContext, project: str, window: Window) -> Health | None:
    """Return it; None if it cannot be read now."""
    try:
        return health_from(context.parts.arrivals.counts(project, window))
    except StoreUnavailableError:
        return None


def health_from(counts: Sequence[IngestCount]) -> Health:
    found = {each.word: each.count for each in counts}
    refusals = [form_error for each in counts if (form_error := _refusal_from(each))]
    return Health(
        accepted=found.get(ACCEPTED, 0),
        repeats=found.get(REPEAT, 0),
        duplicates=found.get(DUPLICATE, 0),
        refusals=sorted(refusals, key=lambda each: (-each.count, each.what, each.reason)),
    )


def reason_text(code: str) -> str:
    """Return what an owner reads for a code. Earlier versions have counted under other words."""
    if code not in set(RejectionCode):
        return f"noted by an earlier version as \N{LEFT DOUBLE QUOTATION MARK}{code}\N{RIGHT DOUBLE QUOTATION MARK}"
    return _REASONS[RejectionCode(code)]


def _refusal_from(counted: IngestCount) -> Refusals | None:
    kind, _, reason = counted.word.partition(":")
    if kind not in _WHATS:
        return None
    spelled = reason_text(reason) if kind == REJECTED else words(reason).lower()
    return Refusals(_WHATS[kind], spelled, counted.count, counted.last_at)
