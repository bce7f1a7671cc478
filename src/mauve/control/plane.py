"""The control plane's door: authenticated → routed → allowed → done, in a thread and in bounded time."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

import structlog

from mauve.access.tokens import authenticate
from mauve.control.deadline import done_in_time
from mauve.control.parts import ControlParts
from mauve.control.routes import Call, find_route
from mauve.core.problems import Code, Problem
from mauve.stores import StoreUnavailableError
from mauve.stores.cancellation import Cancellation
from mauve.web.asgi import Receive, Scope, Send, read_request, send_reply
from mauve.web.envelopes import control_reply
from mauve.web.messages import Reply, Request, bearer_credential

BODY_BYTES_MAX: Final = 64 * 1024
_THREADS: Final = 8

log = structlog.get_logger()


def is_control_path(path: str) -> bool:
    return path == "/v1/apps" or path.startswith("/v1/apps/")


class ControlPlane:
    """An ASGI application for everything under `/v1/apps`."""

    def __init__(self, parts: ControlParts, timeout_s: float) -> None:
        self._parts = parts
        self._timeout_s = timeout_s
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="control")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = await read_request(scope, receive, BODY_BYTES_MAX)
        try:
            reply = await self._answer_in_time(request)
        except Problem as problem:
            reply = control_reply(problem)
        await send_reply(send, _not_to_be_kept(reply))

    async def _answer_in_time(self, request: Request) -> Reply:
        cancellation = Cancellation()
        work = partial(answer, self._parts, request, cancellation)
        try:
            return await done_in_time(self._threads, work, self._timeout_s, cancellation)
        except Problem:
            raise
        except TimeoutError:
            log.warning("control_timed_out", method=request.method, timeout_s=self._timeout_s)
        except StoreUnavailableError as error:
            log.warning("catalog_unavailable", method=request.method, reason=str(error))
        except Exception:
            log.exception("control_failed", method=request.method)
        raise Problem(Code.UPSTREAM_UNAVAILABLE, "the control backend did not answer: retry with backoff")


def answer(parts: ControlParts, request: Request, cancellation: Cancellation) -> Reply:
    """Answer one request. The order of these lines is the order in which a request can be refused."""
    caller = authenticate(parts.catalog.tokens, bearer_credential(request.authorization))
    parts.token_uses.note(caller.lookup_id, parts.clock.now_ms())
    operation, path = find_route(request.method, request.path)
    caller.require(operation.scope)
    with cancellation.guarding():
        return operation.handle(Call(parts, caller, path, request.body))


def _not_to_be_kept(reply: Reply) -> Reply:
    """Keep replies, some of which show a key this once, out of every cache on the way."""
    return Reply(reply.status, reply.body, {**reply.headers, "cache-control": "no-store"})
