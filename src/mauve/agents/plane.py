"""`/mcp` on the main port: identify the token, keep within bounds, then answer with the SDK.

It is imported in a thread by the first request that comes this far, so a service without agents never loads it.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

import msgspec
import structlog
from starlette.types import ASGIApp, Receive, Scope, Send

from mauve.agents.reader import RefusedError, Reserve, allowance_of
from mauve.core.problems import Code, Problem, unauthorized, unknown_path
from mauve.core.secret import Secret
from mauve.overload.fair_share import FairShare
from mauve.overload.token_bucket import TokenBuckets
from mauve.query import QueryParts
from mauve.query.ask import cannot_be_read
from mauve.stores import StoreUnavailableError
from mauve.stores.published import PublishedToken
from mauve.web.asgi import AsgiRequest, send_reply
from mauve.web.body import BodyTooLargeError, IncompleteBodyError
from mauve.web.envelopes import data_reply, is_safe_method, wrong_method
from mauve.web.messages import JSON, Reply, bearer_credential, is_json
from mauve.web.parameters import with_unknown_hint

PATH: Final = "/mcp"
ALLOWANCE_PATH: Final = "/mcp/allowance"
_BODY_BYTES_MAX: Final = 64 * 1024
IN_FLIGHT_MAX: Final = 8  # of one organization
_PER_SECOND: Final = 20.0  # requests of one organization
BURST: Final = 100.0
_READS_PER_SECOND: Final = 100.0  # of one organization, cached ones included: each takes time of the event loop
READS_BURST: Final = 600.0  # the overview of 100 apps
_LOOPBACK: Final = re.compile(r"https?://(?:127\.0\.0\.1|localhost|\[::1\])(?::[0-9]{1,5})?", re.ASCII)

AnswerHttp = Callable[[ASGIApp, Secret, Scope, bytes, Reserve], Awaitable[Reply]]

log = structlog.get_logger()


class AgentsPlane:
    """An ASGI application. The tools read through `app`, the whole service, as any other client does."""

    def __init__(self, query: QueryParts, public_url: str | None, app: ASGIApp) -> None:
        self._query = query
        self._public_url = public_url
        self._app = app
        self._rate = TokenBuckets(_PER_SECOND, BURST)
        self._reads = TokenBuckets(_READS_PER_SECOND, READS_BURST)
        self._calls = FairShare(IN_FLIGHT_MAX, "agents")
        self._allowances = FairShare(2 * IN_FLIGHT_MAX, "agents")  # as many again: each call asks for its own
        self._answer_http: AnswerHttp | None = None  # until the first call

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = AsgiRequest(scope, receive)
        answer = self._answer_tools if request.path == PATH else self._answer_allowance
        try:
            reply = await answer(request, scope)
        except Problem as problem:
            reply = data_reply(problem)
        except StoreUnavailableError as error:
            log.warning("reader_not_confirmed", reason=str(error))
            reply = data_reply(cannot_be_read())
        except Exception:
            log.exception("agents_failed", method=request.method)
            reply = data_reply(cannot_be_read())
        reply = with_unknown_hint(reply, request.query)
        await send_reply(send, reply.with_headers({"cache-control": "no-store"}))

    async def _answer_allowance(self, request: AsgiRequest, _: Scope) -> Reply:
        if request.path != ALLOWANCE_PATH:
            raise unknown_path()
        if not is_safe_method(request.method):
            return wrong_method("GET")
        token = await self._token_of(request)
        with _share_of(token.org_id, self._allowances):
            read = partial(allowance_of, self._query, token, self._query.clock.now_ms())
            found = await self._query.admissions.run(token.org_id, read)
        return Reply(200, msgspec.json.encode({"ok": True, **msgspec.to_builtins(found)}), JSON)

    async def _answer_tools(self, request: AsgiRequest, scope: Scope) -> Reply:
        """Answer one message. The order of these lines is the order in which it can be refused."""
        if request.method != "POST":  # GET would open a stream: there is nothing to send on it.
            return wrong_method("POST")
        self._check_origin(request)
        token = await self._token_of(request)
        self._check_rate(token.org_id)
        if not is_json(request.header("content-type")):
            raise Problem(Code.UNSUPPORTED_MEDIA_TYPE, "send application/json")
        body = await _body_of(request)
        with _share_of(token.org_id, self._calls):
            if self._answer_http is None:
                self._answer_http = await asyncio.to_thread(load_sdk)
            secret, reserve = Secret(_credential_of(request) or ""), partial(self._reserve, token.org_id)
            return await self._answer_http(self._app, secret, scope, body, reserve)

    def _check_rate(self, org_id: str) -> None:
        wait_s = self._rate.seconds_to_wait(org_id, self._query.clock.now_ms())
        if wait_s:
            too_often = f"this organization calls too often: retry after {wait_s} s"
            raise Problem(Code.RATE_LIMITED, too_often, retry_after_s=wait_s)

    def _reserve(self, org_id: str, reads: int) -> None:
        wait_s = self._reads.seconds_to_wait(org_id, self._query.clock.now_ms(), reads)
        if wait_s:
            too_often = f"this organization reads too often: retry after {wait_s} s. Nothing was read or spent"
            raise RefusedError(too_often, retry_after_s=wait_s)

    def _check_origin(self, request: AsgiRequest) -> None:
        """Refuse pages of other sites, and those that have moved their name to this address.

        Programs send no Origin, and a browser always does, so the Host needs no check of its own.
        """
        origin = request.header("origin")
        if origin is None:
            return
        is_public = self._public_url is not None and origin == self._public_url.rstrip("/")
        if not is_public and _LOOPBACK.fullmatch(origin) is None:
            raise Problem(Code.FORBIDDEN, "pages of other sites cannot call this: call it from a program")

    async def _token_of(self, request: AsgiRequest) -> PublishedToken:
        parts = self._query
        token = parts.keyring.token_for(_credential_of(request))
        if token is None:
            raise unauthorized()
        parts.uses.note_token(token.lookup_id, parts.clock.now_ms())
        await parts.keyring.confirm(token)
        return token


@contextmanager
def _share_of(org_id: str, requests: FairShare) -> Iterator[None]:
    if not requests.enter(org_id):
        too_many = "too many calls of this organization are in progress: retry"
        raise Problem(Code.QUERY_FAILED, too_many, retry_after_s=1)
    try:
        yield
    finally:
        requests.leave(org_id)


async def _body_of(request: AsgiRequest) -> bytes:
    try:
        return await request.body(_BODY_BYTES_MAX)
    except BodyTooLargeError:
        raise Problem(Code.TOO_LARGE, f"a message has at most {_BODY_BYTES_MAX} bytes: send less") from None
    except IncompleteBodyError:
        raise Problem(Code.MALFORMED, "the body ended early, or came too slowly: send it again") from None


def _credential_of(request: AsgiRequest) -> str | None:
    return bearer_credential(request.header("authorization"))


def load_sdk() -> AnswerHttp:
    try:
        from mauve.agents.server import answer_http  # noqa: PLC0415 - an extra, and slow to import
    except ImportError as error:
        log.warning("mcp_not_installed", reason=str(error), advice="run pip install 'mauve[mcp]'")
        advice = "MCP is not installed here: have the operator run pip install 'mauve[mcp]'"
        raise Problem(Code.NOT_FOUND, advice) from None
    return answer_http
