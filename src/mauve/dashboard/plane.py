"""The dashboard as a Starlette application: recognize the session, check the grant, handle the request in time."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http import HTTPStatus
from typing import Final, TypeVar

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Scope

from mauve.access.passwords import HashingBusyError
from mauve.access.sessions import find_session
from mauve.control.operator import RefusedError
from mauve.control.plane import run_with_deadline
from mauve.core.problems import Code, Problem, not_found
from mauve.dashboard.context import (
    BODY_BYTES_MAX,
    Context,
    FormError,
    MemberContext,
    ParameterProblem,
    check_origin,
    form_from,
    is_safe,
)
from mauve.dashboard.dependencies import DashboardParts
from mauve.dashboard.pages.sheets import FileResponse
from mauve.dashboard.rendering import ASSETS, asset_response, page, see_other
from mauve.dashboard.routes import MEMBER, PUBLIC, MemberPage, PublicPage
from mauve.overload.fair_share import FairShare, OwnerSemaphore
from mauve.stores import StoreUnavailableError, UnconfirmedError
from mauve.stores.cancellation import Cancellation, deadline_at
from mauve.web.app import bounded_body, compressed, starlette_app
from mauve.web.asgi import header
from mauve.web.envelopes import STATUS_OF

_THREADS: Final = 8
_AT_ONCE_MAX: Final = _THREADS // 2  # per organization: the other threads are for others
_IN_FLIGHT_MAX: Final = 2 * _THREADS  # per organization, including waiting ones; a browser sends fewer
_FILE_THREADS: Final = 2
_FILES_MAX: Final = 2  # concurrent downloads per organization
_FOR_PROGRAMS: Final = frozenset({"/v1", "/healthz", "/readyz", "/drainz"})
_BUSY: Final = "The service did not answer in time. Nothing was changed: try again in a moment."
_FILES_EXCEEDED: Final = "Your organization is downloading other files. Try again when they are complete."
_SHARE_EXCEEDED: Final = "Too many requests from your organization are in progress. Try again in a moment."
_DONE: Final = "Your change was made, but a later step failed. Check the current state before you repeat it."
_UNCONFIRMED: Final = "Your change may have been made. Check the current state before you repeat it."
_WRONG_METHOD: Final = "This page does not support that method. Open it in a browser."
# Problems that the user can fix in the form.
_SHOWN_AGAIN: Final = frozenset({Code.INVALID_BODY, Code.RATE_LIMITED})

_FILE_SUFFIX: Final = ".csv"  # A file cannot show an error.

Handler = Callable[[Context], Response]
AnyContext = TypeVar("AnyContext", Context, MemberContext)

log = structlog.get_logger()


class Dashboard:
    """The pages and their actions."""

    def __init__(self, parts: DashboardParts, timeout_s: float) -> None:
        self._parts = parts
        self._timeout_s = timeout_s
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="dashboard")
        self._share = FairShare(_IN_FLIGHT_MAX, "dashboard")
        self._running = OwnerSemaphore(_AT_ONCE_MAX)
        self._file_threads = ThreadPoolExecutor(_FILE_THREADS, thread_name_prefix="files")
        self._file_share = FairShare(_FILES_MAX, "files")
        routes = [
            Route(f"{ASSETS}{{name}}", self._show_asset),
            *(self._route(each.method, each.path, partial(_open_public, each)) for each in PUBLIC),
            *(self._route(each.method, each.path, partial(_open_member, each)) for each in MEMBER),
        ]
        self._patterns = [route.path_regex for route in routes if route.path != "/"]
        self.app = starlette_app(routes, self._refuse_unmatched)

    def serves(self, scope: Scope) -> bool:
        """Return whether the request is for a page: one of ours, or any other address opened in a browser."""
        path: str = scope["path"]
        if path.startswith("/v1/") or path in _FOR_PROGRAMS:
            return False
        if path.startswith(ASSETS) or _accepts_html(scope):
            return True
        # Programs also probe the root: it is a page only for browsers.
        return any(pattern.fullmatch(path) for pattern in self._patterns)

    def _route(self, method: str, path: str, handle: Handler) -> Route:
        return Route(path, partial(self._respond, handle), methods=[method])

    async def _show_asset(self, request: Request) -> Response:
        """Return an asset, without a session: assets are public, and needed while the catalog is down."""
        response = asset_response(request.scope["path"])
        if response is None:
            return await self._respond(partial(_refuse, not_found()), request)
        return _compressed_if_safe(response, request)

    async def _refuse_unmatched(self, request: Request, error: Exception) -> Response:
        is_known = isinstance(error, HTTPException) and error.status_code == HTTPStatus.METHOD_NOT_ALLOWED
        problem = Problem(Code.METHOD_NOT_ALLOWED, _WRONG_METHOD) if is_known else not_found()
        return await self._respond(partial(_refuse, problem), request)

    async def _respond(self, handle: Handler, request: Request) -> Response:
        body = await bounded_body(request, BODY_BYTES_MAX)
        context = Context(self._parts, request, body, {}, self._parts.control.clock.now_ms(), person=None)
        credential = request.cookies.get(self._parts.cookie.name) or context.address
        owner = self._share.owner_of(credential)
        if not self._share.enter(owner):
            return _problem_page(context, HTTPStatus.SERVICE_UNAVAILABLE, _SHARE_EXCEEDED)
        try:
            response = await self._answer_in_turn(partial(self._learn_owner, credential, handle), context, owner)
        finally:
            self._share.leave(owner)
        if isinstance(response, FileResponse):
            return self._admitted_file(response, context, self._share.owner_of(credential))
        return _compressed_if_safe(response, request)

    def _admitted_file(self, file: FileResponse, context: Context, owner: str) -> Response:
        """Count the file until it is sent: a client may be slow."""
        if not self._file_share.enter(owner):
            return _problem_page(context, HTTPStatus.SERVICE_UNAVAILABLE, _FILES_EXCEEDED)
        file.run_in(self._file_threads, partial(self._file_share.leave, owner))
        return file

    async def _answer_in_turn(self, handle: Handler, context: Context, owner: str) -> Response:
        try:
            async with self._running.acquired(owner, self._timeout_s):
                return await self._answer_in_time(handle, context)
        except TimeoutError:
            return _problem_page(context, HTTPStatus.SERVICE_UNAVAILABLE, _SHARE_EXCEEDED)

    def _learn_owner(self, credential: str, handle: Handler, context: Context) -> Response:
        if context.person is not None:
            self._share.learn(credential, context.person.organization.org_id)
        return handle(context)

    async def _answer_in_time(self, handle: Handler, context: Context) -> Response:
        cancellation = Cancellation()
        work = partial(_answer_until, time.monotonic() + self._timeout_s, handle, context, cancellation)
        method, failure = context.request.method, _BUSY
        try:
            return await run_with_deadline(self._threads, work, self._timeout_s, cancellation)
        except TimeoutError:
            log.warning("page_timed_out", method=method, timeout_s=self._timeout_s)
        except StoreUnavailableError as error:
            log.warning("catalog_unavailable", method=method, reason=str(error))
            failure = _UNCONFIRMED if isinstance(error, UnconfirmedError) else _BUSY
        except HashingBusyError:
            log.warning("password_hashing_busy", advice="many people, or one program, are signing in simultaneously")
        except Exception:
            log.exception("page_failed", method=method)
        message = _DONE if cancellation.has_committed else failure
        return _problem_page(context, HTTPStatus.SERVICE_UNAVAILABLE, message)


def _answer_until(ends_at_s: float, handle: Handler, context: Context, cancellation: Cancellation) -> Response:
    """Answer one request or show its problem. Cancel reads that outlast the deadline."""
    with deadline_at(ends_at_s):
        try:
            context = _with_session(context)
            with cancellation.guarding():
                return handle(context)
        except Problem as problem:
            return _problem_page(context, STATUS_OF[problem.code], problem.message)


def _check_origin(context: Context) -> None:
    if not is_safe(context.request):
        check_origin(context.request, context.parts.public_url)


def _with_session(context: Context) -> Context:
    credential = context.request.cookies.get(context.parts.cookie.name)
    person = find_session(context.control.catalog.sessions, credential, context.now_ms)
    return Context(context.parts, context.request, context.body, {}, context.now_ms, person)


def _open_public(route: PublicPage, context: Context) -> Response:
    if route.is_one_click:
        return _handled(context, route.handle, None)
    _check_origin(context)
    return _handled(_with_form(context, Context), route.handle, route.show_again)


def _open_member(route: MemberPage, context: Context) -> Response:
    """Open a member's page. The order of these checks is the order of refusals."""
    _check_origin(context)
    if context.person is None:
        return see_other("/signin", **({"next": _address_of(context.request)} if is_safe(context.request) else {}))
    member = _with_form(context, MemberContext)
    member.require(route.needs)
    return _handled(member, route.handle, route.show_again)


