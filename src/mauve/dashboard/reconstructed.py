"""Which days of MRR were reconstructed by an import, so that pages can mark them as approximate."""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Final, NamedTuple

from mauve.core.window import today_at
from mauve.dashboard.charts.periods import Period
from mauve.dashboard.context import MemberContext
from mauve.stores import StoreUnavailableError
from mauve.stores.imports import Import

_IMPORTS_MAX: Final = 1_000  # of all shown apps


class Reconstructed(NamedTuple):
    """The days of one app whose MRR is approximate."""

    first: date
    last: date  # the day of the latest import: webhooks report what changes afterwards
    name: str  # of the latest import


def reconstructed_in(context: MemberContext, projects: Sequence[str], period: Period) -> dict[str, Reconstructed]:
    """Return the reconstructed days by project, if any are in the period or the previous one.

    While the ledger is unavailable, mark nothing: the page says that it shows the last known numbers.
    """
    try:
        found = context.parts.imports.approximate(projects, _IMPORTS_MAX)
    except StoreUnavailableError:
        return {}
    return {
        project: days
        for project, days in _by_project(found).items()
        if days.first <= period.window.last and days.last >= period.before.first
    }


def _by_project(imports: Sequence[Import]) -> Mapping[str, Reconstructed]:
    """Combine the days of each project's imports, given latest first."""
    united: dict[str, Reconstructed] = {}
    for each in imports:
        own = Reconstructed(date.fromisoformat(each.first_day), today_at(each.began_at), each.name)
        latest = united.get(each.project, own)
        united[each.project] = latest._replace(first=min(own.first, latest.first), last=max(own.last, latest.last))
    return united
