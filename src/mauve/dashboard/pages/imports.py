"""The imports page of an app: imported files, and figures of other tools. Also: which days an import reconstructed."""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Final, NamedTuple

from starlette.responses import Response

from mauve.core.window import today_at
from mauve.dashboard.charts.periods import Period
from mauve.dashboard.context import MemberContext, shown_project
from mauve.dashboard.rendering import project_page
from mauve.stores import StoreUnavailableError
from mauve.stores.imports import Import

_IMPORTS_MAX: Final = 1_000  # of all shown apps
IMPORTS_SHOWN: Final = 100
FIGURES_SHOWN: Final = 500


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


def show_imports(context: MemberContext) -> Response:
    app = context.app()
    project = shown_project(context, app)
    imports = context.parts.imports.latest([project], IMPORTS_SHOWN)
    figures = context.parts.imports.figures([project], FIGURES_SHOWN)
    return project_page(
        context,
        "imports.html",
        app,
        imports=imports,
        figures=figures,
        sources={each.number: each.format for each in imports},
        imports_shown=IMPORTS_SHOWN,
        figures_shown=FIGURES_SHOWN,
    )
