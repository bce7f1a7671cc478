"""Judged → durable → acknowledged."""

from http import HTTPStatus
from typing import Final

from mauve.core.batch import packed_header
from mauve.ingest.parts import IngestParts
from mauve.ingest.rules import EventsVerdict, ObjectsVerdict, Rejection
from mauve.stores.edge import PublishedKey
from mauve.stores.ledger import Entry, Outcome
from mauve.web.messages import JSON, Reply, json_reply

CONFLICT: Final = "conflicting payload for an existing id: the first write stands"
_ALL_ACCEPTED: Final = [
    Reply(HTTPStatus.ACCEPTED, b'{"ok":true,"accepted":%d,"rejected":0}' % count, JSON) for count in range(501)
]


async def make_events_durable(
    parts: IngestParts, key: PublishedKey, verdict: EventsVerdict, received_at: int
) -> list[Rejection]:
    """Store what was accepted, all of it or nothing; return the payments that the ledger refused."""
    record = None
    if verdict.events is not None:
        record = (packed_header(key.public_id, key.org_id, received_at, verdict.event_count), verdict.events)
    if not verdict.payments:
        if record is not None:
            await parts.log.append(record)
        return []
    # One transaction holds the payments and the events that came with them: never one without the other.
    entry = Entry(
        payments=[indexed.payment for indexed in verdict.payments],
        events=None if record is None else b"".join(record),
    )
    outcomes = await parts.ledger.record(entry)
    return _conflicts(parts, verdict, outcomes)


async def make_objects_durable(parts: IngestParts, verdict: ObjectsVerdict) -> None:
    if verdict.subscriptions:
        await parts.ledger.record(Entry(subscriptions=[indexed.subscription for indexed in verdict.subscriptions]))


def reply(item_count: int, rejections: list[Rejection]) -> Reply:
    """Return 202 with the errors of single items; 422 when there was nothing else."""
    if not rejections:
        return _ALL_ACCEPTED[item_count]
    ordered = sorted(rejections, key=lambda rejection: rejection.index)
    errors = [{"index": rejection.index, "reason": rejection.reason} for rejection in ordered]
    if len(errors) == item_count:
        body = {"ok": False, "error": "every item is invalid: see errors", "errors": errors}
        return json_reply(HTTPStatus.UNPROCESSABLE_ENTITY, body)
    accepted = item_count - len(errors)
    return json_reply(
        HTTPStatus.ACCEPTED, {"ok": True, "accepted": accepted, "rejected": len(errors), "errors": errors}
    )


def _conflicts(parts: IngestParts, verdict: EventsVerdict, outcomes: list[Outcome]) -> list[Rejection]:
    parts.counters.duplicates.inc(outcomes.count(Outcome.DUPLICATE))
    parts.counters.conflicts.inc(outcomes.count(Outcome.CONFLICT))
    return [
        Rejection(indexed.index, CONFLICT)
        for indexed, outcome in zip(verdict.payments, outcomes, strict=True)
        if outcome is Outcome.CONFLICT
    ]
