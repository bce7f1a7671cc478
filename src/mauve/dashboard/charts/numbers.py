"""The way from a page to the numbers: the very questions that the API answers, through the same cache.

Pages are made in threads and questions are answered in the event loop; here one waits for the other.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from mauve.core.problems import Problem
from mauve.metrics.questions import Question, Survey, surveys_of
from mauve.metrics.sources import WarehouseSource
from mauve.query.ask import Answer, Freshness, ask_survey, find_cached, latest_events
from mauve.query.parts import QueryParts
from mauve.stores.warehouse import StoredEvent

# Of all pages together: a store takes 64 readings at once, and most of them are the API's.
_READINGS_MAX: Final = 16
_PROJECTS_MAX: Final = 100  # in one reading: each may need a sketch of 100 KB for each day

_decoder: Final = msgspec.json.Decoder()


class Answers:
    """What was answered. A question without an answer has no rows: the page says so and shows the others."""

    def __init__(self, answers: Mapping[str, Answer | None]) -> None:
        self._answers = answers

    def rows(self, question: Question) -> list[dict[str, Any]] | None:
        answer = self._answers[question.key]
        return None if answer is None else _decoder.decode(answer.body)["data"]

    @property
    def read_at(self) -> int | None:
        """Return how old the oldest answer is, as the moment at which it was read."""
        return min((answer.read_at for answer in self._answers.values() if answer is not None), default=None)

    @property
    def is_stale(self) -> bool:
        return any(answer.freshness is Freshness.STALE for answer in self._answers.values() if answer is not None)

    @property
    def is_complete(self) -> bool:
        return None not in self._answers.values()


class Numbers:
    """Asked from any thread but the event loop's. What pages read spends nobody's allowance."""

    def __init__(self, parts: QueryParts, loop: asyncio.AbstractEventLoop, wait_s: float) -> None:
        self._parts = parts
        self._loop = loop
        self._wait_s = wait_s
        # Apart, so that one store that hangs does not hold up what is read from the other.
        self._warehouse_room = asyncio.Semaphore(_READINGS_MAX)
        self._ledger_room = asyncio.Semaphore(_READINGS_MAX)

    def ask(self, questions: Iterable[Question]) -> Answers:
        """Ask all at once. What is not answered in time goes on being read, for whoever asks next."""
        asked = {question.key: question for question in questions}
        return asyncio.run_coroutine_threadsafe(self._readings(asked), self._loop).result()

    def latest_events(self, project: str, events_max: int) -> list[StoredEvent] | None:
        """Return the events that arrived last; None if they cannot be read now."""
        reading = latest_events(self._parts, project, events_max)
        try:
            return asyncio.run_coroutine_threadsafe(asyncio.wait_for(reading, self._wait_s), self._loop).result()
        except (Problem, TimeoutError):
            return None

    async def _readings(self, asked: Mapping[str, Question]) -> Answers:
        answers: dict[str, Answer | None] = dict.fromkeys(asked)
        for key, question in asked.items():
            answers[key] = find_cached(self._parts, question)
            await asyncio.sleep(0)  # Hundreds of them must not keep others from their turn.
        missing = (asked[key] for key, answer in answers.items() if answer is None)
        surveys = surveys_of(missing, _PROJECTS_MAX)
        if surveys:
            reading = [asyncio.create_task(self._read(survey, answers)) for survey in surveys]
            _, late = await asyncio.wait(reading, timeout=self._wait_s)
            for each in late:
                each.cancel()
        return Answers(answers)

    async def _read(self, survey: Survey, answers: dict[str, Answer | None]) -> None:
        is_counted = isinstance(survey.metric.source, WarehouseSource)
        async with self._warehouse_room if is_counted else self._ledger_room:
            answers.update(await ask_survey(self._parts, survey))
