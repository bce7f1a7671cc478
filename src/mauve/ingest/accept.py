"""Make judged items durable, then acknowledge them.

CORS lets pages of any origin send events with a publishable key, and nothing else.
"""

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from http import HTTPStatus
from typing import Any, Final

from mauve.access.event_caps import EventCaps
from mauve.core.accepted import OrgPeriod
from mauve.core.batch import marked, packed_header
from mauve.core.credential import KeyKind
from mauve.core.problems import Fault, RejectionCode
from mauve.ingest import IngestParts
from mauve.ingest.rules import EventsVerdict, ObjectsVerdict, Rejection
from mauve.ingest.wire import ITEMS_MAX
from mauve.stores.ingest_stats import DUPLICATE
from mauve.stores.ledger import Entry, Outcome
from mauve.stores.published import PublishedKey
from mauve.web.messages import JSON, Reply, json_reply

_ANY_ORIGIN: Final = {"access-control-allow-origin": "*"}
_READABLE: Final = ("retry-after", "x-service-throttle", "x-service-moved", "x-service-moved-items", "x-service-hint")
EVENT_HEADERS: Final = {**JSON, **_ANY_ORIGIN}
PREFLIGHT: Final = Reply(
    204,
    b"",
    {
        **_ANY_ORIGIN,
        "access-control-allow-methods": "POST",
        "access-control-allow-headers": "authorization, content-type, content-encoding",
        "access-control-max-age": "86400",
    },
)


def with_cors(reply: Reply) -> Reply:
    """Let a page read the reply and the headers that concern its sender."""
    readable = ", ".join(name for name in _READABLE if name in reply.headers)
    exposed = {"access-control-expose-headers": readable} if readable else {}
    return reply.with_headers(_ANY_ORIGIN | exposed)


CONFLICT: Final = Fault(RejectionCode.CONFLICT, "conflicting payload for an existing id: the first write stands")
_PUBLISHABLE: Final = KeyKind.PUBLISHABLE  # An enum lookup by name would cost a call on every request.
_ALL_ACCEPTED: Final = [b'{"ok":true,"accepted":%d,"rejected":0}' % count for count in range(ITEMS_MAX + 1)]


def log_record(key: PublishedKey, verdict: EventsVerdict, received_at: int, arrived_at: int) -> tuple[bytes, bytes]:
    """Return the header and the events of a log record."""
    events = verdict.events or b""
    received_at = marked(received_at, is_publishable=key.kind is _PUBLISHABLE)
    return (packed_header(key.public_id, key.org_id, received_at, arrived_at, verdict.event_count), events)


def store_events(
    parts: IngestParts, key: PublishedKey, verdict: EventsVerdict, received_at: int, org_period: OrgPeriod | None
) -> asyncio.Future[Any] | None:
    """Begin to store the accepted items, and count them toward the cap. They are durable once the future is done.

    Of payments the result is a list of those that the ledger refused. Return None if nothing was accepted.
    """
    if verdict.payments:
        return record_payments(parts, key, verdict, received_at, org_period)
    if verdict.events is None:
        return None
    record = log_record(key, verdict, received_at, parts.clock.now_us())
    if org_period is None:
        return parts.log.append(record)
    return append_counted(parts, record, org_period, verdict.event_count)


def append_counted(
    parts: IngestParts, record: tuple[bytes, bytes], org_period: OrgPeriod, events: int
) -> asyncio.Future[int]:
    """Append a record whose events count toward a cap from now on, not only once they are durable."""
    parts.caps.reserve(org_period, events)
    try:
        appended = asyncio.ensure_future(parts.log.append(record))
    except BaseException:
        parts.caps.cancel(org_period, events)
        raise
    appended.add_done_callback(partial(_commit_count, parts.caps, org_period, events))
    return appended


def _commit_count(caps: EventCaps, org_period: OrgPeriod, events: int, appended: asyncio.Future[int]) -> None:
    if appended.cancelled() or appended.exception() is not None:
        caps.cancel(org_period, events)
    else:
        caps.commit(org_period, events, appended.result())


def record_payments(
    parts: IngestParts, key: PublishedKey, verdict: EventsVerdict, received_at: int, org_period: OrgPeriod | None
) -> asyncio.Task[list[Rejection]]:
    """Record the payments and the other events of the batch; the result is the payments that the ledger refused."""
    record = None if verdict.events is None else b"".join(log_record(key, verdict, received_at, parts.clock.now_us()))
    # One transaction for both: never one without the other.
    entry = Entry(payments=[payment for _, payment in verdict.payments], events=record)
    counted = ExitStack()
    if org_period is not None:
        counted.enter_context(parts.caps.recording(org_period, verdict.event_count + len(verdict.payments)))

    async def recorded() -> list[Rejection]:
        with counted:
            outcomes = await _record(parts, key, entry)
        return _conflicts(parts, key, verdict, outcomes)

    return asyncio.get_running_loop().create_task(recorded())


async def make_objects_durable(parts: IngestParts, key: PublishedKey, verdict: ObjectsVerdict) -> None:
    if verdict.subscriptions:
        entry = Entry(subscriptions=[version for _, version in verdict.subscriptions])
        await _record(parts, key, entry)


async def _record(parts: IngestParts, key: PublishedKey, entry: Entry) -> list[Outcome]:
    await parts.keyring.confirm(key)  # Money needs a key that is known to be live: see docs/reliability.md.
    return await parts.ledger.record(entry, key.org_id)


def reply(item_count: int, rejections: list[Rejection], headers: Mapping[str, str]) -> Reply:
    """Return 202 with the errors of rejected items, or 422 if every item was rejected."""
    if not rejections:
        return Reply(202, _ALL_ACCEPTED[item_count], headers)
    ordered = sorted(rejections, key=lambda rejection: rejection.index)
    errors = [{"index": rejection.index, "reason": rejection.fault.text} for rejection in ordered]
    if len(errors) == item_count:
        body: dict[str, object] = {"ok": False, "error": "every item is invalid: see errors", "errors": errors}
        return json_reply(HTTPStatus.UNPROCESSABLE_ENTITY, body)._replace(headers=headers)
    body = {"ok": True, "accepted": item_count - len(errors), "rejected": len(errors), "errors": errors}
    return json_reply(HTTPStatus.ACCEPTED, body)._replace(headers=headers)


def _conflicts(
    parts: IngestParts, key: PublishedKey, verdict: EventsVerdict, outcomes: list[Outcome]
) -> list[Rejection]:
    duplicates = outcomes.count(Outcome.DUPLICATE)
    if duplicates:
        parts.counters.duplicates += duplicates
        parts.counters.project_stats[key.public_id, DUPLICATE] += duplicates
    parts.counters.conflicts += outcomes.count(Outcome.CONFLICT)
    return [
        Rejection(index, CONFLICT)
        for (index, _), outcome in zip(verdict.payments, outcomes, strict=True)
        if outcome is Outcome.CONFLICT
    ]
