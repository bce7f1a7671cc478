"""Read metrics for pages: the same questions as the API, through the same cache.

Pages are rendered in threads and questions are answered in the event loop; this module bridges the two.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Final, TypeVar

import msgspec
import structlog

from mauve.core.problems import Problem
from mauve.metrics.questions import Question, Survey, surveys_of
from mauve.metrics.sources import LedgerSource, WarehouseSource
from mauve.query.ask import (
    Answer,
    Freshness,
    ask_survey,
    find_cached,
    find_peeked,
    latest_events,
    latest_payments,
    money_revisions,
    peek,
    peek_again,
)
from mauve.query.parts import QueryParts
from mauve.stores.ledger import ReceivedPayment
from mauve.stores.warehouse import StoredEvent

# For all pages together: a store serves 64 reads at once, and most of them belong to the API.
_CONCURRENT_READS_MAX: Final = 16
_WATCHED_MAX: Final = 50_000  # projects
_PROJECTS_PER_READ_MAX: Final = 100  # Each may need a 100 KB sketch for every day.

AskAbout = Callable[[QueryParts, Survey], Awaitable[Mapping[str, Answer]]]
_Arrival = TypeVar("_Arrival")

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
    """Answer questions for pages; call it from any thread except the event loop's. Reads use up no allowance."""

    def __init__(self, parts: QueryParts, loop: asyncio.AbstractEventLoop, wait_s: float) -> None:
        self._parts = parts
        self._loop = loop
        self._wait_s = wait_s
        # Separate limits, so that a store that hangs does not block reads from the other one.
        self._warehouse_reads = asyncio.Semaphore(_CONCURRENT_READS_MAX)
        self._ledger_reads = asyncio.Semaphore(_CONCURRENT_READS_MAX)
        self._money = MoneyWatch()

    def ask(self, questions: Iterable[Question]) -> Answers:
        """Answer all questions in parallel. Late reads continue, so that the next page finds them in the cache."""
        by_key = {question.key: question for question in questions}
        return asyncio.run_coroutine_threadsafe(self._answers_to(by_key), self._loop).result()

    def refresh(self, questions: Iterable[Question]) -> Answers:
        """Read all answers again, whatever is cached, and cache them for pages and the API."""
        return self._read_all(questions, ask_survey)

    def peek(self, questions: Iterable[Question]) -> Answers:
        """Read all answers again, and leave the cache as it is."""
        return self._read_all(questions, peek)

    def last_peeked(self, questions: Iterable[Question]) -> Answers:
        """Return the answers that were peeked at last, and read nothing."""
        return Answers({question.key: find_peeked(self._parts, question) for question in questions})

    def look(self, questions: Iterable[Question]) -> Answers:
        """Answer from the cache, and read what is not there without caching it."""
        by_key = {question.key: question for question in questions}
        return asyncio.run_coroutine_threadsafe(self._answers_to(by_key, peek), self._loop).result()

    def cached(self, question: Question) -> Answer | None:
        """Return the answer that the API would give from the cache, if there is one."""
        return find_cached(self._parts, question)

    def is_loading_behind(self) -> bool:
        """Return whether events that have arrived are missing in the numbers."""
        return self._parts.is_loading_behind()

    @property
    def max_age_s(self) -> int:
        """Return how long an answer is cached."""
        return self._parts.max_age_s

    def _read_all(self, questions: Iterable[Question], ask_about: AskAbout) -> Answers:
        by_key = {question.key: question for question in questions}
        answers: dict[str, Answer | None] = dict.fromkeys(by_key)
        read = self._read_surveys(by_key.values(), answers, ask_about, self._wait_s)
        asyncio.run_coroutine_threadsafe(read, self._loop).result()
        return Answers(answers)

    def latest_arrivals(
        self, project: str, count_max: int
    ) -> tuple[list[StoredEvent] | None, list[ReceivedPayment] | None]:
        """Return the events and the payments received last; None for those that cannot be read now."""
        events = self._begin(latest_events(self._parts, project, count_max))
        payments = self._begin(latest_payments(self._parts, project, count_max))
        return _result_of(events), _result_of(payments)

    def _begin(self, read: Coroutine[Any, Any, list[_Arrival]]) -> Future[list[_Arrival]]:
        return asyncio.run_coroutine_threadsafe(asyncio.wait_for(read, self._wait_s), self._loop)

    async def _answers_to(self, questions: Mapping[str, Question], ask_about: AskAbout = ask_survey) -> Answers:
        """Answer from the cache and read the rest; read money again that has changed since, past the cache."""
        ends_at_s = self._loop.time() + self._wait_s
        changed_at = await self._money_changed_at(questions.values())
        answers: dict[str, Answer | None] = dict.fromkeys(questions)
        outdated = []
        for key, question in questions.items():
            answer = answers[key] = find_cached(self._parts, question)
            if answer is not None and is_money(question) and answer.read_at <= changed_at.get(question.project, -1):
                answers[key] = peeked = find_peeked(self._parts, question)
                if peeked is None or peeked.read_at <= changed_at[question.project]:
                    answers[key] = answer  # in case reading fails
                    outdated.append(question)
            await asyncio.sleep(0)  # Hundreds of questions must not block the event loop.
        missing = [questions[key] for key, answer in answers.items() if answer is None]
        wait_s = ends_at_s - self._loop.time()
        await asyncio.gather(
            self._read_surveys(missing, answers, ask_about, wait_s),
            self._read_surveys(outdated, answers, peek_again, wait_s),
        )
        return Answers(answers)

    async def _money_changed_at(self, questions: Iterable[Question]) -> dict[str, int]:
        """Return since when each project's money is as it is; nothing if the ledger does not answer soon."""
        projects = sorted({question.project for question in questions if is_money(question)})
        if not projects:
            return {}
        try:
            revisions = await asyncio.wait_for(money_revisions(self._parts, projects), self._wait_s / 2)
        except Exception as error:  # noqa: BLE001 - the page shows what is cached
            log.warning("money_revisions_not_read", reason=str(error))
            return {}
        now_ms = self._parts.clock.now_ms()
        return {each: self._money.changed_at(each, revisions.get(each, 0), now_ms) for each in projects}

    async def _read_surveys(
        self, questions: Iterable[Question], answers: dict[str, Answer | None], ask_about: AskAbout, wait_s: float
    ) -> None:
        surveys = surveys_of(questions, _PROJECTS_PER_READ_MAX)
        if surveys:
            reads = [asyncio.create_task(self._read(survey, answers, ask_about)) for survey in surveys]
            _, late = await asyncio.wait(reads, timeout=wait_s)
            for read in late:
                read.cancel()

    async def _read(self, survey: Survey, answers: dict[str, Answer | None], ask_about: AskAbout) -> None:
        in_warehouse = isinstance(survey.metric.source, WarehouseSource)
        async with self._warehouse_reads if in_warehouse else self._ledger_reads:
            answers.update(await ask_about(self._parts, survey))


def is_money(question: Question) -> bool:
    return isinstance(question.metric.source, LedgerSource)


def _result_of(read: Future[list[_Arrival]]) -> list[_Arrival] | None:
    try:
        return read.result()
    except (Problem, TimeoutError):
        return None
