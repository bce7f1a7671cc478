"""The dashboard's door: recognized → allowed → shown, in a thread and in bounded time."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http import HTTPStatus
from typing import Final, TypeVar
from urllib.parse import urlencode

import structlog

from mauve.access.passwords import HashingBusyError
from mauve.access.sessions import find_session
from mauve.control.deadline import done_in_time
from mauve.control.operator import RefusedError
from mauve.core.problems import Code, Problem, not_found
from mauve.dashboard.assets import asset_reply, is_asset_path
from mauve.dashboard.context import Context, FormError, MemberContext
from mauve.dashboard.cookie import cookie_name
from mauve.dashboard.origin import check_origin
from mauve.dashboard.parts import DashboardParts
from mauve.dashboard.rendering import page, see_other
from mauve.dashboard.request import READING, PageRequest, read_page_request
from mauve.dashboard.routes import MEMBER, PUBLIC, find, is_known_path
from mauve.stores import StoreUnavailableError
from mauve.stores.cancellation import Cancellation, deadline_at
from mauve.web.asgi import Receive, Scope, Send, header, send_reply
from mauve.web.deflate import deflated
from mauve.web.envelopes import STATUS_OF
from mauve.web.messages import Reply

_THREADS: Final = 8
_FOR_PROGRAMS: Final = frozenset({"/v1", "/healthz", "/readyz"})
_BUSY: Final = "The service did not answer in time. Nothing was changed: try again in a moment."
_DONE: Final = "Your change was made, but what comes after it failed. Look at what is there before you repeat it."
# What somebody can put right in the form that they sent.
_SHOWN_AGAIN: Final = frozenset({Code.INVALID_BODY, Code.RATE_LIMITED})

AnyVisit = TypeVar("AnyVisit", Context, MemberContext)

log = structlog.get_logger()


def is_page(scope: Scope) -> bool:
    """Tell whether a person asks, not a program: a page of ours, or any other address that a browser opens."""
    path: str = scope["path"]
    if path.startswith("/v1/") or path in _FOR_PROGRAMS:
        return False
    # Programs try the root as well: it is a page only for those who want one.
    is_ours = is_asset_path(path) or (path != "/" and is_known_path(path))
    return is_ours or _wants_a_page(scope)


def _wants_a_page(scope: Scope) -> bool:
    return scope["method"] in READING and "text/html" in (header(scope, b"accept") or "")


class Dashboard:
    """An ASGI application for everything that `is_page` names."""

    def __init__(self, parts: DashboardParts, timeout_s: float) -> None:
        self._parts = parts
        self._timeout_s = timeout_s
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="dashboard")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = await read_page_request(scope, receive)
        reply = await self._answer_in_time(request)
        if request.is_reading:
            reply = deflated(reply, request.headers.get("accept-encoding", ""))
        await send_reply(send, reply._replace(body=b"") if request.method == "HEAD" else reply)

    async def _answer_in_time(self, request: PageRequest) -> Reply:
        cancellation = Cancellation()
        work = partial(_answer_until, time.monotonic() + self._timeout_s, self._parts, request, cancellation)
        try:
            return await done_in_time(self._threads, work, self._timeout_s, cancellation)
        except TimeoutError:
            log.warning("page_timed_out", method=request.method, timeout_s=self._timeout_s)
        except StoreUnavailableError as error:
            log.warning("catalog_unavailable", method=request.method, reason=str(error))
        except HashingBusyError:
            log.warning("passwords_crowded", advice="many people, or one program, are signing in at once")
        except Exception:
            log.exception("page_failed", method=request.method)
        message = _DONE if cancellation.has_committed else _BUSY
        return _problem_page(_stranger(self._parts, request), HTTPStatus.SERVICE_UNAVAILABLE, message)


def _answer_until(ends_at_s: float, parts: DashboardParts, request: PageRequest, cancellation: Cancellation) -> Reply:
    """Answer; what is still being read when nobody waits any more ends."""
    with deadline_at(ends_at_s):
        return answer(parts, request, cancellation)


def answer(parts: DashboardParts, request: PageRequest, cancellation: Cancellation) -> Reply:
    """Answer one request, or show what is wrong with it."""
    context = _stranger(parts, request)
    try:
        if is_asset_path(request.path):
            return asset_reply(request.path)
        context = _recognized(context)
        with cancellation.guarding():
            return _answer(context)
    except Problem as problem:
        return _problem_page(context, STATUS_OF[problem.code], problem.message)


def _answer(context: Context) -> Reply:
    """Answer a visitor. The order of these lines is the order in which a request can be refused."""
    request = context.request
    if not request.is_reading:
        check_origin(request.headers, context.parts.public_url)
    door = find(PUBLIC, request.method, request.path)
    if door is not None:
        opened = _prepared(context, Context, door[1])
        return _handled(opened, door[0].handle, door[0].show_again)
    action = find(MEMBER, request.method, request.path)
    if action is None:
        raise _nothing_here(request)
    if context.person is None:
        return see_other(f"/signin?{urlencode({'next': request.path})}" if request.is_reading else "/signin")
    member = _prepared(context, MemberContext, action[1])
    member.require(action[0].needs)
    return _handled(member, action[0].handle, action[0].show_again)


def _handled(
    context: AnyVisit, handle: Callable[[AnyVisit], Reply], show_again: Callable[[AnyVisit], Reply] | None
) -> Reply:
    """Do what is asked; if it is refused for what was filled in, show the form again and say why."""
    try:
        return handle(context)
    except RefusedError as error:
        form_error = FormError(str(error), HTTPStatus.BAD_REQUEST)
        if show_again is None:
            raise Problem(Code.INVALID_BODY, form_error.message) from None
    except Problem as problem:
        if show_again is None or problem.code not in _SHOWN_AGAIN:
            raise
        form_error = FormError(problem.message, STATUS_OF[problem.code], problem.facts.get("retry_after_s"))
    return show_again(context.refused(form_error))


def _stranger(parts: DashboardParts, request: PageRequest) -> Context:
    return Context(parts, request, path={}, form={}, now_ms=parts.control.clock.now_ms(), person=None)


def _recognized(context: Context) -> Context:
    credential = context.request.cookie(cookie_name(context.parts.public_url))
    person = find_session(context.control.catalog.sessions, credential, context.now_ms)
    return Context(context.parts, context.request, {}, {}, context.now_ms, person)


def _prepared(context: Context, kind: type[AnyVisit], path: dict[str, str]) -> AnyVisit:
    form = {} if context.request.is_reading else context.request.form()
    return kind(context.parts, context.request, path, form, context.now_ms, context.person)


def _nothing_here(request: PageRequest) -> Problem:
    if is_known_path(request.path):
        return Problem(Code.METHOD_NOT_ALLOWED, "This page does not take that. Open it in a browser.")
    return not_found()


def _problem_page(context: Context, status: HTTPStatus, message: str) -> Reply:
    return page(context, "problem.html", status, reached=status, message=message)
