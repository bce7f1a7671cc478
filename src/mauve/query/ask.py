"""The one way to a number: whoever shows it, API or page, asks here, and so shows the same."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import closing
from functools import partial
from typing import Final

import structlog

from mauve.core.problems import Code, Problem
from mauve.metrics.answers import Row, body_of
from mauve.metrics.questions import Question, Survey
from mauve.metrics.registry import Metric
from mauve.metrics.sources import WarehouseSource
from mauve.query.answer import Answer, Freshness, packed, unpacked
from mauve.query.parts import QueryParts
from mauve.query.read import rows_by_project
from mauve.query.single_flight import ReadersBusyError, SingleFlight
from mauve.stores import StoreUnavailableError
from mauve.stores.read_cache import CachedAnswer, is_fresh
from mauve.stores.warehouse import WarehouseUnavailableError

_SURVEY_BYTES_MAX: Final = 16 * 1024 * 1024  # of all answers of one reading; the last of them may be larger

UNAVAILABLE: Final = (StoreUnavailableError, WarehouseUnavailableError, TimeoutError, ReadersBusyError)

log = structlog.get_logger()


def _everybody_may() -> None:
    pass


async def ask(parts: QueryParts, question: Question, admit: Callable[[], None] = _everybody_may) -> Answer:
    """Answer from the cache, or read anew, or give the last answer there was when that fails.

    `admit` is called unless the cache answers, and may raise. It runs in a thread.
    """
    now_ms = parts.clock.now_ms()
    kept = _kept(parts, question)
    if kept is not None and is_fresh(kept, now_ms, parts.max_age_s):
        return _given(kept, Freshness.HIT)
    await asyncio.to_thread(admit)
    try:
        return await _read_once(parts, question, now_ms)
    except Problem:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, an old answer is better than none
        _tell(error, question.metric)
    if kept is None:
        raise cannot_be_read()
    return _stale(kept, now_ms)


def found(parts: QueryParts, question: Question) -> Answer | None:
    """Return an answer that need not be read."""
    now_ms, kept = parts.clock.now_ms(), _kept(parts, question)
    if kept is None or not is_fresh(kept, now_ms, parts.max_age_s):
        return None
    return _given(kept, Freshness.HIT)


async def ask_survey(parts: QueryParts, survey: Survey) -> dict[str, Answer]:
    """Read the answers for all projects at once, by the key of each question, and keep them as if asked one by one.

    When that fails the last answers there were are given; where there was none, it is left out. So is an answer that is
    too large, and what comes after too many large ones.
    """
    now_ms = parts.clock.now_ms()
    try:
        return await _flights_for(parts, survey).join(
            whose(parts, survey.projects[0]), survey, partial(_read, parts, survey, now_ms)
        )
    except Exception as error:  # noqa: BLE001 - as above
        _tell(error, survey.metric)
    kept = {question.key: _kept(parts, question) for question in survey.questions}
    return {key: _stale(answer, now_ms) for key, answer in kept.items() if answer is not None}


def whose(parts: QueryParts, project: str) -> str:
    """Return the organization at whose cost a project is read."""
    known = parts.keyring.project(project)
    return project if known is None else known.org_id


def cannot_be_read() -> Problem:
    return Problem(Code.QUERY_FAILED, "the numbers cannot be read now: retry", retry_after_s=1)


def _kept(parts: QueryParts, question: Question) -> CachedAnswer | None:
    return None if parts.cache is None else parts.cache.find(question.key)


def _given(kept: CachedAnswer, freshness: Freshness, age_s: int | None = None) -> Answer:
    body = unpacked(kept.value)
    return Answer(body.bytes, freshness, kept.stored_at, age_s, body.cut_at)


def _stale(kept: CachedAnswer, now_ms: int) -> Answer:
    return _given(kept, Freshness.STALE, max(0, now_ms - kept.stored_at) // 1000)


def _tell(error: Exception, metric: Metric) -> None:
    if isinstance(error, UNAVAILABLE):
        log.warning("read_failed", metric=metric.name, reason=str(error))
    else:
        log.error("read_failed", metric=metric.name, exc_info=error)


async def _read_once(parts: QueryParts, question: Question, now_ms: int) -> Answer:
    """Read, together with all who ask the same at the moment. Without a cache everybody reads for themselves."""
    kept = _kept(parts, question)
    if kept is not None and is_fresh(kept, now_ms, parts.max_age_s):
        return _given(kept, Freshness.MISS)  # Somebody has read it while we were being admitted.
    alone = Survey((question.project,), question.metric, question.window, question.name)
    key = object() if parts.cache is None else question.key
    answers = await _flights_for(parts, alone).join(
        whose(parts, question.project), key, partial(_read, parts, alone, now_ms)
    )
    return answers[question.key]


def _flights_for(parts: QueryParts, survey: Survey) -> SingleFlight:
    from_warehouse = isinstance(survey.metric.source, WarehouseSource)
    return parts.warehouse_flights if from_warehouse else parts.ledger_flights


def _read(parts: QueryParts, survey: Survey, now_ms: int) -> dict[str, Answer]:
    """Read and keep. An answer is as old as the moment at which reading began."""
    questions = {question.project: question for question in survey.questions}
    answers: dict[str, Answer] = {}
    room = _SURVEY_BYTES_MAX
    with closing(rows_by_project(survey, parts.stores, now_ms)) as found:
        for project, rows in found:
            question = questions[project]
            try:
                answer = answers[question.key] = _answer(parts, question, rows, now_ms)
            except Problem:
                if len(questions) == 1:
                    raise
                continue  # One project's answer is too large: the others have theirs.
            room -= len(answer.body)
            if room < 0:
                break
    return answers


def _answer(parts: QueryParts, question: Question, rows: Iterable[Row], now_ms: int) -> Answer:
    body = body_of(question, rows)
    is_kept = parts.cache is not None and parts.cache.keep(question.key, CachedAnswer(packed(body), now_ms))
    freshness = Freshness.MISS if is_kept else Freshness.UNCACHED
    return Answer(body.bytes, freshness, now_ms, cut_at=body.cut_at)
