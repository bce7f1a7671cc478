"""The one way to a number: the API and the pages both ask here, and share one cache."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import Final, NamedTuple

import structlog

from mauve.core.problems import Code, Problem
from mauve.core.window import Window, midnight_ms, today_at
from mauve.metrics.answers import Body, Row, body_of
from mauve.metrics.questions import Question, Survey
from mauve.metrics.registry import Metric
from mauve.metrics.sources import WarehouseSource
from mauve.query.parts import QueryParts
from mauve.query.read import rows_by_project
from mauve.query.single_flight import ReadersBusyError, SingleFlight
from mauve.stores import StoreUnavailableError
from mauve.stores.ledger import ReceivedPayment
from mauve.stores.read_cache import CachedAnswer, is_fresh
from mauve.stores.warehouse import StoredEvent, WarehouseUnavailableError

_SURVEY_BYTES_MAX: Final = 16 * 1024 * 1024  # for all answers of one read; the last of them may exceed it
_LATEST_BEFORE: Final = timedelta(days=7)  # How far back the list of arrivals reaches.
_LATEST_AFTER: Final = timedelta(days=1)  # The clock may have been set back.
_UNAVAILABLE: Final = (StoreUnavailableError, WarehouseUnavailableError, TimeoutError, ReadersBusyError)

log = structlog.get_logger()


class Freshness(StrEnum):
    """Where an answer comes from, by the name that clients see."""

    HIT = "hit"
    MISS = "miss"
    UNCACHED = "uncached"
    STALE = "stale"


class Answer(NamedTuple):
    body: bytes  # JSON, as it is sent
    freshness: Freshness
    read_at: int  # epoch ms at which the read began
    age_s: int | None = None  # of a stale one
    cut_at: int | None = None  # the number of rows in it, if there were more


def packed(body: Body) -> bytes:
    """Return an answer as it is cached: its JSON, after a line with the number of its rows if it was cut."""
    return body.bytes if body.cut_at is None else b"%d\n%b" % (body.cut_at, body.bytes)


def unpacked(value: bytes) -> Body:
    if value[:1] == b"{":  # as nearly all do: copies nothing
        return Body(value)
    line, _, rest = value.partition(b"\n")
    return Body(rest, int(line))


def _admit_all() -> None:
    pass


async def ask(parts: QueryParts, question: Question, admit: Callable[[], None] = _admit_all) -> Answer:
    """Answer from the cache, or read, or return the last cached answer if reading fails.

    Call `admit`, which may raise, in a thread unless the cache answers. If it cannot tell in time, nothing is read.
    """
    hit = find_hit(parts, question, parts.clock.now_ms())
    return await ask_stores(parts, question, admit) if hit is None else hit


async def ask_stores(parts: QueryParts, question: Question, admit: Callable[[], None]) -> Answer:
    """Do the same for a question that the cache has just not answered."""
    now_ms = parts.clock.now_ms()
    try:
        await parts.admissions.run(_paying_organization(parts, question.project), admit)
        return await _read_once(parts, question, now_ms)
    except Problem:
        raise
    except Exception as error:  # noqa: BLE001 - an old answer is better than none
        _log_failure(error, question.metric)
    cached = _cached(parts, question)
    if cached is None:
        raise cannot_be_read()
    return _stale(cached, now_ms)


def find_hit(parts: QueryParts, question: Question, now_ms: int) -> Answer | None:
    """Return the fresh answer in the cache."""
    cached = _cached(parts, question)
    if cached is None or not is_fresh(cached, now_ms, parts.max_age_s):
        return None
    return _answer_from(cached, Freshness.HIT)


def find_cached(parts: QueryParts, question: Question) -> Answer | None:
    """Return the fresh answer in the cache, or one that was read a moment ago while loading was behind."""
    now_ms = parts.clock.now_ms()
    hit = find_hit(parts, question, now_ms)
    if hit is not None:
        return hit
    brief = parts.brief.find(question.key, now_ms)
    return None if brief is None else _answer_from(brief, Freshness.UNCACHED)


async def latest_events(parts: QueryParts, project: str, events_max: int) -> list[StoredEvent]:
    """Read the events that arrived last, once for all callers that ask now. They are never cached."""
    today = today_at(parts.clock.now_ms())
    window = Window(today - _LATEST_BEFORE, today + _LATEST_AFTER)
    read = partial(parts.stores.warehouse.latest_events, project, window, events_max)
    key = ("latest", project, events_max)
    try:
        return await parts.warehouse_flights.join(_paying_organization(parts, project), key, read)
    except _UNAVAILABLE:
        raise cannot_be_read() from None


async def peek(parts: QueryParts, survey: Survey) -> dict[str, Answer]:
    """Read the answers as `ask_survey` does, without caching them, so that no client gets an early answer later.

    An answer is reused for a moment, which bounds how often the store is read. Return nothing if reading fails.
    """
    now_ms = parts.clock.now_ms()
    recent = {each.key: parts.brief.find(_peeked_key(each), now_ms) for each in survey.questions}
    found = {key: _answer_from(answer, Freshness.UNCACHED) for key, answer in recent.items() if answer is not None}
    return found if len(found) == len(recent) else found | await peek_again(parts, survey)


async def peek_again(parts: QueryParts, survey: Survey) -> dict[str, Answer]:
    """Do the same, and reuse no answer."""
    read = partial(_read, parts, survey, parts.clock.now_ms(), partial(_keep_peeked, parts))
    organization = _paying_organization(parts, survey.projects[0])
    try:
        return await _flights_for(parts, survey).join(organization, ("peek", survey), read)
    except Exception as error:  # noqa: BLE001 - the page says that the number is missing
        _log_failure(error, survey.metric)
    return {}


def find_peeked(parts: QueryParts, question: Question) -> Answer | None:
    """Return the answer that was peeked at last, whatever its age."""
    last = parts.brief.last(_peeked_key(question))
    return None if last is None else _answer_from(last, Freshness.UNCACHED)


async def ask_survey(parts: QueryParts, survey: Survey) -> dict[str, Answer]:
    """Read the answers for all projects at once, and cache them as if asked one by one. Return them by question key.

    If that fails, return the last cached answers. Leave out projects without one, answers that are too large, and
    those that would exceed the bound for one read.
    """
    now_ms = parts.clock.now_ms()
    try:
        return await _flights_for(parts, survey).join(
            _paying_organization(parts, survey.projects[0]), survey, partial(_read, parts, survey, now_ms)
        )
    except Exception as error:  # noqa: BLE001 - as above
        _log_failure(error, survey.metric)
    cached = {question.key: _cached(parts, question) for question in survey.questions}
    return {key: _stale(answer, now_ms) for key, answer in cached.items() if answer is not None}


def _paying_organization(parts: QueryParts, project: str) -> str:
    """Return the organization that pays for reads of a project."""
    known = parts.keyring.project(project)
    return project if known is None else known.org_id


async def money_revisions(parts: QueryParts, projects: Sequence[str]) -> dict[str, int]:
    """Read the revisions of the projects' money; raise if the ledger does not answer."""
    read = partial(parts.stores.ledger.money_revisions, projects)
    return await parts.ledger_flights.join(_paying_organization(parts, projects[0]), object(), read)


