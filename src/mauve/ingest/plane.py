"""The ingest plane's answers, free of any server: the same behind the workers' own port and the main one."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import structlog

from mauve.access.standing import check_cap, check_standing
from mauve.core.facts import KeyKind
from mauve.core.problems import Code, Problem, unauthorized, unknown_path
from mauve.ingest import accept, rules
from mauve.ingest.parts import IngestParts
from mauve.ingest.webhooks.door import WebhookDoor, is_webhook_path
from mauve.stores.edge import PublishedKey
from mauve.stores.log import LogFailedError, LogFullError
from mauve.stores.unavailable import StoreUnavailableError
from mauve.web.body import BodyTooLargeError, IncompleteBodyError, declared_size
from mauve.web.envelopes import data_reply, wrong_method
from mauve.web.health import health, readiness
from mauve.web.inflate import inflated, too_large
from mauve.web.messages import JSON, OpenRequest, Reply, bearer_credential, is_json

BODY_BYTES_MAX: Final = 1024 * 1024
_ANY_ORIGIN: Final = {"access-control-allow-origin": "*"}
_EVENT_HEADERS: Final = {**JSON, **_ANY_ORIGIN}
_PREFLIGHT: Final = Reply(
    204,
    b"",
    {
        **_ANY_ORIGIN,
        "access-control-allow-methods": "POST",
        "access-control-allow-headers": "authorization, content-type, content-encoding",
        "access-control-max-age": "86400",
    },
)
_NOT_STORED: Final = "could not be put into the durable queue: nothing was stored, retry"

_SMALL_BYTES: Final = 64 * 1024

Handler = Callable[[OpenRequest], Awaitable[Reply]]

log = structlog.get_logger()


class IngestPlane:
    def __init__(self, parts: IngestParts) -> None:
        self._parts = parts
        self._webhooks = WebhookDoor(parts)

    async def answer(self, request: OpenRequest) -> Reply:
        match request.path:
            case "/v1/events":
                return await self._at_events(request)
            case "/v1/objects":
                return await self._answered(self._objects, request)
            case "/healthz":
                return health(request.method)
            case "/readyz":
                return readiness(request.method, self.engines())
            case path if is_webhook_path(path):
                return await self._answered(self._webhooks.take, request)
            case _:
                return data_reply(unknown_path())

    def engines(self) -> dict[str, bool]:
        """Tell which engines this plane can use now."""
        return {"edge": self._parts.keyring.is_current, "log": not self._parts.log.has_failed}

    async def _at_events(self, request: OpenRequest) -> Reply:
        """Answer with what a browser needs to let a page of any origin see the reply."""
        if request.method == "OPTIONS":
            return _PREFLIGHT
        reply = await self._answered(self._events, request)
        return reply if reply.headers is _EVENT_HEADERS else reply._replace(headers={**reply.headers, **_ANY_ORIGIN})

    async def _answered(self, handle: Handler, request: OpenRequest) -> Reply:
        if request.method != "POST":
            return wrong_method("POST")
        try:
            return await handle(request)
        except Problem as problem:
            self._parts.counters.refused[problem.code] += 1
            return data_reply(problem)
        except LogFullError:
            reason = Problem(Code.NOT_STORED, "the queue is full: nothing was stored, retry", retry_after_s=5)
        except (LogFailedError, StoreUnavailableError) as error:
            log.warning("not_durable", path=request.path, reason=str(error))
            reason = Problem(Code.NOT_STORED, _NOT_STORED, retry_after_s=1)
        except Exception:
            log.exception("ingest_failed", path=request.path)
            reason = Problem(Code.NOT_STORED, _NOT_STORED, retry_after_s=1)
        self._parts.counters.failed += 1
        return data_reply(reason)

    async def _events(self, request: OpenRequest) -> Reply:
        """Take in events. The order of these lines is the order in which a request can be refused."""
        parts = self._parts
        received_at = parts.clock.now_ms()
        key = self._key_of(request)
        if key.kind is KeyKind.PUBLISHABLE:
            self._check_rate(key, received_at)
        room = self._room_for(request)
        if room:
            await parts.budget.take(room)
        try:
            body = await _read(request)
            organization = parts.keyring.organizations.get(key.org_id)
            check_standing(organization, received_at)
            check_cap(organization, parts.keyring.usage.get(key.org_id), received_at)
            verdict = rules.judge_events(body, key, received_at)
            # Durable before we say 202.
            refused = await accept.make_events_durable(parts, key, verdict, received_at)
        finally:
            parts.budget.give_back(room)
        return self._acknowledged(verdict.item_count, [*verdict.rejections, *refused], _EVENT_HEADERS)

    async def _objects(self, request: OpenRequest) -> Reply:
        parts = self._parts
        received_at = parts.clock.now_ms()
        key = self._key_of(request)
        if key.kind is not KeyKind.SERVER:
            raise Problem(Code.FORBIDDEN, "subscriptions need a server key: use one that begins with sk_")
        room = self._room_for(request)
        await parts.budget.take(room)
        try:
            verdict = rules.judge_objects(await _read(request), key, received_at)
            await accept.make_objects_durable(parts, verdict)
        finally:
            parts.budget.give_back(room)
        return self._acknowledged(verdict.item_count, verdict.rejections, JSON)

    def _key_of(self, request: OpenRequest) -> PublishedKey:
        key = self._parts.keyring.key_for(bearer_credential(request.credential_header()))
        if key is None:
            raise unauthorized()
        return key

    def _check_rate(self, key: PublishedKey, now_ms: int) -> None:
        wait_s = self._parts.rate.seconds_to_wait(key.key_id, now_ms)
        if wait_s:
            raise Problem(Code.RATE_LIMITED, "this publishable key is used too often: slow down", retry_after_s=wait_s)

    def _room_for(self, request: OpenRequest) -> int:
        """Return how much of the budget the body needs until what is in it is durable; a small one needs none."""
        if not is_json(request.header("content-type")):
            raise Problem(Code.UNSUPPORTED_MEDIA_TYPE, "Content-Type must be application/json")
        size = declared_size(request.header("content-length"))
        if size is None or size > BODY_BYTES_MAX:
            return BODY_BYTES_MAX
        return size if size > _SMALL_BYTES else 0

    def _acknowledged(self, item_count: int, rejections: list[rules.Rejection], headers: Mapping[str, str]) -> Reply:
        counters = self._parts.counters
        counters.accepted += item_count - len(rejections)
        for rejection in rejections:
            # The first word names the field: few values, whatever is sent.
            counters.rejected[rejection.reason.partition(" ")[0]] += 1
        return accept.reply(item_count, rejections, headers)


async def _read(request: OpenRequest) -> bytes:
    try:
        body = await request.body(BODY_BYTES_MAX)
    except BodyTooLargeError:
        raise too_large(BODY_BYTES_MAX) from None
    except IncompleteBodyError:
        raise Problem(Code.MALFORMED, "the body was cut off or did not arrive in time: send it again") from None
    return inflated(body, request.header("content-encoding"), BODY_BYTES_MAX)