def _address_of(request: Request) -> str:
    query = request.scope["query_string"].decode("latin-1")
    return f"{request.scope['path']}?{query}" if query else request.scope["path"]


def _refuse(problem: Problem, context: Context) -> Response:
    _check_origin(context)
    raise problem


def _handled(
    context: AnyContext, handle: Callable[[AnyContext], Response], show_again: Callable[[AnyContext], Response] | None
) -> Response:
    """Handle the request; if the form was refused for its content, show it again with the reason.

    If query parameters were refused, show the page without them.
    """
    try:
        return handle(context)
    except RefusedError as error:
        form_error = FormError(str(error), HTTPStatus.BAD_REQUEST)
        if show_again is None:
            raise Problem(Code.INVALID_BODY, form_error.message) from None
    except ParameterProblem as problem:
        if context.ignored.issuperset(problem.names) or context.request.scope["path"].endswith(_FILE_SUFFIX):
            raise
        without = context.refused(FormError(problem.message, STATUS_OF[problem.code]), problem.names)
        return _handled(without, handle, show_again)
    except Problem as problem:
        if show_again is None or problem.code not in _SHOWN_AGAIN:
            raise
        form_error = FormError(problem.message, STATUS_OF[problem.code], problem.facts.get("retry_after_s"))
    return show_again(context.refused(form_error))


def _with_form(context: Context, kind: type[AnyContext]) -> AnyContext:
    form = {} if is_safe(context.request) else form_from(context.request, context.body)
    return kind(context.parts, context.request, context.body, form, context.now_ms, context.person)


def _problem_page(context: Context, status: HTTPStatus, message: str) -> Response:
    return page(context, "problem.html", status, reached=status, message=message)


def _compressed_if_safe(response: Response, request: Request) -> Response:
    """Compress a response, but never one to a form: its size could reveal a secret."""
    return compressed(response, request.headers.get("accept-encoding", "")) if is_safe(request) else response


def _accepts_html(scope: Scope) -> bool:
    return scope["method"] in ("GET", "HEAD") and "text/html" in (header(scope, b"accept") or "")
