"""The query plane: identify the reader and the question, check the limits, then `ask`.

A raw ASGI application, because a cached metric costs little more than the server itself: Starlette's routing would be
a large part of it.
"""

from collections.abc import Awaitable, Mapping
from datetime import date
from functools import lru_cache
from typing import Final

import structlog
from starlette.types import Receive, Send
from starlette.types import Scope as AsgiScope

from mauve.access.read_limits import Reader, check_reads
from mauve.access.tokens import insufficient_scope
from mauve.core.credential import KeyKind, Scope
from mauve.core.problems import Code, Problem, unauthorized, unknown_path, unknown_project
from mauve.core.times import day_number
from mauve.metrics.questions import Question, only, question_from
from mauve.metrics.registry import metric_named
from mauve.query import QueryParts
from mauve.query.answer_cache import Answer, Freshness
from mauve.query.ask import ask, cannot_be_read, find_hit
from mauve.stores import StoreUnavailableError
from mauve.stores.published import PublishedKey, PublishedToken
from mauve.web.asgi import AsgiRequest, send_reply
from mauve.web.envelopes import data_reply, is_safe_method, wrong_method
from mauve.web.messages import JSON, Reply, bearer_credential
from mauve.web.parameters import parameters_from, with_unknown_hint

PREFIX: Final = "/v1/metrics/"
KNOWN_PARAMETERS: Final = frozenset({"date_from", "date_to", "name", "project"})
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
_CACHED_MAX: Final = 4_096
_CACHED_BYTES_MAX: Final = 512

log = structlog.get_logger()


class QueryPlane:
    """An ASGI application for everything under `/v1/metrics`."""

    def __init__(self, parts: QueryParts) -> None:
        self._parts = parts

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        request = AsgiRequest(scope, receive)
        try:
            answer = self._answer(request, scope["query_string"])
            reply = answer if isinstance(answer, Reply) else await answer
        except Problem as problem:
            reply = data_reply(problem)
        except StoreUnavailableError as error:
            log.warning("reader_not_confirmed", reason=str(error))
            reply = data_reply(cannot_be_read())
        except Exception:
            log.exception("query_failed", method=request.method)
            reply = data_reply(cannot_be_read())
        await send_reply(send, with_unknown_hint(reply, scope["query_string"], KNOWN_PARAMETERS))

    def _answer(self, request: AsgiRequest, query: bytes) -> Reply | Awaitable[Reply]:
        """Answer one request, without waiting if the cache can. The order of these lines is the order of refusals."""
        name = request.path.removeprefix(PREFIX)
        if not name or "/" in name:
            raise unknown_path()
        if not is_safe_method(request.method):
            return wrong_method("GET")
        parts = self._parts
        now_ms = parts.clock.now_ms()
        is_recent = parts.keyring.is_recent  # before the look-up: what it finds may be older
        reader = self._reader_of(bearer_credential(request.header("authorization")), now_ms)
        metric_named(name)
        project = self._project_of(reader, query)
        question = _question_from(name, project, query, day_number(now_ms))
        hit = find_hit(parts, question, now_ms) if is_recent else None
        return self._ask(reader, question, now_ms, is_recent=is_recent) if hit is None else reply_from(hit)

    async def _ask(self, reader: Reader, question: Question, now_ms: int, *, is_recent: bool) -> Reply:
        if not is_recent:
            await self._parts.keyring.confirm(reader)
        return reply_from(await ask(self._parts, question, lambda: self._admit(reader, question, now_ms)))

    def _reader_of(self, credential: str | None, now_ms: int) -> Reader:
        reader = self._parts.keyring.key_for(credential) or self._parts.keyring.token_for(credential)
        if reader is None:
            raise unauthorized()
        if isinstance(reader, PublishedToken):
            self._parts.uses.note_token(reader.lookup_id, now_ms)
            if Scope.METRICS_READ not in reader.scopes:
                raise insufficient_scope(Scope.METRICS_READ)
            return reader
        if reader.kind is not KeyKind.SERVER:
            raise server_key_required()
        self._parts.uses.note_key(reader.key_id, now_ms)
        return reader

    def _project_of(self, reader: Reader, query: bytes) -> str:
        """Return the project: a key has one, a token names one of its organization and environment."""
        if isinstance(reader, PublishedKey):
            return reader.public_id
        public_id = only(parameters_from(query), "project")
        if not public_id:
            raise Problem(Code.MALFORMED, "project is required with a control token: give the app's public_id")
        project = self._parts.keyring.project(public_id)
        if project is None or project.org_id != reader.org_id or project.environment is not reader.environment:
            raise unknown_project()
        return project.public_id

    def _admit(self, reader: Reader, question: Question, now_ms: int) -> None:
        organization = self._parts.keyring.organizations.get(reader.org_id)
        is_raw_scan = question.metric.is_raw_scan
        check_reads(self._parts.meter, organization, reader, now_ms, is_raw_scan=is_raw_scan)


def server_key_required() -> Problem:
    return Problem(Code.FORBIDDEN, "a publishable key reads nothing: use a server key or a control token")


def _question_from(name: str, project: str, query: bytes, day: int) -> Question:
    read = _cached_question if len(query) <= _CACHED_BYTES_MAX else _question
    return read(name, project, query, day)


def _question(name: str, project: str, query: bytes, day: int) -> Question:
    today = date.fromordinal(_EPOCH_ORDINAL + day)
    return question_from(metric_named(name), project, parameters_from(query), today)


# Clients repeat their questions: parsing them would be most of the cost of a hit.
_cached_question: Final = lru_cache(_CACHED_MAX)(_question)


# Only our own cache decides how old an answer may be.
_HEADERS: Final[Mapping[Freshness, Mapping[str, str]]] = {
    each: {**JSON, "cache-control": "no-store", "x-cache": each.value} for each in Freshness
}


def reply_from(answer: Answer) -> Reply:
    headers = _HEADERS[answer.freshness]
    if answer.age_s is not None:
        headers = {**headers, "x-cache-age": str(answer.age_s)}
    if answer.cut_at is not None:
        headers = {**headers, "x-service-truncated": str(answer.cut_at)}
    return Reply(200, answer.body, headers)
