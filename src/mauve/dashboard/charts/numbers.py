"""Read metrics for pages: the same questions as the API, through the same cache.

Pages are rendered in threads and questions are answered in the event loop; this module bridges the two.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Final, TypeVar

import msgspec

from mauve.core.problems import Problem
from mauve.metrics.questions import Question, Survey, surveys_of
from mauve.metrics.sources import WarehouseSource
from mauve.query.ask import Answer, Freshness, ask_survey, find_cached, latest_events, latest_payments
from mauve.query.parts import QueryParts
from mauve.stores.ledger import ReceivedPayment
from mauve.stores.warehouse import StoredEvent

# For all pages together: a store serves 64 reads at once, and most of them belong to the API.
_CONCURRENT_READS_MAX: Final = 16
_PROJECTS_PER_READ_MAX: Final = 100  # Each may need a 100 KB sketch for every day.

_Arrival = TypeVar("_Arrival")

_decoder: Final = msgspec.json.Decoder()


class Answers:
    """Answers by question. An unanswered question has no rows: the page says so and shows the others."""

    def __init__(self, answers: Mapping[str, Answer | None]) -> None:
        self._answers = answers

    def rows(self, question: Question) -> list[dict[str, Any]] | None:
        answer = self._answers[question.key]
        return None if answer is None else _decoder.decode(answer.body)["data"]

    @property
    def read_at(self) -> int | None:
        """Return when the oldest answer was read."""
        return min((answer.read_at for answer in self._answers.values() if answer is not None), default=None)

    @property
    def is_stale(self) -> bool:
        return any(answer.freshness is Freshness.STALE for answer in self._answers.values() if answer is not None)

    @property
    def is_complete(self) -> bool:
        return None not in self._answers.values()


class Numbers:
    """Answer questions for pages; call it from any thread except the event loop's. Reads use up no allowance."""

    def __init__(self, parts: QueryParts, loop: asyncio.AbstractEventLoop, wait_s: float) -> None:
        self._parts = parts
        self._loop = loop
        self._wait_s = wait_s
        # Separate limits, so that a store that hangs does not block reads from the other one.
        self._warehouse_reads = asyncio.Semaphore(_CONCURRENT_READS_MAX)
        self._ledger_reads = asyncio.Semaphore(_CONCURRENT_READS_MAX)

    def ask(self, questions: Iterable[Question]) -> Answers:
        """Answer all questions in parallel. Late reads continue, so that the next page finds them in the cache."""
        by_key = {question.key: question for question in questions}
        return asyncio.run_coroutine_threadsafe(self._answers_to(by_key), self._loop).result()

    def latest_arrivals(
        self, project: str, count_max: int
    ) -> tuple[list[StoredEvent] | None, list[ReceivedPayment] | None]:
        """Return the events and the payments received last; None for those that cannot be read now."""
        events = self._begin(latest_events(self._parts, project, count_max))
        payments = self._begin(latest_payments(self._parts, project, count_max))
        return _result_of(events), _result_of(payments)

    def _begin(self, read: Coroutine[Any, Any, list[_Arrival]]) -> Future[list[_Arrival]]:
        return asyncio.run_coroutine_threadsafe(asyncio.wait_for(read, self._wait_s), self._loop)

    async def _answers_to(self, questions: Mapping[str, Question]) -> Answers:
        answers: dict[str, Answer | None] = dict.fromkeys(questions)
        for key, question in questions.items():
            answers[key] = find_cached(self._parts, question)
            await asyncio.sleep(0)  # Hundreds of questions must not block the event loop.
        missing = (questions[key] for key, answer in answers.items() if answer is None)
        surveys = surveys_of(missing, _PROJECTS_PER_READ_MAX)
        if surveys:
            reads = [asyncio.create_task(self._read(survey, answers)) for survey in surveys]
            _, late = await asyncio.wait(reads, timeout=self._wait_s)
            for read in late:
                read.cancel()
        return Answers(answers)

    async def _read(self, survey: Survey, answers: dict[str, Answer | None]) -> None:
        in_warehouse = isinstance(survey.metric.source, WarehouseSource)
        async with self._warehouse_reads if in_warehouse else self._ledger_reads:
            answers.update(await ask_survey(self._parts, survey))


def _result_of(read: Future[list[_Arrival]]) -> list[_Arrival] | None:
    try:
        return read.result()
    except (Problem, TimeoutError):
        return None
