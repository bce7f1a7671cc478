"""Numbers for pages, alerts and exports: many questions, through the same cache as the API.

Callers run in threads and questions are answered in the event loop; this module bridges the two.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final, TypeVar

import msgspec
import structlog

from mauve.core.problems import Problem
from mauve.metrics.questions import Question, QuestionBatch, batches_of
from mauve.query import QueryParts
from mauve.query.answer_cache import Answer, Freshness, is_fresh
from mauve.query.ask import (
    find_hit,
    find_recent,
    latest_events,
    latest_payments,
    money_revisions,
    read_cached,
    read_fresh,
)
from mauve.stores.ledger import ReceivedPayment
from mauve.stores.warehouse import StoredEvent

# For all callers together: a store serves 64 reads at once, and most of them belong to the API.
_CONCURRENT_READS_MAX: Final = 16
_WATCHED_MAX: Final = 50_000  # projects
_PROJECTS_PER_READ_MAX: Final = 100  # Each may need a 100 KB sketch for every day.

Read = Callable[[QueryParts, QuestionBatch], Awaitable[Mapping[str, Answer]]]
_Found = dict[str, Answer | None]
_Arrival = TypeVar("_Arrival")
_Result = TypeVar("_Result")

_decoder: Final = msgspec.json.Decoder()
log = structlog.get_logger()


class Answers:
    """Answers by question. An unanswered question has no rows: the page says so and shows the others."""

    def __init__(self, answers: Mapping[str, Answer | None]) -> None:
        self._answers = answers

    def __or__(self, other: "Answers") -> "Answers":
        """Return the answers of both."""
        return Answers({**self._answers, **other._answers})

    def rows(self, question: Question) -> list[dict[str, Any]] | None:
        answer = self._answers[question.key]
        return None if answer is None else _decoder.decode(answer.body)["data"]

    def current_rows(self, question: Question) -> list[dict[str, Any]] | None:
        """Return the rows of an answer that is not stale."""
        answer = self._answers[question.key]
        return None if answer is None or answer.freshness is Freshness.STALE else self.rows(question)

    def read_at_of(self, questions: Iterable[Question]) -> int | None:
        """Return when the oldest of these answers was read; None if there is none."""
        found = (self._answers[question.key] for question in questions)
        return min((answer.read_at for answer in found if answer is not None), default=None)

    @property
    def read_at(self) -> int | None:
        """Return when the oldest answer was read."""
        return min((answer.read_at for answer in self._answers.values() if answer is not None), default=None)

    @property
    def is_stale(self) -> bool:
        return any(answer.freshness is Freshness.STALE for answer in self._answers.values() if answer is not None)

    @property
    def is_current(self) -> bool:
        """Return whether every question was answered by a store, or by the cache while it is fresh."""
        return self.is_complete and not self.is_stale

    @property
    def is_complete(self) -> bool:
        return None not in self._answers.values()


class MoneyWatch:
    """Remember since when each project's money has its current revision. A cached answer from before is outdated."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, int]] = {}  # revision, and the time at which it was first seen

    def changed_at(self, project: str, revision: int, now_ms: int) -> int:
        """Return when the revision was first seen: at the latest now."""
        known, at = self._seen.pop(project, (None, now_ms))
        at = min(at, now_ms) if known == revision else now_ms
        self._seen[project] = (revision, at)
        if len(self._seen) > _WATCHED_MAX:
            del self._seen[next(iter(self._seen))]
        return at


