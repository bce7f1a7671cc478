"""Choose the apps of a call: those named, or all that the token can list, a bounded number at a time."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from mauve.agents.allowance import Allowance
from mauve.agents.arguments import APPS_MAX
from mauve.agents.reader import ListedApp, Reader, RefusedError
from mauve.core.credential import Scope


class Chosen(NamedTuple):
    names: dict[str, str | None]  # by project; None: the token cannot list apps
    rest: Mapping[str, object]  # how to continue, if there are more apps


async def choose_apps(
    reader: Reader, allowance: Allowance, projects: Sequence[str] | None, after: str | None
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
