"""The digest: the numbers of all apps in the last days, each beside those of the days before."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from mauve.alerts.compose import Draft
from mauve.alerts.figures import Answers, Measure, amount_text
from mauve.alerts.notice import Fact
from mauve.alerts.schedule import Cadence
from mauve.core.app import App
from mauve.core.organization import Organization
from mauve.core.text import days
from mauve.core.window import Window
from mauve.metrics.questions import Question

APPS_MAX: Final = 30  # those with the most users
_CURRENCIES_MAX: Final = 3  # of each app
_LABELS: Final = {"mau": "Active users", "signups": "Signups", "revenue": "Gross revenue", "mrr": "MRR"}
_UNREADABLE: Final = "not readable now"


class Compared(NamedTuple):
    """The amounts of an app in two periods; None if one of them cannot be read now."""

    now: dict[str | None, int] | None
    before: dict[str | None, int] | None


def questions_about(apps: Iterable[App], window: Window) -> dict[App, list[Question]]:
    return {
        app: [Measure(app.public_id, metric, each).question for metric in _LABELS for each in (window, window.before)]
        for app in apps
    }


def is_complete(asked: Mapping[App, Iterable[Question]], answers: Answers) -> bool:
    """Return whether every number could be read."""
    return all(answers.current_rows(question) is not None for own in asked.values() for question in own)


def draft_digest(
    organization: Organization, apps: Sequence[App], cadence: Cadence, window: Window, answers: Answers
) -> Draft:
    compared = {app: {metric: _compared(app, metric, window, answers) for metric in _LABELS} for app in apps}
    ranked = sorted(apps, key=lambda app: (-_users(compared[app]["mau"]), app.name.casefold(), app.app_id))
    facts = [fact for app in ranked[:APPS_MAX] for fact in _facts(app, compared[app], window)]
    return Draft(
        kind="digest",
        title=f"{cadence.capitalize()} digest of {organization.name}: {days(window)}",
        reason=f"You chose a {cadence} digest on the alerts page.{_left_out(len(apps))}",
        facts=facts,
        path=f"/?from={window.first}&to={window.last}",
    )


def marked_early(draft: Draft) -> Draft:
    """Return the digest with a note that events are missing in it."""
    note = "Events are still being loaded, so the numbers of users may be too low."
    return msgspec.structs.replace(draft, reason=f"{draft.reason} {note}")


def _left_out(apps: int) -> str:
    return "" if apps <= APPS_MAX else f" It lists the {APPS_MAX} of {apps} apps with the most users."


def _compared(app: App, metric: str, window: Window, answers: Answers) -> Compared:
    now, before = (Measure(app.public_id, metric, each).amounts(answers) for each in (window, window.before))
    return Compared(now, before)


def _users(compared: Compared) -> int:
    return 0 if compared.now is None else compared.now[None]


def _facts(app: App, compared: dict[str, Compared], window: Window) -> list[Fact]:
    link = f"/apps/{app.app_id}?from={window.first}&to={window.last}"
    return [fact for metric, each in compared.items() for fact in _metric_facts(app, metric, each, link)]


def _metric_facts(app: App, metric: str, compared: Compared, link: str) -> list[Fact]:
    now, before = compared
    if now is None or before is None:
        return [Fact(app.name, _LABELS[metric], _UNREADABLE, None, link)]
    largest = sorted(now.keys() | before.keys(), key=lambda each: (-now.get(each, 0), each or ""))
    return [
        Fact(
            app.name,
            _LABELS[metric],
            amount_text(metric, now.get(currency, 0), currency),
            amount_text(metric, before.get(currency, 0), currency),
            link,
        )
        for currency in largest[:_CURRENCIES_MAX]
    ]