class Numbers:
    """Answer questions in parallel; call it from any thread except the event loop's. Reads use up no allowance.

    Reads that take too long are left unanswered. They continue, so that the next caller finds their answers.
    """

    def __init__(self, parts: QueryParts, loop: asyncio.AbstractEventLoop, wait_s: float) -> None:
        self._parts = parts
        self._loop = loop
        self._wait_s = wait_s
        # Separate limits, so that a store that hangs does not block reads from the other one.
        self._warehouse_reads = asyncio.Semaphore(_CONCURRENT_READS_MAX)
        self._ledger_reads = asyncio.Semaphore(_CONCURRENT_READS_MAX)
        self._money = MoneyWatch()

    def cached(self, questions: Iterable[Question]) -> Answers:
        """Answer from the cache; read and cache the rest. Money that has changed since is read, but not cached."""
        return self._run(self._answer_cached(_by_key(questions)))

    def fresh(self, questions: Iterable[Question]) -> Answers:
        """Read now, or up to a flush interval ago, and leave the cache as it is."""
        return self._run(self._answer_fresh(_by_key(questions)))

    def refresh(self, questions: Iterable[Question]) -> Answers:
        """Read now, and replace what is cached."""
        return self._run(self._refresh(_by_key(questions)))

    def find(self, question: Question) -> Answer | None:
        """Return the answer that the API would give from the cache, if there is one."""
        return find_hit(self._parts, question, self._parts.clock.now_ms())

    def is_loading_behind(self) -> bool:
        """Return whether events that have arrived are missing in the numbers. Money never misses any."""
        return self._parts.is_loading_behind()

    @property
    def max_age_s(self) -> int:
        """Return how long an answer is cached."""
        return self._parts.max_age_s

    def latest_arrivals(
        self, project: str, count_max: int
    ) -> tuple[list[StoredEvent] | None, list[ReceivedPayment] | None]:
        """Return the events and the payments received last; None for those that cannot be read now."""
        events = self._begin(latest_events(self._parts, project, count_max))
        payments = self._begin(latest_payments(self._parts, project, count_max))
        return _result_of(events), _result_of(payments)

    def _begin(self, read: Coroutine[Any, Any, list[_Arrival]]) -> Future[list[_Arrival]]:
        return asyncio.run_coroutine_threadsafe(asyncio.wait_for(read, self._wait_s), self._loop)

    def _run(self, answer: Coroutine[Any, Any, _Result]) -> _Result:
        return asyncio.run_coroutine_threadsafe(answer, self._loop).result()

    async def _answer_cached(self, questions: Mapping[str, Question]) -> Answers:
        ends_at_s = self._loop.time() + self._wait_s
        changed_at = await self._money_changed_at(questions.values())
        answers: _Found = dict.fromkeys(questions)
        missing, outdated = list[Question](), list[Question]()
        for key, question in questions.items():
            answers[key] = hit = self.find(question)
            if hit is None:
                missing.append(question)
            elif question.is_money and hit.read_at <= changed_at.get(question.project, -1):
                recent = find_recent(self._parts, question)
                if recent is not None and recent.read_at > changed_at[question.project]:
                    answers[key] = recent
                else:
                    outdated.append(question)
            await asyncio.sleep(0)  # Hundreds of questions must not block the event loop.
        wait_s = ends_at_s - self._loop.time()
        await asyncio.gather(
            self._read_into(answers, missing, read_cached, wait_s),
            self._read_into(answers, outdated, read_fresh, wait_s),
        )
        return Answers(answers)

    async def _answer_fresh(self, questions: Mapping[str, Question]) -> Answers:
        now_ms = self._parts.clock.now_ms()
        recent = {key: find_recent(self._parts, question) for key, question in questions.items()}
        answers = {
            key: answer if answer is not None and is_fresh(answer, now_ms, self._parts.flush_s) else None
            for key, answer in recent.items()
        }
        missing = [questions[key] for key, answer in answers.items() if answer is None]
        await self._read_into(answers, missing, read_fresh, self._wait_s)
        return Answers(answers)

    async def _refresh(self, questions: Mapping[str, Question]) -> Answers:
        answers: _Found = dict.fromkeys(questions)
        await self._read_into(answers, questions.values(), read_cached, self._wait_s)
        return Answers(answers)

    async def _money_changed_at(self, questions: Iterable[Question]) -> dict[str, int]:
        """Return since when each project's money is as it is; nothing if the ledger does not answer soon."""
        projects = sorted({question.project for question in questions if question.is_money})
        if not projects:
            return {}
        try:
            revisions = await asyncio.wait_for(money_revisions(self._parts, projects), self._wait_s / 2)
        except Exception as error:  # noqa: BLE001 - the page shows what is cached
            log.warning("money_revisions_not_read", reason=str(error))
            return {}
        now_ms = self._parts.clock.now_ms()
        return {each: self._money.changed_at(each, revisions.get(each, 0), now_ms) for each in projects}

    async def _read_into(self, answers: _Found, questions: Iterable[Question], read: Read, wait_s: float) -> None:
        batches = batches_of(questions, _PROJECTS_PER_READ_MAX)
        if batches:
            reads = [asyncio.create_task(self._read_batch(answers, batch, read)) for batch in batches]
            _, late = await asyncio.wait(reads, timeout=wait_s)
            for each in late:
                each.cancel()

    async def _read_batch(self, answers: _Found, batch: QuestionBatch, read: Read) -> None:
        with suppress(Problem):  # The only answer is too large.
            async with self._ledger_reads if batch.is_money else self._warehouse_reads:
                answers.update(await read(self._parts, batch))


def _by_key(questions: Iterable[Question]) -> dict[str, Question]:
    return {question.key: question for question in questions}


def _result_of(read: Future[list[_Arrival]]) -> list[_Arrival] | None:
    try:
        return read.result()
    except (Problem, TimeoutError):
        return None
