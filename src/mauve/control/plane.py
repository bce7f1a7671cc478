"""The control plane as a Starlette application: authenticate, route, check the scope, handle; in bounded time."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from http import HTTPStatus
from typing import Final, TypeVar

import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mauve.access.tokens import authenticate
from mauve.control import ControlParts
from mauve.control.routes import OPERATIONS, Call, Operation
from mauve.core.problems import Code, Problem, not_found
from mauve.overload.fair_share import FairShare
from mauve.stores import StoreUnavailableError, UnconfirmedError
from mauve.stores.cancellation import Cancellation
from mauve.web.app import bounded_body, joined_header, response_from, starlette_app
from mauve.web.envelopes import control_reply
from mauve.web.messages import bearer_credential
from mauve.web.parameters import unknown_hint

PREFIX: Final = "/v1/apps/"
BODY_BYTES_MAX: Final = 64 * 1024
_THREADS: Final = 8
_IN_FLIGHT_MAX: Final = 8 * _THREADS  # of one organization

T = TypeVar("T")

log = structlog.get_logger()


def is_control_path(path: str) -> bool:
    return path.startswith(PREFIX) or path == PREFIX.rstrip("/")


class ControlPlane:
    """Everything under `/v1/apps`."""

    def __init__(self, parts: ControlParts, timeout_s: float, refresh_keys: Callable[[], None]) -> None:
        self._parts = parts
        self._refresh_keys = refresh_keys
        self._timeout_s = timeout_s
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="control")
        self._share = FairShare(_IN_FLIGHT_MAX, "control")
        routes = [Route(each.path, partial(self._respond, each), methods=[each.method]) for each in OPERATIONS]
        self.app = starlette_app(routes, self._refuse_unmatched)

    async def _refuse_unmatched(self, request: Request, _: Exception) -> Response:
        return await self._respond(None, request)

    async def _respond(self, operation: Operation | None, request: Request) -> Response:
        body = await bounded_body(request, BODY_BYTES_MAX)
        credential = joined_header(request, "authorization") or ""
        owner = self._share.owner_of(credential)
        if not self._share.enter(owner):
            return response_from(control_reply(share_exceeded()))
        try:
            response = await self.answer_in_time(operation, request, body)
        except Problem as problem:
            response = response_from(control_reply(problem))
        finally:
            self._share.leave(owner)
        response.headers["cache-control"] = "no-store"  # Some responses show a key, once.
        if response.status_code != HTTPStatus.UNAUTHORIZED:
            response.headers.update(unknown_hint(request.scope["query_string"]))
        return response

    async def answer_in_time(self, operation: Operation | None, request: Request, body: bytes | None) -> Response:
        cancellation = Cancellation()
        work = partial(self._answer, operation, request, body, cancellation)
        try:
            return await run_with_deadline(self._threads, work, self._timeout_s, cancellation)
        except Problem:
            raise
        except TimeoutError:
            log.warning("control_timed_out", method=request.method, timeout_s=self._timeout_s)
        except UnconfirmedError as error:
            log.warning("change_not_confirmed", method=request.method, reason=str(error))
            raise change_unconfirmed() from None
        except StoreUnavailableError as error:
            log.warning("catalog_unavailable", method=request.method, reason=str(error))
        except Exception:
            log.exception("control_failed", method=request.method)
        raise backend_unavailable()

    def _answer(
        self, operation: Operation | None, request: Request, body: bytes | None, cancellation: Cancellation
    ) -> Response:
        """Answer one request. The order of these lines is the order in which a request can be refused."""
        parts, authorization = self._parts, joined_header(request, "authorization")
        caller = authenticate(parts.catalog.tokens, bearer_credential(authorization))
        self._share.learn(authorization or "", caller.org_id)
        parts.uses.note_token(caller.lookup_id, parts.clock.now_ms())
        if operation is None or not operation.accepts(request):
            raise not_found()
        caller.require(operation.scope)
        with cancellation.guarding():
            response = operation.handle(Call(parts, caller, request.path_params, body))
        if operation.method != "GET":
            self._refresh_keys()  # A new key works here as soon as its sender has it.
        return response


def share_exceeded() -> Problem:
    return Problem(
        Code.UPSTREAM_UNAVAILABLE, "too many requests of this organization are in flight: retry with backoff"
    )


def backend_unavailable() -> Problem:
    return Problem(Code.UPSTREAM_UNAVAILABLE, "the control backend did not answer: retry with backoff")


def change_unconfirmed() -> Problem:
    text = "the control backend did not confirm the change, which may have been made: check it, then retry if needed"
    return Problem(Code.UPSTREAM_UNAVAILABLE, text)


async def run_with_deadline(
    threads: Executor, work: Callable[[], T], timeout_s: float, cancellation: Cancellation
) -> T:
    """Run the work in a thread; raise `TimeoutError` if time runs out first, after which it changes nothing.

    Wait for work that has begun to commit: only the disk can make that long, and no other answer would be true.
    """
    future = asyncio.get_running_loop().run_in_executor(threads, work)
    done, _ = await asyncio.wait({future}, timeout=timeout_s)
    if not done and cancellation.cancel():
        future.cancel()
        raise TimeoutError
    return await future
