"""The operations of the ingest plane."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

import msgspec

from mauve.access.standing import check_cap, check_standing
from mauve.control.bodies import APP_ID_EXAMPLE, KEY_ID_EXAMPLE, PROJECT_ID_EXAMPLE
from mauve.core.app import Environment
from mauve.core.credential import KeyKind
from mauve.core.organization import Standing
from mauve.core.problems import unauthorized
from mauve.ingest import accept, rules, wire
from mauve.ingest.cors import PREFLIGHT, with_cors
from mauve.ingest.credential_hint import with_credential_hint
from mauve.ingest.hints import with_hints
from mauve.ingest.plane import not_stored, server_key_required, unsupported_type
from mauve.ingest.publishable import BODY_BYTES_MAX, key_rate_limited
from mauve.ingest.wire import ITEM_BYTES_MAX, ITEMS_MAX
from mauve.openapi.operation import (
    PUBLISHABLE_KEY,
    SERVER_KEY,
    Body,
    Example,
    Operation,
    Parameter,
    Response,
    Schema,
    data_error,
    method_not_allowed,
    problem_raised_by,
    ref,
)
from mauve.stores.published import PublishedKey, PublishedOrganization
from mauve.web.compression import too_large
from mauve.web.messages import JSON

TAG: Final = "Ingest"
_NOW_MS: Final = int(datetime(2026, 11, 14, 9, 30, tzinfo=UTC).timestamp()) * 1000
_EVENT: Final = {
    "name": "report_opened",
    "user": "ann",
    "id": "0f8fad5b-d9cb-469f-a165-70867728950e",
    "props": {"plan": "pro"},
}
_SIGNUP: Final = {"name": "user_signup", "user": "ann", "at": "2026-11-14T09:30:00Z"}
_PAYMENT: Final = {
    "name": "payment",
    "user": "ann",
    "id": "invoice-1",
    "props": {"amount": 1999, "currency": "eur"},
}
_SUBSCRIPTION: Final = {"type": "subscription", "id": "sub-1", "status": "active", "mrr": 1999, "currency": "eur"}
_NO_CURRENCY: Final = {"type": "subscription", "id": "sub-2", "status": "active", "mrr": 1999}
_SUSPENDED: Final = PublishedOrganization(
    org_id="org_1",
    standing=Standing.SUSPENDED,
    grace_ends_at=None,
    event_cap=None,
    reads_per_minute=0,
    agent_queries=0,
    raw_scans=0,
)


def _key(kind: KeyKind) -> PublishedKey:
    return PublishedKey(
        key_id=KEY_ID_EXAMPLE,
        digest=b"",
        kind=kind,
        environment=Environment.LIVE,
        public_id=PROJECT_ID_EXAMPLE,
        app_id=APP_ID_EXAMPLE,
        org_id="org_1",
        revoked=False,
    )


_SERVER: Final = _key(KeyKind.SERVER)
_PUBLISHABLE: Final = _key(KeyKind.PUBLISHABLE)


def _judged_events(key: PublishedKey, *items: object) -> rules.EventsVerdict:
    return rules.judge_events(msgspec.json.encode(items), key, _NOW_MS)


def _judged_objects(*items: object) -> rules.ObjectsVerdict:
    return rules.judge_objects(msgspec.json.encode(items), _SERVER, _NOW_MS)


def _result(name: str, when: str, verdict: rules.EventsVerdict | rules.ObjectsVerdict) -> Response:
    """Return the response to a batch that the rules have judged."""
    reply = with_hints(accept.reply(verdict.item_count, verdict.rejections, JSON), verdict.hints)
    is_accepted = len(verdict.rejections) < verdict.item_count
    return Response(name, when, reply, ref("IngestResult" if is_accepted else "BatchRefused"))


def _accepted(verdict: rules.EventsVerdict | rules.ObjectsVerdict) -> Response:
    return _result("accepted", "Every item is stored durably.", verdict)


def _partly_accepted(verdict: rules.EventsVerdict | rules.ObjectsVerdict) -> Response:
    return _result("partly_accepted", "Some items were rejected; the others are stored durably.", verdict)


def _every_item_invalid(verdict: rules.EventsVerdict | rules.ObjectsVerdict) -> Response:
    return _result("every_item_invalid", "Every item of the batch is invalid.", verdict)


def _one_or_many(*names: str) -> Schema:
    items = ref(names[0]) if len(names) == 1 else {"anyOf": [ref(name) for name in names]}
    return {"anyOf": [*(ref(name) for name in names), {"type": "array", "items": items, "maxItems": ITEMS_MAX}]}


_ENCODING: Final = Parameter(
    "Content-Encoding",
    "header",
    "How the body is compressed, if at all: `gzip` or `zstd`. All limits apply to the uncompressed body.",
    {"type": "string", "enum": ["gzip", "x-gzip", "zstd", "identity", ""]},
)
_REFUSED_KEY: Final = data_error("The key is missing, unknown or revoked, or is a control token.", unauthorized())
_UNAUTHORIZED: Final = replace(_REFUSED_KEY, reply=with_credential_hint(_REFUSED_KEY.reply, None))
_UNSUPPORTED: Final = data_error(
    "Content-Type is not application/json, or Content-Encoding is not supported.", unsupported_type()
)
_TOO_LARGE: Final = data_error("The body is too large.", too_large(BODY_BYTES_MAX))
_TOO_MANY: Final = data_error(
    "There are too many items.", problem_raised_by(_judged_objects, *[{}] * (ITEMS_MAX + 1)), "too_many"
)
_MALFORMED: Final = data_error(
    "The body is not JSON, is neither an object nor an array, or was cut off.", problem_raised_by(wire.split, b"")
)
_NOT_STORED: Final = data_error(
    "The items could not be stored, or nothing confirmed that they were. Retry with the same ids.", not_stored()
)

_EVENT_RESPONSES: Final = (
    _accepted(_judged_events(_SERVER, _SIGNUP, _EVENT)),
    _result(
        "accepted_and_moved",
        "Every item is stored durably; some times were moved into the window.",
        _judged_events(_SERVER, _SIGNUP, {**_EVENT, "at": _NOW_MS // 1000}),
    ),
    _partly_accepted(_judged_events(_PUBLISHABLE, _EVENT, _PAYMENT)),
    _MALFORMED,
    _UNAUTHORIZED,
    data_error(
        "The organization has no live subscription. Retrying does not help.",
        problem_raised_by(check_standing, _SUSPENDED, _NOW_MS),
    ),
    data_error(
        "Every item is a payment, and the key is a publishable key.",
        problem_raised_by(_judged_events, _PUBLISHABLE, _PAYMENT),
    ),
    data_error(
        "The organization's own event cap is reached. It lifts with the next billing period.",
        problem_raised_by(check_cap, 1_000_000, 1_000_000, _NOW_MS),
    ),
    method_not_allowed("POST"),
    _TOO_LARGE,
    _TOO_MANY,
    _UNSUPPORTED,
    _every_item_invalid(_judged_events(_SERVER, {"user": "ann"})),
    data_error("The publishable key exceeds its limit of events or bytes per second.", key_rate_limited("events", 1)),
    _NOT_STORED,
)

OPERATIONS: Final = (
    Operation(
        method="POST",
        path="/v1/events",
        id="writeEvents",
        tag=TAG,
        summary="Write events and payments",
        description=(
            "Write one event, or an array of events. 202 means that they are stored durably; they can be read a few "
            "seconds later.\n\nItems are checked one by one: valid items are accepted, the others are listed under "
            f"`errors`. An item of more than {ITEM_BYTES_MAX // 1024} KB as compact JSON is rejected. Sending the same "
            "`id` again does not count twice, so a batch can be retried when no response arrived. If the app has a "
            "publishable key, ids must be unguessable, such as random UUIDs: an event that someone sends with that key "
            "suppresses a server's event with the same id.\n\nA time outside the last 7 days and the next 5 minutes is "
            "moved to the nearest moment inside; `x-service-moved` and `x-service-moved-items` say how many and which. "
            "To bring in older events and payments, use `mauve import`."
        ),
        security=(SERVER_KEY, PUBLISHABLE_KEY),
        parameters=(_ENCODING,),
        body=Body(
            f"At most {ITEMS_MAX} items and 1 MB. A payment requires a server key.",
            _one_or_many("Event", "Payment"),
            (
                Example("batch", "Several events", [_SIGNUP, _EVENT, _PAYMENT]),
                Example("event", "One event", _EVENT),
                Example("payment", "One payment", _PAYMENT),
            ),
        ),
        responses=tuple(replace(response, reply=with_cors(response.reply)) for response in _EVENT_RESPONSES),
    ),
    Operation(
        method="OPTIONS",
        path="/v1/events",
        id="askToWriteEvents",
        tag=TAG,
        summary="Check whether a page may write events",
        description="The preflight request that a browser sends for a page of another origin. Always allowed.",
        responses=(Response("allowed", "The page may write events.", PREFLIGHT),),
    ),
    Operation(
        method="POST",
        path="/v1/objects",
        id="writeSubscriptions",
        tag=TAG,
        summary="Write the state of subscriptions",
        description=(
            "Write one subscription, or an array of subscriptions. Each replaces the stored version with the same "
            "`id`, unless that has a later `at`. Accepted even if the organization is suspended or over its cap."
        ),
        security=(SERVER_KEY,),
        parameters=(_ENCODING,),
        body=Body(
            f"At most {ITEMS_MAX} items and 1 MB.",
            _one_or_many("Subscription"),
            (Example("subscription", "One subscription", _SUBSCRIPTION),),
        ),
        responses=(
            _accepted(_judged_objects(_SUBSCRIPTION, {**_SUBSCRIPTION, "id": "sub-2"})),
            _result(
                "accepted_with_a_hint",
                "Every item is stored durably; a status is probably misspelled.",
                _judged_objects({**_SUBSCRIPTION, "status": "Active"}),
            ),
            _partly_accepted(_judged_objects(_SUBSCRIPTION, _NO_CURRENCY)),
            _MALFORMED,
            _UNAUTHORIZED,
            data_error("The key is a publishable key.", server_key_required()),
            method_not_allowed("POST"),
            _TOO_LARGE,
            _TOO_MANY,
            _UNSUPPORTED,
            _every_item_invalid(_judged_objects({"id": "sub-1"})),
            _NOT_STORED,
        ),
    ),
)
