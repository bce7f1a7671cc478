"""The one way to a number: the API, pages, alerts and exports all ask here, and share one cache.

An answer is read in one of two ways. A *cached* one is served to everyone until it expires. A *fresh* one is for the
caller alone, usually a page: it is kept beside the cached one, which the API continues to serve until it expires.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import closing
from datetime import timedelta
from functools import partial
from operator import attrgetter
from typing import Final, TypeVar

import structlog

from mauve.core.problems import Code, Problem
from mauve.core.window import Window, midnight_ms, today_at
from mauve.metrics.questions import Question, QuestionBatch, Row, body_of
from mauve.query import QueryParts
from mauve.query.answer_cache import Answer, Freshness, is_fresh
from mauve.query.read import rows_by_project
from mauve.query.single_flight import ReadersBusyError, SingleFlight
from mauve.stores import StoreUnavailableError
from mauve.stores.ledger import ReceivedPayment
from mauve.stores.warehouse import StoredEvent, WarehouseUnavailableError

_BATCH_BYTES_MAX: Final = 16 * 1024 * 1024  # for all answers of one read; the last of them may exceed it
_LATEST_BEFORE: Final = timedelta(days=7)  # How far back the list of arrivals reaches.
_LATEST_AFTER: Final = timedelta(days=1)  # The clock may have been set back.
_UNAVAILABLE: Final = (StoreUnavailableError, WarehouseUnavailableError, TimeoutError, ReadersBusyError)

T = TypeVar("T")

log = structlog.get_logger()

Keep = Callable[[QueryParts, str, Question, Answer], Freshness]


async def ask(parts: QueryParts, question: Question, admit: Callable[[], None]) -> Answer:
    """Answer from the cache, or read and cache, or return the last known answer if reading fails.

    Call `admit`, which may raise, in a thread unless the cache answers. If it cannot tell in time, nothing is read.
    """
    hit = find_hit(parts, question, parts.clock.now_ms())
    if hit is not None:
        return hit
    batch = QuestionBatch((question.project,), question.metric, question.window, question.name)
    try:
        await parts.admissions.run(_paying_organization(parts, question.project), admit)
    except Problem:
        raise
    except Exception as error:  # noqa: BLE001 - an old answer is better than none
        answers = _after_failure(parts, batch, error)
    else:
        hit = find_hit(parts, question, parts.clock.now_ms())
        if hit is not None:  # Another request read it while this one was being admitted, and counted.
            return hit._replace(freshness=Freshness.MISS)
        answers = await read_cached(parts, batch)
    if question.key not in answers:
        raise cannot_be_read()
    return answers[question.key]


def find_hit(parts: QueryParts, question: Question, now_ms: int) -> Answer | None:
    """Return the cached answer while it is fresh."""
    cached = parts.cache.find(question.key)
    return cached if cached is not None and is_fresh(cached, now_ms, parts.max_age_s) else None


def find_recent(parts: QueryParts, question: Question) -> Answer | None:
    """Return the last answer that was read but not cached, whatever its age."""
    return parts.cache.find(_recent_key(question))


async def read_cached(parts: QueryParts, batch: QuestionBatch) -> dict[str, Answer]:
    """Read the answers for all projects in one read, and cache them. Return them by question key.

    If that fails, return the last known answers. Leave out projects without one, answers that are too large, and those
    that would exceed the bound for one read; raise `Problem` if the only answer is too large. While the cache is off,
    every caller reads alone.
    """
    return await _read(parts, batch, batch if parts.max_age_s else object(), _keep)


async def read_fresh(parts: QueryParts, batch: QuestionBatch) -> dict[str, Answer]:
    """Do the same without caching, so that the API does not serve an early answer later."""
    return await _read(parts, batch, ("fresh", batch), _keep_recent)


async def _read(parts: QueryParts, batch: QuestionBatch, key: Hashable, keep: Keep) -> dict[str, Answer]:
    """Read once for all callers that ask the same now."""
    flights = parts.ledger_flights if batch.is_money else parts.warehouse_flights
    organization = _paying_organization(parts, batch.projects[0])
    try:
        return await flights.join(organization, key, partial(_read_stores, parts, organization, batch, keep))
    except Problem:
        raise
    except Exception as error:  # noqa: BLE001 - an old answer is better than none
        return _after_failure(parts, batch, error)


def _after_failure(parts: QueryParts, batch: QuestionBatch, error: Exception) -> dict[str, Answer]:
    """Log the failure; return the last known answers."""
    if isinstance(error, _UNAVAILABLE):
        log.warning("read_failed", metric=batch.metric.name, reason=str(error))
    else:
        log.error("read_failed", metric=batch.metric.name, exc_info=error)
    now_ms = parts.clock.now_ms()
    known = {question.key: _last_known(parts, question) for question in batch.questions}
    return {
        key: answer._replace(freshness=Freshness.STALE, age_s=max(0, now_ms - answer.read_at) // 1000)
        for key, answer in known.items()
        if answer is not None
    }


def _last_known(parts: QueryParts, question: Question) -> Answer | None:
    found = (parts.cache.find(question.key), find_recent(parts, question))
    return max((answer for answer in found if answer is not None), key=attrgetter("read_at"), default=None)


def _read_stores(parts: QueryParts, organization: str, batch: QuestionBatch, keep: Keep) -> dict[str, Answer]:
    """Read and keep. The age of an answer counts from the moment at which reading began."""
    now_ms = parts.clock.now_ms()
    # Money is never behind: the ledger needs no loading.
    if parts.max_age_s and not batch.is_money and parts.is_loading_behind():
        recent = _reusable(parts, batch, now_ms)
        if len(recent) == len(batch.projects):
            return recent
        keep = _keep_late if keep is _keep else keep
    questions = {question.project: question for question in batch.questions}
    answers: dict[str, Answer] = {}
    bytes_left = _BATCH_BYTES_MAX
    with closing(rows_by_project(batch, parts.stores, now_ms)) as found:
        for project, rows in found:
            question = questions[project]
            try:
                answer = answers[question.key] = _answer(question, rows, now_ms, partial(keep, parts, organization))
            except Problem:
                if len(questions) == 1:
                    raise
                continue  # One project's answer is too large: still answer for the others.
            bytes_left -= len(answer.body)
            if bytes_left < 0:
                break
    return answers


def _answer(
    question: Question, rows: Iterable[Row], now_ms: int, keep: Callable[[Question, Answer], Freshness]
) -> Answer:
    body = body_of(question, rows)
    answer = Answer(body.bytes, Freshness.UNCACHED, now_ms, cut_at=body.cut_at)
    return answer._replace(freshness=keep(question, answer))


def _keep(parts: QueryParts, organization: str, question: Question, answer: Answer) -> Freshness:
    """Cache an answer, unless the cache is off."""
    hit = answer._replace(freshness=Freshness.HIT)
    is_cached = parts.max_age_s > 0 and parts.cache.keep(organization, question.key, hit)
    return Freshness.MISS if is_cached else Freshness.UNCACHED


def _keep_recent(parts: QueryParts, organization: str, question: Question, answer: Answer) -> Freshness:
    parts.cache.keep(organization, _recent_key(question), answer)
    return Freshness.UNCACHED


def _keep_late(parts: QueryParts, organization: str, question: Question, answer: Answer) -> Freshness:
    """Keep an answer that lacks events which should have been loaded. Do not cache it, unless it replaces another.

    It is reused for one flush interval, which limits reads while the loader is overloaded. An answer that replaces
    another expires when that one would have: nothing incomplete is served for longer than without it.
    """
    earlier = find_hit(parts, question, answer.read_at)
    if earlier is not None:
        return _keep(parts, organization, question, answer._replace(read_at=earlier.read_at))
    return _keep_recent(parts, organization, question, answer)


def _reusable(parts: QueryParts, batch: QuestionBatch, now_ms: int) -> dict[str, Answer]:
    found = ((question.key, find_recent(parts, question)) for question in batch.questions)
    return {key: answer for key, answer in found if answer is not None and is_fresh(answer, now_ms, parts.flush_s)}


def _recent_key(question: Question) -> str:
    return question.key.replace("/", "/recent/", 1)


def _paying_organization(parts: QueryParts, project: str) -> str:
    """Return the organization that pays for reads of a project."""
    known = parts.keyring.project(project)
    return project if known is None else known.org_id


async def latest_events(parts: QueryParts, project: str, events_max: int) -> list[StoredEvent]:
    """Read the events that arrived last, once for all callers that ask now. They are never cached."""
    today = today_at(parts.clock.now_ms())
    window = Window(today - _LATEST_BEFORE, today + _LATEST_AFTER)
    read = partial(parts.stores.warehouse.latest_events, project, window, events_max)
    return await _latest(parts, parts.warehouse_flights, project, read)


async def latest_payments(parts: QueryParts, project: str, payments_max: int) -> list[ReceivedPayment]:
    """Read the payments that arrived last, as `latest_events` reads events."""
    first_ms = midnight_ms(today_at(parts.clock.now_ms()) - _LATEST_BEFORE)
    read = partial(parts.stores.ledger.latest_payments, project, first_ms, payments_max)
    return await _latest(parts, parts.ledger_flights, project, read)


async def _latest(parts: QueryParts, flights: SingleFlight, project: str, read: "partial[T]") -> T:
    key = ("latest", project, read.args[-1])
    try:
        return await flights.join(_paying_organization(parts, project), key, read)
    except _UNAVAILABLE:
        raise cannot_be_read() from None


async def money_revisions(parts: QueryParts, projects: Sequence[str]) -> dict[str, int]:
    """Read the revisions of the projects' money; raise if the ledger does not answer."""
    read = partial(parts.stores.ledger.money_revisions, projects)
    return await parts.ledger_flights.join(_paying_organization(parts, projects[0]), object(), read)


def cannot_be_read() -> Problem:
    return Problem(Code.QUERY_FAILED, "the numbers cannot be read now: retry", retry_after_s=1)
