"""Choose apps and read several metrics in one call: check the cost first, stop at the first refusal, report both."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from mauve.agents.arguments import APPS_MAX
from mauve.agents.reader import Allowance, ListedApp, Query, Reading, RefusedError
from mauve.core.credential import Scope

if TYPE_CHECKING:
    from mauve.agents.http_reader import HttpReader

READS_UNASKED_MAX: Final = 8
"""A call that needs more reads than this is made only with `spend`."""
_AT_ONCE: Final = 4
_UNCACHED_AGE_S: Final = 30  # An answer read while loading is behind is reused for one flush interval at most.


class Chosen(NamedTuple):
    names: dict[str, str | None]  # by project; None: the token cannot list apps
    rest: Mapping[str, object]  # how to continue, if there are more apps


async def choose_apps(
    reader: "HttpReader", allowance: Allowance, projects: Sequence[str] | None, after: str | None
) -> Chosen:
    if Scope.APPS_READ not in allowance.scopes:
        if projects is None:
            raise RefusedError("this token does not carry the scope apps:read: name the projects in apps")
        return Chosen(dict.fromkeys(projects), {})
    listed = await reader.apps()
    if projects is None:
        shown, rest = page_of(listed, after, APPS_MAX)
        return Chosen({app.public_id: app.name for app in shown}, rest)
    names = {app.public_id: app.name for app in listed}
    unknown = [project for project in projects if project not in names]
    if unknown:
        raise RefusedError("unknown project: list_apps shows those of this organization")
    return Chosen({project: names[project] for project in projects}, {})


def page_of(
    listed: Sequence[ListedApp], after: str | None, apps_max: int
) -> tuple[Sequence[ListedApp], Mapping[str, object]]:
    """Return the apps after the one named, and how to continue if there are more."""
    ids = [app.public_id for app in listed]
    if after is not None and after not in ids:
        raise RefusedError("no app has the id in after: leave it out to begin again")
    first = 0 if after is None else ids.index(after) + 1
    shown = listed[first : first + apps_max]
    left = len(listed) - first - len(shown)
    return shown, {"apps_left": left, "next_after": shown[-1].public_id} if left else {}


@dataclass(slots=True)
class Readings:
    """What was read until the first refusal, if there was one."""

    found: dict[Query, Reading] = field(default_factory=dict)
    refusal: RefusedError | None = None
    spent: int = 0


def check_cost(queries: Sequence[Query], spend: int | None, allowance: Allowance) -> None:
    """Raise, before anything is read, if the allowance does not cover the cost or the caller has not agreed to it."""
    cost = len(queries)
    scans = sum(query.is_raw_scan for query in queries)
    for needed, left, what in (
        (cost, allowance.queries_left, "queries"),
        (scans, allowance.raw_scans_left, "raw scans"),
    ):
        if needed > left:
            advice = "stop until then" if not left else "name fewer apps, or stop until then"
            text = f"up to {needed} {what} are needed, and {left} are left until {allowance.resets_at}: {advice}"
            raise RefusedError(f"{text}. Nothing was read or spent", stop_until=None if left else allowance.resets_at)
    if cost > (READS_UNASKED_MAX if spend is None else spend):
        raise CostError(cost, allowance)


class CostError(RefusedError):
    """The call costs more than the caller has agreed to."""

    def __init__(self, cost: int, allowance: Allowance) -> None:
        super().__init__(f"nothing was read: this call reads up to {cost} metrics, repeat it with spend={cost}")
        self._cost, self._left = cost, allowance.queries_left

    @property
    def facts(self) -> dict[str, object]:
        cost = {"queries_max": self._cost, "queries_left": self._left, "cached_answers_cost": 0}
        return {"needs_spend": self._cost, "cost": cost, "next": str(self)}


async def read_all(reader: "HttpReader", queries: Iterable[Query]) -> Readings:
    """Read a few at a time. After a refusal begin no other, but finish those that may already be counted."""
    asked = dict.fromkeys(queries)
    reader.reserve(len(asked))
    readings, waiting = Readings(), iter(asked)

    async def read_some() -> None:
        for query in waiting:
            if readings.refusal is not None:
                return
            try:
                reading = readings.found[query] = await reader.metric(query)
                readings.spent += reading.is_spent
            except RefusedError as refusal:
                readings.refusal = readings.refusal or refusal
                readings.spent += refusal.spent

    async with asyncio.TaskGroup() as group:
        for _ in range(_AT_ONCE):
            group.create_task(read_some())
    if readings.refusal is not None and not readings.found:
        readings.refusal.spent = readings.spent
        raise readings.refusal
    return readings


def receipt(readings: Readings, allowance: Allowance) -> dict[str, object]:
    """Return where the numbers come from, how old they are, and what they cost."""
    found = readings.found.values()
    facts: dict[str, object] = {
        "cache": dict(Counter(reading.cache for reading in found)),
        "age_s_max": max((_age_s(reading, allowance) for reading in found), default=0),
        "spent": readings.spent,
        "queries_left": max(0, allowance.queries_left - readings.spent),
    }
    if readings.refusal is not None:
        facts["stopped"] = {**readings.refusal.facts, "note": "numbers that are null were not read"}
    return facts


def _age_s(reading: Reading, allowance: Allowance) -> int:
    ages: Mapping[str, int] = {"miss": 0, "hit": allowance.cached_s, "uncached": _UNCACHED_AGE_S}
    return reading.age_s if reading.age_s is not None else ages.get(reading.cache, allowance.cached_s)
