"""Examples of every request body and response, by operation. The service's own code generates the responses."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from http import HTTPStatus
from typing import Any, Final

import msgspec

from mauve.access.event_caps import check_cap, check_standing
from mauve.access.read_limits import problem_from
from mauve.access.tokens import insufficient_scope
from mauve.control import bodies
from mauve.control.plane import backend_unavailable
from mauve.control.routes import OPERATIONS as CONTROL_ROUTES
from mauve.control.routes import Operation as ControlRoute
from mauve.core.app import AppType, Environment, Ownership
from mauve.core.credential import KeyKind, Scope
from mauve.core.organization import Standing
from mauve.core.problems import Code, Problem, not_found, unauthorized, unknown_project, unknown_webhook
from mauve.core.window import Window, period_ends_at
from mauve.ingest import accept, rules, wire
from mauve.ingest import plane as ingest
from mauve.ingest.accept import PREFLIGHT, with_cors
from mauve.ingest.hints import credential_hint
from mauve.ingest.publishable import BODY_BYTES_MAX, key_rate_limited
from mauve.ingest.webhooks import endpoint as webhook
from mauve.ingest.wire import ITEMS_MAX
from mauve.metrics.questions import Question, Row, body_of, question_from
from mauve.metrics.registry import METRICS, NAMES_MAX, metric_named
from mauve.query import plane as query
from mauve.query.answer_cache import Answer, Freshness
from mauve.query.ask import cannot_be_read
from mauve.stores.limits.read_meter import Throttle, Throttled
from mauve.stores.published import PublishedKey, PublishedOrganization
from mauve.web.compression import too_large
from mauve.web.envelopes import control_reply, data_reply, wrong_method
from mauve.web.health import DRAINING, UP, readiness
from mauve.web.messages import JSON, Reply, json_reply

Schema = Mapping[str, Any]

REVALIDATED: Final = {"cache-control": "no-cache"}
HTML: Final = {
    "content-type": "text/html; charset=utf-8",
    "content-security-policy": "default-src 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
PLAIN: Final = {"content-type": "text/plain; charset=utf-8", "x-content-type-options": "nosniff"}


@dataclass(frozen=True, slots=True)
class Response:
    """One possible response of an operation. Its name identifies the example and its description."""

    name: str
    reply: Reply
    schema: Schema | None = None
    code: Code | None = None


@dataclass(frozen=True, slots=True)
class Body:
    schema: Schema
    examples: Mapping[str, tuple[str, Any]]  # summary and value, by name


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


_DATA_SCHEMAS: Final[Mapping[Code, str]] = {
    Code.EVENT_CAP_REACHED: "EventCapReached",
    Code.INGEST_SUSPENDED: "IngestSuspended",
    Code.INSUFFICIENT_SCOPE: "InsufficientScope",
    Code.QUERIES_SPENT: "AllowanceSpent",
    Code.RAW_SCANS_SPENT: "AllowanceSpent",
}


def _error(problem: Problem, name: str | None = None) -> Response:
    """Return the response of the ingest or query plane to a problem."""
    schema = ref(_DATA_SCHEMAS.get(problem.code, "DataProblem"))
    return Response(name or problem.code, data_reply(problem), schema, problem.code)


def _wrong_method(allowed: str) -> Response:
    code = Code.METHOD_NOT_ALLOWED
    return Response(code, wrong_method(allowed), ref("DataProblem"), code)


def problem_raised_by(function: Callable[..., object], *arguments: object) -> Problem:
    """Return the problem that the call raises, so that an example quotes the service itself."""
    try:
        function(*arguments)
    except Problem as problem:
        return problem
    message = f"{function.__qualname__} raised no problem"
    raise AssertionError(message)


# Ingest

_NOW_MS: Final = int(datetime(2026, 11, 14, 9, 30, tzinfo=UTC).timestamp()) * 1000
_EVENT_ID: Final = "0f8fad5b-d9cb-469f-a165-70867728950e"
_EVENT: Final = {"name": "report_opened", "user": "ann", "id": _EVENT_ID, "props": {"plan": "pro"}}
_SIGNUP: Final = {"name": "user_signup", "user": "ann", "at": "2026-11-14T09:30:00Z"}
_PAYMENT: Final = {"name": "payment", "user": "ann", "id": "invoice-1", "props": {"amount": 1999, "currency": "eur"}}
_SUBSCRIPTION: Final = {"type": "subscription", "id": "sub-1", "status": "active", "mrr": 1999, "currency": "eur"}
_NO_CURRENCY: Final = {"type": "subscription", "id": "sub-2", "status": "active", "mrr": 1999}
_DELIVERY: Final = {"id": "evt_1", "type": "customer.created", "data": {"object": {}}}
_SUSPENDED: Final = PublishedOrganization("org_1", Standing.SUSPENDED, None, None, 0, 0, 0)
_SERVER: Final = PublishedKey(
    key_id=bodies.KEY_ID_EXAMPLE,
    digest=b"",
    kind=KeyKind.SERVER,
    environment=Environment.LIVE,
    public_id=bodies.PROJECT_ID_EXAMPLE,
    app_id=bodies.APP_ID_EXAMPLE,
    org_id="org_1",
    revoked=False,
)
_PUBLISHABLE: Final = msgspec.structs.replace(_SERVER, kind=KeyKind.PUBLISHABLE)


def _events(key: PublishedKey, *items: object) -> rules.EventsVerdict:
    return rules.judge_events(msgspec.json.encode(items), key, _NOW_MS)


def _objects(*items: object) -> rules.ObjectsVerdict:
    return rules.judge_objects(msgspec.json.encode(items), _SERVER, _NOW_MS)


def _batch(name: str, verdict: rules.EventsVerdict | rules.ObjectsVerdict) -> Response:
    """Return the response to a batch that the rules have checked."""
    reply = accept.reply(verdict.item_count, verdict.rejections, JSON).with_headers(verdict.hints.headers)
    is_accepted = len(verdict.rejections) < verdict.item_count
    return Response(name, reply, ref("IngestResult" if is_accepted else "BatchRefused"))


def _one_or_many(*names: str) -> Schema:
    items = ref(names[0]) if len(names) == 1 else {"anyOf": [ref(name) for name in names]}
    return {"anyOf": [*map(ref, names), {"type": "array", "items": items, "maxItems": ITEMS_MAX}]}


def _unauthorized() -> Response:
    error = _error(unauthorized())
    return replace(error, reply=error.reply.with_headers(credential_hint(None)))


_BATCH_ERRORS: Final = (
    _error(problem_raised_by(wire.split, b"")),
    _unauthorized(),
    _wrong_method("POST"),
    _error(too_large(BODY_BYTES_MAX)),
    _error(problem_raised_by(_objects, *[{}] * (ITEMS_MAX + 1)), "too_many"),
    _error(ingest.unsupported_type()),
    _error(ingest.not_stored()),
)
_EVENTS: Final = (
    _batch("accepted", _events(_SERVER, _SIGNUP, _EVENT)),
    _batch("accepted_and_moved", _events(_SERVER, _SIGNUP, {**_EVENT, "at": _NOW_MS // 1000})),
    _batch("partly_accepted", _events(_PUBLISHABLE, _EVENT, _PAYMENT)),
    _error(problem_raised_by(check_standing, _SUSPENDED, _NOW_MS)),
    _error(problem_raised_by(_events, _PUBLISHABLE, _PAYMENT)),
    _error(problem_raised_by(check_cap, 1_000_000, 1_000_000, _NOW_MS)),
    _batch("every_item_invalid", _events(_SERVER, {"user": "ann"})),
    _error(key_rate_limited("events", 1)),
    *_BATCH_ERRORS,
)
_SUBSCRIPTIONS: Final = (
    _batch("accepted", _objects(_SUBSCRIPTION, {**_SUBSCRIPTION, "id": "sub-2"})),
    _batch("accepted_with_a_hint", _objects({**_SUBSCRIPTION, "status": "Active"})),
    _batch("partly_accepted", _objects(_SUBSCRIPTION, _NO_CURRENCY)),
    _error(ingest.server_key_required()),
    _batch("every_item_invalid", _objects({"id": "sub-1"})),
    *_BATCH_ERRORS,
)
_DELIVERIES: Final = (
    Response("taken", webhook.recorded_reply(1), ref("WebhookResult")),
    Response("shortened", webhook.recorded_reply(1, ["customer_name"]), ref("WebhookResult")),
    Response("suspended", webhook.SUSPENDED, ref("WebhookSuspended")),
    _error(ingest.incomplete_body()),
    _error(unauthorized()),
    _error(unknown_webhook()),
    _wrong_method("POST"),
    _error(webhook.delivery_too_large()),
    _error(webhook.unsupported_delivery()),
    _error(ingest.not_stored()),
)

# Metrics

_WINDOW: Final = Window(date(2026, 11, 1), date(2026, 11, 30))
_RESET_AT: Final = period_ends_at(_NOW_MS)
_ROWS: Final[Mapping[str, list[Row]]] = {
    "mau": [(1204,)],
    "dau": [("2026-11-13", 311), ("2026-11-14", 298)],
    "signups": [(87,)],
    "signups_daily": [("2026-11-13", 5), ("2026-11-14", 3)],
    "revenue": [("2026-11-14", "eur", 129900), ("2026-11-14", "usd", 4900)],
    "mrr": [("eur", 459700), ("usd", 12000)],
    "mrr_history": [("2026-11-13", "eur", 457700), ("2026-11-14", "eur", 459700)],
    "volume": [("2026-11-14", "eur", 880000)],
    "event_names": [("report_opened", 9120), ("user_signup", 87)],
    "event_count": [("report_opened", 9120)],
    "event_series": [("2026-11-13", 640), ("2026-11-14", 702)],
}


def _answer(metric: str, name: str = "", freshness: Freshness = Freshness.MISS, **facts: int) -> Response:
    question = Question(bodies.PROJECT_ID_EXAMPLE, metric_named(metric), _WINDOW, "report_opened")
    answer = Answer(body_of(question, _ROWS[metric]).bytes, freshness, _NOW_MS, **facts)
    return Response(name or metric, query.reply_from(answer), ref("MetricResult"))


_METRICS: Final = (
    *map(_answer, METRICS),
    _answer("dau", "dau_stale", Freshness.STALE, age_s=412),
    _answer("event_names", "event_names_truncated", cut_at=NAMES_MAX),
    _error(problem_raised_by(question_from, metric_named("event_count"), bodies.PROJECT_ID_EXAMPLE, {}, _WINDOW.last)),
    _error(unauthorized()),
    _error(query.server_key_required()),
    _error(insufficient_scope(Scope.METRICS_READ)),
    _error(problem_raised_by(metric_named, "unknown"), "unknown_metric"),
    _error(unknown_project(), "unknown_project"),
    _wrong_method("GET"),
    _error(problem_from(Throttled(Throttle.RATE_LIMIT, _NOW_MS + 7000, _NOW_MS))),
    _error(problem_from(Throttled(Throttle.QUERIES, _RESET_AT, _NOW_MS))),
    _error(problem_from(Throttled(Throttle.RAW_SCANS, _RESET_AT, _NOW_MS))),
    _error(cannot_be_read()),
)

# Apps and keys

_KEY: Final = "sk_live_Ab3d" + "0" * 32 + "x9Zq"
_APP: Final[Mapping[str, Any]] = {
    "app_id": bodies.APP_ID_EXAMPLE,
    "public_id": bodies.PROJECT_ID_EXAMPLE,
    "test_public_id": None,
    "name": "My first app",
    "ownership": Ownership.MINE,
    "type": AppType.SAAS,
    "first_event_at": 1_794_712_801_250,
    "has_biller_a_webhook": True,
    "has_biller_b_webhook": False,
    "created_at": 1_794_712_763_680,
}
_NEW_APP: Final = {**_APP, "first_event_at": None, "has_biller_a_webhook": False}
_APP_KEY: Final = bodies.AppKeyBody(
    bodies.KEY_ID_EXAMPLE,
    KeyKind.SERVER,
    bodies.MASKED_KEY_EXAMPLE,
    revoked=False,
    mirrored_at=None,
    created_at=_APP["created_at"],
)


def _success(value: Any, status: HTTPStatus = HTTPStatus.OK) -> Response:  # noqa: ANN401 - a body, or a list of them
    is_list = isinstance(value, list)
    item = _schema_of(type(value[0] if is_list else value))
    return Response("success", json_reply(status, value), {"type": "array", "items": item} if is_list else item)


def _schema_of(type_: type) -> Schema:
    return ref(type_.__name__.removesuffix("Body"))


def _request(type_: type, **examples: Any) -> Body:  # noqa: ANN401 - any JSON value
    named = {name: (name.replace("_", " ").capitalize(), value) for name, value in examples.items()}
    return Body(_schema_of(type_), named)


_NO_CONTENT: Final = Response("success", Reply(HTTPStatus.NO_CONTENT))
_SUCCESSES: Final = {
    "POST /v1/apps": _success(bodies.CreatedAppBody(**_NEW_APP, sk_key=_KEY), HTTPStatus.CREATED),
    "GET /v1/apps": _success([bodies.AppBody(**_APP)]),
    "GET /v1/apps/{app_id}": _success(bodies.AppBody(**_APP)),
    "PATCH /v1/apps/{app_id}": _success(bodies.AppBody(**{**_APP, "type": AppType.LIBRARY})),
    "POST /v1/apps/{app_id}/keys": _success(bodies.MintedKeyBody(bodies.KEY_ID_EXAMPLE, _KEY), HTTPStatus.CREATED),
    "GET /v1/apps/{app_id}/keys": _success([_APP_KEY]),
    "DELETE /v1/apps/{app_id}/keys/{key_id}": _NO_CONTENT,
    "PUT /v1/apps/{app_id}/webhooks/{provider}": _NO_CONTENT,
}
BODIES: Final[Mapping[str, Body]] = {
    "POST /v1/events": Body(
        _one_or_many("Event", "Payment"),
        {
            "batch": ("Several events", [_SIGNUP, _EVENT, _PAYMENT]),
            "event": ("One event", _EVENT),
            "payment": ("One payment", _PAYMENT),
        },
    ),
    "POST /v1/objects": Body(_one_or_many("Subscription"), {"subscription": ("One subscription", _SUBSCRIPTION)}),
    "POST /v1/webhooks/{provider}/{project_id}": Body({}, {"delivery": ("A delivery", _DELIVERY)}),
    "POST /v1/apps": _request(
        bodies.NewAppBody,
        name_alone={"name": "My first app"},
        everything={"name": "My library", "ownership": "client_operated", "type": "library"},
    ),
    "PATCH /v1/apps/{app_id}": _request(bodies.AppChangesBody, another_type={"type": "library"}),
    "POST /v1/apps/{app_id}/keys": _request(
        bodies.NewKeyBody, server_key={"kind": "sk"}, publishable_key={"kind": "pk"}
    ),
    "PUT /v1/apps/{app_id}/webhooks/{provider}": _request(
        bodies.WebhookSecretBody, secret={"secret": bodies.WEBHOOK_SECRET_EXAMPLE}
    ),
}


def _control_responses(label: str, route: ControlRoute) -> Iterator[Response]:
    problems = [unauthorized(), insufficient_scope(route.scope), backend_unavailable()]
    if label in BODIES:
        problems.append(problem_raised_by(bodies.decode, b"{}", bodies.NewAppBody))
    if route.parameters:
        problems.append(not_found())
    errors = [Response(each.code, control_reply(each), ref("ControlProblem"), each.code) for each in problems]
    for response in (_SUCCESSES[label], *errors):
        headers = {**response.reply.headers, "cache-control": "no-store"}  # as the plane does for every reply
        yield replace(response, reply=response.reply._replace(headers=headers))


# The service

_ENGINES: Final = {"catalog": True, "ledger": True, "warehouse": True, "keys": True, "log": True}
_READY: Final = readiness(_ENGINES, backlog_bytes=0, load_lag_ms=180)
_NOT_READY: Final = readiness({**_ENGINES, "catalog": False}, backlog_bytes=4096, load_lag_ms=2200)


def _static(body: bytes, headers: Mapping[str, str], type_: str = "string") -> tuple[Response, ...]:
    caching = {**REVALIDATED, "etag": '"7d0c…"'}
    found = Response("found", Reply(200, body, {**headers, **caching}), {"type": type_})
    return found, Response("unchanged", Reply(304, headers=caching)), _wrong_method("GET")


RESPONSES: Final[Mapping[str, tuple[Response, ...]]] = {
    "POST /v1/events": tuple(replace(response, reply=with_cors(response.reply)) for response in _EVENTS),
    "OPTIONS /v1/events": (Response("allowed", PREFLIGHT),),
    "POST /v1/objects": _SUBSCRIPTIONS,
    "GET /v1/metrics/{metric}": _METRICS,
    **{
        label: tuple(_control_responses(label, route))
        for label, route in ((f"{route.method} {route.path}", route) for route in CONTROL_ROUTES)
    },
    "POST /v1/webhooks/{provider}/{project_id}": _DELIVERIES,
    "GET /healthz": (Response("up", UP, ref("Health")), _wrong_method("GET")),
    "GET /drainz": (
        Response("up", UP, ref("Health")),
        _wrong_method("GET"),
        Response("draining", DRAINING, ref("Drain")),
    ),
    "GET /readyz": (
        Response("ready", _READY, ref("Readiness")),
        _wrong_method("GET"),
        Response("not_ready", _NOT_READY, ref("Readiness")),
    ),
    "GET /openapi.json": _static(b'{"openapi":"3.1.0"}', JSON, "object"),
    "GET /docs": _static(b"<!doctype html>", HTML),
    "GET /llms.txt": _static(b"# Mauve", PLAIN),
}
