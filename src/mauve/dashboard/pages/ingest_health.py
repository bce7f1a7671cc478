"""Ingest statistics of a project: accepted and rejected items, and the reasons."""

from calendar import month_name
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mauve.core.app import App
from mauve.core.credential import KeyKind
from mauve.core.problems import RejectionCode
from mauve.core.window import Window
from mauve.dashboard.context import MemberContext
from mauve.dashboard.text import words
from mauve.stores import StoreUnavailableError
from mauve.stores.ingest_stats import (
    ACCEPTED,
    ACCEPTED_OBJECT,
    AT_IN_SECONDS,
    DUPLICATE,
    MOVED_FUTURE,
    MOVED_PAST,
    MOVED_PAST_EARLIER,
    REFUSED,
    REJECTED,
    REPEAT,
    SIGNUP_RESEMBLES,
    STATUS_RESEMBLES,
    SUPPRESSED,
    TIME_MISNAMED,
    IngestCount,
)


@dataclass(frozen=True, slots=True)
class RejectedCount:
    """The number of items or requests rejected for one reason."""

    kind: str  # _ITEM or _REQUEST
    reason: str
    count: int
    last_at: int  # epoch ms


@dataclass(frozen=True, slots=True)
class IngestWarning:
    """Accepted items that probably do not count as the sender meant."""

    title: str
    advice: str
    count: int
    last_at: int  # epoch ms


@dataclass(frozen=True, slots=True)
class IngestHealth:
    accepted: int
    repeats: int
    duplicates: int
    rejections: Sequence[RejectedCount]  # most frequent first
    warnings: Sequence[IngestWarning]

    @property
    def rejected(self) -> int:
        """Return the number of rejected items, without whole requests."""
        return sum(each.count for each in self.rejections if each.kind == _ITEM)


_ITEM, _REQUEST = "item", "request"
_REASONS: Final[Mapping[RejectionCode, str]] = {
    RejectionCode.NAME: "name is missing, empty, too long or not a string",
    RejectionCode.USER: "user is not a string or is too long",
    RejectionCode.ID: "id is missing, not a string, or too long",
    RejectionCode.AT: "at is not a valid time",
    RejectionCode.SENT_AT: "sent_at is not a valid time",
    RejectionCode.PROPS: "props is not an object or has too many keys",
    RejectionCode.PROPS_VALUE: "a value in props is nested or too long",
    RejectionCode.AMOUNT: "amount is missing, negative or not a whole number of minor units",
    RejectionCode.CURRENCY: "currency is missing or not an ISO 4217 code",
    RejectionCode.EARNED: "earned is neither true nor false",
    RejectionCode.TYPE: "type is missing or not subscription",
    RejectionCode.STATUS: "status is missing or not a string",
    RejectionCode.MRR: "mrr is missing, negative or not a whole number of minor units",
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
_PAST_ADVICE: Final = (
    "They count seven days before they arrived, not when they claim. Events and payments of the past cannot be sent to "
    "/v1/events: the operator imports them with mauve import. Subscriptions keep any at."
)
_MISNAMED_ADVICE: Final = "It was ignored, so these items count when they arrived. Send the time as at."
_WARNINGS: Final = {
    MOVED_FUTURE: (
        "Moved back to five minutes after arrival",
        "Check the sender's clock, and that at is in milliseconds.",
    ),
    AT_IN_SECONDS: (
        "at looks like epoch seconds: send milliseconds",
        "Read as milliseconds, these times are in 1970, so they were moved or are wrong.",
    ),
    SIGNUP_RESEMBLES: (
        "A name is almost user_signup, but differs in case, spaces or spelling",
        "It does not count as a signup. Did you mean user_signup? Use exactly that name.",
    ),
    SUPPRESSED: (
        "Server events not counted: a publishable key had used their ids",
        "If your pages do not send these ids, someone guessed them: use random ids such as UUIDs, and replace the key.",
    ),
}


def health_of(context: MemberContext, app: App, project: str, window: Window) -> IngestHealth | None:
    """Return the ingest statistics of a window; None if unavailable."""
    try:
        counts = context.parts.ingest_stats.counts(project, window)
        # Ids of earlier releases carry no kind of key: do not warn about a key that does not exist.
        if SUPPRESSED in {each.word for each in counts} and not _has_publishable_key(context, app):
            counts = [each for each in counts if each.word != SUPPRESSED]
        return health_from(counts)
    except StoreUnavailableError:
        return None


def _has_publishable_key(context: MemberContext, app: App) -> bool:
    return any(key.kind is KeyKind.PUBLISHABLE for key in context.control.catalog.keys.all_of(app.app_id))


def health_from(counts: Sequence[IngestCount]) -> IngestHealth:
    found = {each.word: each.count for each in counts}
    rejections = [rejected for each in counts if (rejected := _rejected_from(each))]
    return IngestHealth(
        accepted=found.get(ACCEPTED, 0) + found.get(ACCEPTED_OBJECT, 0),
        repeats=found.get(REPEAT, 0),
        duplicates=found.get(DUPLICATE, 0),
        rejections=sorted(rejections, key=lambda each: (-each.count, each.kind, each.reason)),
        warnings=warnings_from(counts),
    )


def warnings_from(counts: Sequence[IngestCount]) -> list[IngestWarning]:
    """Return the items that the owner should check, with advice."""
    found = []
    if past := [each for each in counts if each.word.startswith(f"{MOVED_PAST}:")]:
        title = f"Moved into the 7-day window; oldest claim: {_oldest_claim(past)}"
        found.append(_warning(title, _PAST_ADVICE, past))
    for each in counts:
        kind, _, known = each.word.partition(":")
        if kind in _WARNINGS:
            found.append(_warning(*_WARNINGS[kind], [each]))
        elif kind == STATUS_RESEMBLES:
            found.append(_warning(*_status_warning(known), [each]))
        elif kind == TIME_MISNAMED:
            found.append(_warning(f"{known} is not a field: did you mean at?", _MISNAMED_ADVICE, [each]))
    return found


def _warning(title: str, advice: str, counts: Sequence[IngestCount]) -> IngestWarning:
    return IngestWarning(title, advice, sum(each.count for each in counts), max(each.last_at for each in counts))


def _oldest_claim(past: Sequence[IngestCount]) -> str:
    words = {each.word for each in past}
    if MOVED_PAST_EARLIER in words:
        return "more than 11 months ago"
    year, month, *day = map(int, min(words).partition(":")[2].split("-"))
    return " ".join(map(str, (*day, month_name[month], year)))


def _status_warning(known: str) -> tuple[str, str]:
    title = f"A status is almost {_quoted(known)}, but differs in case, spaces or spelling"
    if known == "active":
        return title, "It does not count toward MRR. Did you mean active? Use exactly that name."
    return title, f"Stored as sent. Did you mean {known}?"


def _quoted(text: str) -> str:
    return f"\N{LEFT DOUBLE QUOTATION MARK}{text}\N{RIGHT DOUBLE QUOTATION MARK}"


def reason_text(code: str) -> str:
    """Describe a rejection code. Counts of earlier versions may carry codes that are no longer in use."""
    if code not in set(RejectionCode):
        return f"recorded by an earlier version as {_quoted(code)}"
    return _REASONS[RejectionCode(code)]


def _rejected_from(counted: IngestCount) -> RejectedCount | None:
    kind, _, reason = counted.word.partition(":")
    if kind not in _KINDS:
        return None
    text = reason_text(reason) if kind == REJECTED else words(reason).lower()
    return RejectedCount(_KINDS[kind], text, counted.count, counted.last_at)