async def latest_payments(parts: QueryParts, project: str, payments_max: int) -> list[ReceivedPayment]:
    """Read the payments that arrived last, as `latest_events` reads events."""
    first_day = today_at(parts.clock.now_ms()) - _LATEST_BEFORE
    read = partial(parts.stores.ledger.latest_payments, project, midnight_ms(first_day), payments_max)
    key = ("latest payments", project, payments_max)
    try:
        return await parts.ledger_flights.join(_paying_organization(parts, project), key, read)
    except _UNAVAILABLE:
        raise cannot_be_read() from None


def cannot_be_read() -> Problem:
    return Problem(Code.QUERY_FAILED, "the numbers cannot be read now: retry", retry_after_s=1)


def _cached(parts: QueryParts, question: Question) -> CachedAnswer | None:
    return None if parts.cache is None else parts.cache.find(question.key)


def _answer_from(cached: CachedAnswer, freshness: Freshness, age_s: int | None = None) -> Answer:
    body = unpacked(cached.value)
    return Answer(body.bytes, freshness, cached.stored_at, age_s, body.cut_at)


def _stale(cached: CachedAnswer, now_ms: int) -> Answer:
    return _answer_from(cached, Freshness.STALE, max(0, now_ms - cached.stored_at) // 1000)


def _log_failure(error: Exception, metric: Metric) -> None:
    if isinstance(error, _UNAVAILABLE):
        log.warning("read_failed", metric=metric.name, reason=str(error))
    else:
        log.error("read_failed", metric=metric.name, exc_info=error)


async def _read_once(parts: QueryParts, question: Question, now_ms: int) -> Answer:
    """Read once for all callers that ask the same question now. Without a cache, each reads alone."""
    cached = _cached(parts, question)
    if cached is not None and is_fresh(cached, now_ms, parts.max_age_s):
        return _answer_from(cached, Freshness.MISS)  # Another request read it while we were being admitted.
    brief = parts.brief.find(question.key, now_ms)
    if brief is not None:
        return _answer_from(brief, Freshness.UNCACHED)
    alone = Survey((question.project,), question.metric, question.window, question.name)
    key = object() if parts.cache is None else question.key
    answers = await _flights_for(parts, alone).join(
        _paying_organization(parts, question.project), key, partial(_read, parts, alone, now_ms)
    )
    return answers[question.key]


def _flights_for(parts: QueryParts, survey: Survey) -> SingleFlight:
    from_warehouse = isinstance(survey.metric.source, WarehouseSource)
    return parts.warehouse_flights if from_warehouse else parts.ledger_flights


Keep = Callable[[Question, CachedAnswer], Freshness]


def _read(parts: QueryParts, survey: Survey, now_ms: int, keep: Keep | None = None) -> dict[str, Answer]:
    """Read and keep. The age of an answer counts from the moment at which reading began."""
    questions = {question.project: question for question in survey.questions}
    keep = keep or _keeping(parts, survey)
    answers: dict[str, Answer] = {}
    bytes_left = _SURVEY_BYTES_MAX
    with closing(rows_by_project(survey, parts.stores, now_ms)) as found:
        for project, rows in found:
            question = questions[project]
            try:
                answer = answers[question.key] = _answer(question, rows, now_ms, keep)
            except Problem:
                if len(questions) == 1:
                    raise
                continue  # One project's answer is too large: still answer for the others.
            bytes_left -= len(answer.body)
            if bytes_left < 0:
                break
    return answers


def _answer(question: Question, rows: Iterable[Row], now_ms: int, keep: Keep) -> Answer:
    body = body_of(question, rows)
    freshness = keep(question, CachedAnswer(packed(body), now_ms))
    return Answer(body.bytes, freshness, now_ms, cut_at=body.cut_at)


def _keeping(parts: QueryParts, survey: Survey) -> Keep:
    """Return how to keep answers that are about to be read. Money is never behind: the ledger needs no loading."""
    from_warehouse = isinstance(survey.metric.source, WarehouseSource)
    return partial(_keep_late if from_warehouse and parts.is_loading_behind() else _keep, parts)


def _keep(parts: QueryParts, question: Question, answer: CachedAnswer) -> Freshness:
    is_cached = parts.cache is not None and parts.cache.keep(question.key, answer)
    return Freshness.MISS if is_cached else Freshness.UNCACHED


def _keep_late(parts: QueryParts, question: Question, answer: CachedAnswer) -> Freshness:
    """Keep an answer that misses events which should have been loaded: for a moment, unless it replaces an older one.

    The moment limits reads while the loader is overloaded: one for each question in each flush interval. An answer that
    replaces another expires when that one would have: nothing incomplete is served for longer than without it.
    """
    earlier = _cached(parts, question)
    if earlier is not None and is_fresh(earlier, answer.stored_at, parts.max_age_s):
        return _keep(parts, question, answer._replace(stored_at=earlier.stored_at))
    if parts.cache is not None:
        parts.brief.keep(question.key, answer)
    return Freshness.UNCACHED


def _keep_peeked(parts: QueryParts, question: Question, answer: CachedAnswer) -> Freshness:
    parts.brief.keep(_peeked_key(question), answer)
    return Freshness.UNCACHED


def _peeked_key(question: Question) -> str:
    return f"peek/{question.key}"
