"""The ingest plane, independent of the server: the same on the workers' port and the main port."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from http import HTTPStatus
from typing import Any, Final

import structlog
from starlette.types import Receive, Scope, Send

from mauve.access.event_caps import check_cap, check_standing
from mauve.core.accepted import OrgPeriod
from mauve.core.credential import KeyKind
from mauve.core.problems import Busy, Code, Problem, unauthorized, unknown_path, unknown_webhook
from mauve.core.window import period_of
from mauve.ingest import IngestParts, accept, rules
from mauve.ingest.accept import EVENT_HEADERS, PREFLIGHT, with_cors
from mauve.ingest.admit import Admitted, BodyRules, admit, admit_at_once, busy_reply
from mauve.ingest.hints import NO_HINTS, Hints, credential_hint
from mauve.ingest.publishable import BODY_BYTES_MAX
from mauve.ingest.webhooks.endpoint import WEBHOOKS, WebhookEndpoint, is_webhook_path
from mauve.stores import StoreUnavailableError, UnconfirmedError
from mauve.stores.ingest_stats import ACCEPTED, ACCEPTED_OBJECT, REFUSED, REJECTED
from mauve.stores.log import LogFailedError, LogFullError, LogUnavailableError
from mauve.stores.published import PublishedKey
from mauve.web.asgi import AsgiRequest, send_reply
from mauve.web.body import BodyTooLargeError, IncompleteBodyError
from mauve.web.browser_client import browser_client_reply, is_browser_client_path
from mauve.web.compression import inflated, too_large
from mauve.web.envelopes import data_reply, wrong_method
from mauve.web.health import PROBE_PATHS, Drain, Probes
from mauve.web.messages import JSON, OpenRequest, Reply, bearer_credential, is_json
from mauve.web.parameters import with_unknown_hint

_PUBLISHABLE: Final = KeyKind.PUBLISHABLE  # An enum lookup by name would cost a call on every request.
REFUSALS: Final = (Problem, BodyTooLargeError, IncompleteBodyError)

Handler = Callable[[OpenRequest], Awaitable[Reply]]
Decoration = Callable[[Reply], Reply]  # applied to every refusal and hint of a path

log = structlog.get_logger()


class IngestPlane:
    def __init__(self, parts: IngestParts, drain: Drain | None = None) -> None:
        self._parts = parts
        self._probes = Probes(self.engines, drain or Drain())
        self._body_rules = BodyRules(_check_type, BODY_BYTES_MAX, parts.budget, parts.budget.should_evict)
        self._webhooks = WebhookEndpoint(parts)

    def answer(self, request: OpenRequest) -> Coroutine[Any, Any, Reply]:
        """Return the coroutine that answers. No extra layer: this is the hot path."""
        match request.path, request.method:
            case "/v1/events", "POST":
                return self._respond(self._events, request, with_cors)
            case "/v1/objects", "POST":
                return self._respond(self._objects, request)
            case path, "POST" if is_webhook_path(path):
                return self._respond(self._webhooks.handle, request)
            case _:
                return _ready(self._answer_other(request))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer on the main port, over ASGI."""
        await send_reply(send, await self.answer(AsgiRequest(scope, receive)))

    def engines(self) -> dict[str, bool]:
        """Return which engines this plane can use now; the ledger only if its disk is full."""
        ledger = {} if self._parts.has_room() else {"ledger": False}
        return {"keys": self._parts.keyring.is_current, "log": self._parts.log.is_available, **ledger}

    def _answer_other(self, request: OpenRequest) -> Reply:
        match request.path:
            case "/v1/events":
                return PREFLIGHT if request.method == "OPTIONS" else with_cors(wrong_method("POST"))
            case "/v1/objects":
                return wrong_method("POST")
            case path if path in PROBE_PATHS:
                return self._probes.answer(request.method, path)
            case path if is_webhook_path(path):
                return wrong_method("POST")
            case path if is_browser_client_path(path):
                return browser_client_reply(request)
            case path:
                return data_reply(unknown_webhook() if path.startswith(WEBHOOKS) else unknown_path())

    async def _respond(self, handle: Handler, request: OpenRequest, decorate: Decoration | None = None) -> Reply:
        try:
            reply = await handle(request)
            if not request.query:
                return reply
        except Exception as error:  # noqa: BLE001 - every request is answered
            reply = self._failure(request, error)
        reply = with_unknown_hint(reply, request.query)
        return reply if decorate is None else decorate(reply)

    def _failure(self, request: OpenRequest, error: BaseException) -> Reply:
        """Return the reply to a request that failed, and count it."""
        counters = self._parts.counters
        match error:
            case Busy():
                counters.refused["busy"] += 1
                counters.failed += 1
                return busy_reply(request)
            case Problem() | BodyTooLargeError() | IncompleteBodyError():
                problem = _problem_of(error)
                counters.refused[problem.code] += 1
            case LogFullError():
                problem = Problem(Code.NOT_STORED, "the queue is full: nothing was stored, retry", retry_after_s=5)
            case LogUnavailableError():  # The writer has logged why, once.
                problem = not_confirmed()
            case UnconfirmedError():
                log.warning("not_confirmed", path=request.path, reason=str(error))
                problem = not_confirmed()
            case LogFailedError() | StoreUnavailableError():
                log.warning("not_durable", path=request.path, reason=str(error))
                problem = not_stored()
            case _:
                log.error("ingest_failed", path=request.path, exc_info=error)
                problem = not_stored()
        counters.failed += problem.code is Code.NOT_STORED
        reply = data_reply(problem)
        if problem.code is Code.UNAUTHORIZED and not is_webhook_path(request.path):
            return reply.with_headers(credential_hint(request.header("authorization")))
        return reply

    async def _events(self, request: OpenRequest) -> Reply:
        """Accept events whose body has yet to arrive, or that wait for other requests."""
        received_at = self._parts.clock.now_ms()
        key = self._sender_of(request, received_at)
        try:
            admitted = await admit(self._parts, request, key.org_id, self._body_rules)
        except REFUSALS as refusal:
            self._count_refusal(key, refusal)
            raise
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._store_events(admitted, request, key, received_at, reply.set_result)
        return await asyncio.shield(reply)  # Cancelling the request does not cancel what it began.

    def begin(self, request: OpenRequest, send: Callable[[Reply], None]) -> bool:
        """Begin to accept events without a task, if they have to wait for nothing but the log.

        Most requests are such, and a task would be a tenth of their cost. Return False for others: use `answer`.
        """
        parts = self._parts
        if (
            request.buffered_body is None
            or request.method != "POST"
            or request.path != "/v1/events"
            or request.query
            or parts.fairness.should_wait(parts.admission.ticks())
        ):
            return False
        key: PublishedKey | None = None
        try:
            received_at = parts.clock.now_ms()
            key = self._sender_of(request, received_at)
            admitted = admit_at_once(parts, request, key.org_id, self._body_rules)
        except Exception as error:  # noqa: BLE001 - every request is answered
            send(self._events_failure(request, key, error))
        else:
            self._store_events(admitted, request, key, received_at, send)
        return True

    def _store_events(
        self,
        admitted: Admitted,
        request: OpenRequest,
        key: PublishedKey,
        received_at: int,
        send: Callable[[Reply], None],
    ) -> None:
        """Check the events and begin to store them; reply when they are durable.

        The order of these lines is the order in which a request can be refused. They await nothing: no other request
        may pass the cap in between.
        """
        try:
            body, org_period = self._inflate_and_check_account(admitted.body, request, key, received_at)
            verdict = rules.judge_events(body, key, received_at)
            if key.kind is _PUBLISHABLE:
                self._parts.publishable_limits.check_items(key.key_id, verdict.item_count, received_at)
            admitted.record_work(self._parts.ledger.entry_s if verdict.payments else 0.0)
            durable = accept.store_events(self._parts, key, verdict, received_at, org_period)
        except Exception as error:  # noqa: BLE001 - every request is answered
            admitted.leave()
            send(self._events_failure(request, key, error))
            return

        def finish(durable: asyncio.Future[Any] | None) -> None:
            admitted.leave()
            try:
                if durable is not None:
                    durable.result()
                reply = self._accepted(key, verdict, durable)
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - every request is answered
                reply = self._events_failure(request, key, error)
            send(reply)

        if durable is None:
            finish(durable)
        else:
            durable.add_done_callback(finish)

    def _accepted(self, key: PublishedKey, verdict: rules.EventsVerdict, durable: asyncio.Future[Any] | None) -> Reply:
        """Return the reply to events that are durable."""
        rejections = verdict.rejections
        if verdict.payments and durable is not None:
            rejections = rejections + durable.result()
        reply = self._acknowledge(key, ACCEPTED, verdict.item_count, rejections, EVENT_HEADERS)
        return reply if verdict.hints is NO_HINTS else with_cors(self._hint(key, verdict.hints, reply))

    def _events_failure(self, request: OpenRequest, key: PublishedKey | None, error: BaseException) -> Reply:
        if key is not None and isinstance(error, REFUSALS):
            self._count_refusal(key, error)
        return with_cors(self._failure(request, error))

    async def _objects(self, request: OpenRequest) -> Reply:
        parts = self._parts
        received_at = parts.clock.now_ms()
        key = self._key_of(request)
        if key.kind is _PUBLISHABLE:
            raise server_key_required()
        try:
            with await admit(parts, request, key.org_id, self._body_rules) as admitted:
                body = inflated(admitted.body, request.header("content-encoding"), BODY_BYTES_MAX)
                verdict = rules.judge_objects(body, key, received_at)
                admitted.record_work(parts.ledger.entry_s)
                await accept.make_objects_durable(parts, key, verdict)
        except REFUSALS as refusal:
            self._count_refusal(key, refusal)
            raise
        reply = self._acknowledge(key, ACCEPTED_OBJECT, verdict.item_count, verdict.rejections, JSON)
        return reply if verdict.hints is NO_HINTS else self._hint(key, verdict.hints, reply)

    def _sender_of(self, request: OpenRequest, now_ms: int) -> PublishedKey:
        """Return the key that events are sent with."""
        key = self._key_of(request)
        if key.kind is _PUBLISHABLE:
            try:
                self._parts.publishable_limits.check_head(key.key_id, request.declared_bytes or 0, now_ms)
            except Problem as refusal:
                self._count_refusal(key, refusal)
                raise
        return key

    def _key_of(self, request: OpenRequest) -> PublishedKey:
        key = self._parts.keyring.key_for(bearer_credential(request.header("authorization")))
        if key is None:
            raise unauthorized()
        self._parts.counters.used_keys[key.key_id] = key.public_id
        return key

    def _inflate_and_check_account(
        self, body: bytes, request: OpenRequest, key: PublishedKey, now_ms: int
    ) -> tuple[bytes, OrgPeriod | None]:
        """Inflate the body, and return the period that its events count toward if there is a cap.

        Report a blocked account before a malformed body.
        """
        try:
            content = self._inflated(body, request, key, now_ms)
        except Problem as problem:
            if problem.code is Code.MALFORMED:
                self._check_account(key, now_ms)
            raise
        return content, self._check_account(key, now_ms)

    def _inflated(self, body: bytes, request: OpenRequest, key: PublishedKey, now_ms: int) -> bytes:
        encoding = request.header("content-encoding")
        if key.kind is not _PUBLISHABLE:
            return inflated(body, encoding, BODY_BYTES_MAX)
        limits, declared_bytes = self._parts.publishable_limits, request.declared_bytes or 0
        limits.check_body(key.key_id, declared_bytes, now_ms)
        inflated_bytes = BODY_BYTES_MAX  # A body that cannot be inflated may have cost as much.
        try:
            content = inflated(body, encoding, BODY_BYTES_MAX)
            inflated_bytes = len(content)
        finally:
            limits.charge_bytes(key.key_id, inflated_bytes - declared_bytes, now_ms)
        return content

    def _check_account(self, key: PublishedKey, now_ms: int) -> OrgPeriod | None:
        organization = self._parts.keyring.organizations.get(key.org_id)
        check_standing(organization, now_ms)
        if organization is None or organization.event_cap is None:
            return None
        org_period = OrgPeriod(key.org_id, period_of(now_ms))
        check_cap(organization.event_cap, self._parts.caps.events(org_period), now_ms)
        return org_period

    def _count_refusal(self, key: PublishedKey, refusal: Exception) -> None:
        self._parts.counters.project_stats[key.public_id, f"{REFUSED}:{_problem_of(refusal).code}"] += 1

    def _acknowledge(
        self,
        key: PublishedKey,
        word: str,
        item_count: int,
        rejections: list[rules.Rejection],
        headers: Mapping[str, str],
    ) -> Reply:
        counters = self._parts.counters
        accepted = item_count - len(rejections)
        if accepted:
            counters.accepted += accepted
            counters.project_stats[key.public_id, word] += accepted
        for rejection in rejections:
            code = rejection.fault.code
            counters.rejected[code] += 1
            counters.project_stats[key.public_id, f"{REJECTED}:{code}"] += 1
        return accept.reply(item_count, rejections, headers)

    def _hint(self, key: PublishedKey, hints: Hints, reply: Reply) -> Reply:
        """Count the hints for the owner and give them to the sender, unless everything was rejected after all."""
        if reply.status != HTTPStatus.ACCEPTED:
            return reply
        for word, count in hints.words.items():
            self._parts.counters.project_stats[key.public_id, word] += count
        return reply.with_headers(hints.headers)


def _check_type(request: OpenRequest) -> None:
    if not is_json(request.header("content-type")):
        raise unsupported_type()


def _problem_of(refusal: Exception) -> Problem:
    match refusal:
        case Problem():
            return refusal
        case BodyTooLargeError():
            return too_large(BODY_BYTES_MAX)
        case _:
            return incomplete_body()


def incomplete_body() -> Problem:
    return Problem(Code.MALFORMED, "the body was cut off or did not arrive in time: send it again")


def not_stored() -> Problem:
    message = "could not be put into the durable queue: nothing was stored, retry"
    return Problem(Code.NOT_STORED, message, retry_after_s=1)


def not_confirmed() -> Problem:
    message = "unconfirmed: it may or may not be stored; retry: items sent again with the same id count once"
    return Problem(Code.NOT_STORED, message, retry_after_s=1)


def server_key_required() -> Problem:
    return Problem(Code.FORBIDDEN, "subscriptions need a server key: use one that begins with sk_")


def unsupported_type() -> Problem:
    return Problem(Code.UNSUPPORTED_MEDIA_TYPE, "Content-Type must be application/json")


async def _ready(reply: Reply) -> Reply:
    return reply
