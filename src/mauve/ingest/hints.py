"""Hints about accepted items that probably mean something else: moved, misnamed or misspelled.

Almost every time is near its arrival, so a cheap look over a batch picks the few that are worth an exact one.
"""

import json
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple, cast

import msgspec
from msgspec import Raw

from mauve.core.events import SIGNUP, DatedEvent, Event, is_object
from mauve.core.problems import Fault
from mauve.core.subscriptions import likely_status
from mauve.core.times import DAY_MS, FUTURE_MAX_MS, PAST_MAX_MS, known_time_ms
from mauve.stores.ingest_stats import (
    AT_IN_SECONDS,
    MOVED_FUTURE,
    MOVED_PAST,
    MOVED_PAST_EARLIER,
    SIGNUP_RESEMBLES,
    STATUS_RESEMBLES,
    TIME_MISNAMED,
)
from mauve.web.messages import bearer_credential

_MISSING: Final = "the Authorization header is missing: send Authorization: Bearer and a server key (sk_)"
_NOT_BEARER: Final = "Authorization must be Bearer and a server key (sk_)"
_CONTROL_TOKEN: Final = "this is a control token, which cannot send: use a server key (sk_)"  # noqa: S105
_WEBHOOK_SECRET: Final = "this is a webhook secret, which is only for the biller: use a server key (sk_)"  # noqa: S105
_UNKNOWN: Final = "the key is unknown or revoked: mint one on the app's Keys page or with mauve key mint"


def credential_hint(authorization: str | None) -> Mapping[str, str]:
    """Return the header that says what is wrong with the credential."""
    credential = bearer_credential(authorization)
    if authorization is None:
        hint = _MISSING
    elif not credential:
        hint = _NOT_BEARER
    elif credential.startswith("ctl_"):
        hint = _CONTROL_TOKEN
    else:
        hint = _WEBHOOK_SECRET if credential.startswith(("whsec_", "polar_whs_")) else _UNKNOWN
    return {"x-service-hint": hint}


SECONDS_HINT: Final = "at looks like epoch seconds: send milliseconds"
SIGNUP_HINT: Final = f"a name resembles {SIGNUP}: only {SIGNUP} counts as a signup"
_SIGNUP_LETTERS: Final = frozenset({"usersignup", "signup", "signedup", "usersignedup", "usersignsup"})
_SIGNUP_CHARACTERS_MAX: Final = 24
_MONTHS_COUNTED: Final = 12  # older claims are counted together, so that no client can make many counters
_DAYS_COUNTED: Final = 60
_MINUTE_MS: Final = 60_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
# As milliseconds, these are days in early 1970; as seconds, the years 2001 to 2286.
_SECONDS_MIN, _SECONDS_MAX = 10**9, 10**10
TIME_NAMES: Final = ("timestamp", "time", "ts", "created_at", "date")
_TIME_NAME: Final = re.compile(rb'"(?:t(?:ime|imestamp|s)|date|created_at)"')
_FIRST_ITEM_BYTES: Final = 1024  # A client that misnames the time does so in the first item, too.
_JSON: Final = json.JSONDecoder()
_FIELDS: Final = msgspec.json.Decoder(dict[str, Raw])
_FIELDS_OF_ITEMS: Final = msgspec.json.Decoder(list[dict[str, Raw]])
_NULL: Final = Raw(b"null")
# One millisecond narrower than the window, because the exact check rounds down.
_LAG_MAX_MS, _LEAD_MAX_MS = 1 - PAST_MAX_MS, FUTURE_MAX_MS - 1
_LAG_MAX, _LEAD_MAX = timedelta(milliseconds=_LAG_MAX_MS), timedelta(milliseconds=_LEAD_MAX_MS)

_Item = Event | DatedEvent | Fault


class Hints(NamedTuple):
    """What is odd about accepted items: in words to count for the owner, and in headers for the sender."""

    words: Mapping[str, int]
    headers: Mapping[str, str]


NO_HINTS: Final = Hints({}, {})


