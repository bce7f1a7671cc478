"""The one way to a number: whoever shows it, API or page, asks here, and so shows the same."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

import structlog

from mauve.core.problems import Code, Problem
from mauve.metrics.answers import body_of
from mauve.metrics.questions import Question
from mauve.metrics.sources import WarehouseSource
from mauve.query.answer import Answer, Freshness
from mauve.query.flights import CrowdedError
from mauve.query.parts import QueryParts
from mauve.query.sources import rows_for
from mauve.stores.read_cache import CachedAnswer, is_fresh
from mauve.stores.unavailable import StoreUnavailableError
from mauve.stores.warehouse import WarehouseUnavailableError

UNAVAILABLE: Final = (StoreUnavailableError, WarehouseUnavailableError, TimeoutError, CrowdedError)

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
        return Answer(kept.value, Freshness.HIT, kept.stored_at)
    await asyncio.to_thread(admit)
    try:
        return await _read_once(parts, question, now_ms)
    except Problem:
        raise
    except UNAVAILABLE as error:
        log.warning("read_failed", metric=question.metric.name, reason=str(error))
    except Exception:
        log.exception("read_failed", metric=question.metric.name)
    if kept is None:
        raise cannot_be_read()
    return Answer(kept.value, Freshness.STALE, kept.stored_at, max(0, now_ms - kept.stored_at) // 1000)


def cannot_be_read() -> Problem:
    return Problem(Code.QUERY_FAILED, "the numbers cannot be read now: retry", retry_after_s=1)


def _kept(parts: QueryParts, question: Question) -> CachedAnswer | None:
    return None if parts.cache is None else parts.cache.find(question.key)


async def _read_once(parts: QueryParts, question: Question, now_ms: int) -> Answer:
    """Read, together with all who ask the same at the moment. Without a cache everybody reads for themselves."""
    kept = _kept(parts, question)
    if kept is not None and is_fresh(kept, now_ms, parts.max_age_s):
        return Answer(kept.value, Freshness.MISS, kept.stored_at)  # Somebody has read it while we were being admitted.
    from_warehouse = isinstance(question.metric.source, WarehouseSource)
    flights = parts.warehouse_flights if from_warehouse else parts.ledger_flights
    key = object() if parts.cache is None else question.key
    return await flights.join(key, partial(_read, parts, question, now_ms))


def _read(parts: QueryParts, question: Question, now_ms: int) -> Answer:
    """Read and keep. The answer is as old as the moment at which reading began."""
    body = body_of(question, rows_for(question, parts.warehouse, parts.ledger, now_ms))
    is_kept = parts.cache is not None and parts.cache.keep(question.key, CachedAnswer(body, now_ms))
    return Answer(body, Freshness.MISS if is_kept else Freshness.UNCACHED, now_ms)