def status_hints(statuses: Iterable[str]) -> Hints:
    """Return the hints about statuses that only resemble a known one."""
    likely = Counter(known for status in statuses if (known := likely_status(status)) is not None)
    if not likely:
        return NO_HINTS
    known = ", ".join(sorted(likely))
    text = f"a status differs from {known} in case, spaces or spelling: only active counts toward MRR"
    return Hints({f"{STATUS_RESEMBLES}:{each}": count for each, count in likely.items()}, {"x-service-hint": text})


def scan_times(events: Iterable[DatedEvent], received_at: int) -> tuple[bool, list[DatedEvent]]:
    """Return whether a time may have an offset other than UTC, and the events whose times need an exact look.

    One plain loop: it runs over every event.
    """
    oldest, newest = _safe_range(received_at // _MINUTE_MS)
    has_offset, remarkable = False, []
    for event in events:
        at, sent_at = event.at, event.sent_at
        if sent_at is not None and sent_at.__class__ is datetime and sent_at.tzinfo is not UTC:
            has_offset = True
        if at is None:
            continue
        if at.__class__ is datetime:
            if at.tzinfo is not UTC:
                has_offset = True
            if sent_at is None:
                if oldest < at < newest:
                    continue
            elif sent_at.__class__ is datetime and _LAG_MAX < at - sent_at < _LEAD_MAX:
                continue
        elif _is_usual_number(at, received_at if sent_at is None else sent_at):
            continue
        remarkable.append(event)
    return has_offset, remarkable


def _is_usual_number(at: datetime | int, sent_at: datetime | int) -> bool:
    if at.__class__ is not int or at < _SECONDS_MAX:
        return False
    sent_ms = sent_at if sent_at.__class__ is int else _epoch_ms(sent_at)
    return _LAG_MAX_MS < at - sent_ms < _LEAD_MAX_MS


def dated(events: Iterable[Event | DatedEvent]) -> list[DatedEvent]:
    """Return the events that have a time, with that time decoded."""
    timed = (event for event in events if event.at is not None)
    return [
        DatedEvent(event.name, at=_moment(event.at), sent_at=_moment(event.sent_at))
        if event.__class__ is Event
        else cast("DatedEvent", event)
        for event in timed
    ]


def time_hints(remarkable: Sequence[DatedEvent], received_at: int, items: Sequence[_Item]) -> Hints:
    """Return the hints about accepted events whose times are remarkable, among all items of the batch."""
    if not remarkable:
        return NO_HINTS
    starts, past_words = _periods_before(received_at // DAY_MS)
    has_moved, words = False, Counter[str]()
    for event in remarkable:
        at, claim = event.at, _claim(event, received_at)
        is_moved = _is_moved(claim, received_at)
        has_moved |= is_moved
        if at.__class__ is int and _SECONDS_MIN <= at < _SECONDS_MAX:
            words[AT_IN_SECONDS] += 1
        elif is_moved:
            words[MOVED_FUTURE if claim > received_at else past_words[bisect_right(starts, claim)]] += 1
    headers = _moved_headers(items, received_at) if has_moved else {}
    return Hints(words, headers | ({"x-service-hint": SECONDS_HINT} if AT_IN_SECONDS in words else {}))


def _moved_headers(items: Sequence[_Item], received_at: int) -> dict[str, str]:
    """Return how many items were moved, and their indexes, such as `0, 2-5`."""
    indexes = [
        index
        for index, item in enumerate(items)
        if not isinstance(item, Fault) and item.at is not None and _is_moved(_claim(item, received_at), received_at)
    ]
    runs: list[list[int]] = []
    for index in indexes:
        if runs and index == runs[-1][-1] + 1:
            runs[-1][1:] = [index]
        else:
            runs.append([index])
    return {
        "x-service-moved": str(len(indexes)),
        "x-service-moved-items": ", ".join("-".join(map(str, run)) for run in runs),
    }


def _claim(event: Event | DatedEvent, received_at: int) -> int:
    """Return when an event with a time claims to have happened, in epoch milliseconds by our clock."""
    at, sent_at = cast("datetime | int", _moment(event.at)), _moment(event.sent_at)
    return _epoch_ms(at) if sent_at is None else _epoch_ms(at) + received_at - _epoch_ms(sent_at)


def _is_moved(claim: int, received_at: int) -> bool:
    return not received_at - PAST_MAX_MS <= claim <= received_at + FUTURE_MAX_MS


@lru_cache(maxsize=4096)
def resembles_signup(name: str) -> bool:
    """Return whether a name differs from `user_signup` only in case, spaces, punctuation or usual spellings."""
    if "up" not in name[-4:].lower() or name == SIGNUP or len(name) > _SIGNUP_CHARACTERS_MAX:
        return False
    return "".join(filter(str.isalpha, name.casefold())) in _SIGNUP_LETTERS


def with_misspelled_signups(hints: Hints, names: Iterable[str]) -> Hints:
    """Add the hint about names that resemble `user_signup`."""
    return _with_hint(hints, SIGNUP_HINT, {SIGNUP_RESEMBLES: sum(map(resembles_signup, names))})


def may_misname_time(text: bytes) -> bool:
    """Return quickly whether the first item probably has its time in a field that is ignored."""
    if _TIME_NAME.search(text, 0, _FIRST_ITEM_BYTES) is None:
        return False
    try:  # It may be the name of a prop.
        first, _ = _JSON.raw_decode(text[:_FIRST_ITEM_BYTES].decode(errors="ignore").lstrip(" \t\n\r["))
    except (ValueError, RecursionError):  # The item is longer.
        return True
    return not first.keys().isdisjoint(TIME_NAMES)


def with_misnamed_times(hints: Hints, items: bytes) -> Hints:
    """Add the hints about items without `at` whose time is probably in a field of another name, which is ignored."""
    words = Counter(
        f"{TIME_MISNAMED}:{name}"
        for item in ([_FIELDS.decode(items)] if is_object(items) else _FIELDS_OF_ITEMS.decode(items))
        if item.get("at", _NULL) == _NULL
        for name in TIME_NAMES
        if item.get(name, _NULL) != _NULL
    )
    if not words:
        return hints
    name = words.most_common(1)[0][0].partition(":")[2]
    return _with_hint(hints, f"{name} is not a field: did you mean at?", words)


def _with_hint(hints: Hints, text: str, words: Mapping[str, int]) -> Hints:
    texts = [hints.headers.get("x-service-hint"), text]
    header = {"x-service-hint": "; ".join(filter(None, texts))}
    return Hints({**hints.words, **words}, {**hints.headers, **header})


@lru_cache(maxsize=4)
def _safe_range(minute: int) -> tuple[datetime, datetime]:
    """Return two moments between which nothing is moved that arrives in this minute."""
    oldest, newest = (minute + 1) * _MINUTE_MS - PAST_MAX_MS, minute * _MINUTE_MS + FUTURE_MAX_MS
    return _EPOCH + oldest * _MILLISECOND, _EPOCH + newest * _MILLISECOND


@lru_cache(maxsize=4)
def _periods_before(day: int) -> tuple[Sequence[int], Sequence[str]]:
    """Return the starts of the last days, and of the months before them, in epoch milliseconds, and their words."""
    today = _EPOCH + timedelta(days=day)
    days = [today - timedelta(days=age) for age in range(_DAYS_COUNTED, -1, -1)]
    last = today.year * 12 + today.month - 1
    months = [
        datetime(each // 12, each % 12 + 1, 1, tzinfo=UTC) for each in range(last - _MONTHS_COUNTED + 1, last + 1)
    ]
    months = [month for month in months if month < days[0]]
    return (
        [(start - _EPOCH) // _MILLISECOND for start in (*months, *days)],
        [
            MOVED_PAST_EARLIER,
            *(f"{MOVED_PAST}:{month:%Y-%m}" for month in months),
            *(f"{MOVED_PAST}:{each:%Y-%m-%d}" for each in days),
        ],
    )


def _epoch_ms(moment: datetime | int) -> int:
    if moment.__class__ is int:
        return moment
    since = cast("datetime", moment) - _EPOCH  # Dividing it by a millisecond would take twice as long.
    return since.days * DAY_MS + since.seconds * 1000 + since.microseconds // 1000


def _moment(value: str | datetime | int | None) -> datetime | int | None:
    if not isinstance(value, str):
        return value
    try:
        return datetime.fromisoformat(value)
    except ValueError:  # a leap second
        return known_time_ms(value)
