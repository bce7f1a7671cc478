"""The digest: the numbers of all apps in the last days, each beside those of the days before."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from mauve.alerts.channels import Draft, Fact
from mauve.alerts.evaluate import Measure
from mauve.alerts.rules import amount_text
from mauve.alerts.schedule import Cadence
from mauve.core.app import App
from mauve.core.organization import Organization
from mauve.core.text import days
from mauve.core.window import Window
from mauve.metrics.questions import Question
from mauve.query.numbers import Answers

APPS_MAX: Final = 30  # those with the most users
_CURRENCIES_MAX: Final = 3  # of each app
_LABELS: Final = {"mau": "Active users", "signups": "Signups", "revenue": "Gross revenue", "mrr": "MRR"}


def questions_about(apps: Iterable[App], window: Window) -> dict[App, list[Question]]:
    return {
        app: [Measure(app.public_id, metric, each).question for metric in _LABELS for each in (window, window.before)]
        for app in apps
    }


def is_complete(asked: Mapping[App, Iterable[Question]], answers: Answers) -> bool:
    """Return whether every number could be read."""
    return all(answers.current_rows(question) is not None for own in asked.values() for question in own)


def draft_digest(
    organization: Organization,
    apps: Sequence[App],
    cadence: Cadence,
    window: Window,
    answers: Answers,
    *,
    is_early: bool,
) -> Draft:
    """Return the digest, with a note if events are missing in it."""

    def rank(app: App) -> tuple[int, str, str]:
        users = Measure(app.public_id, "mau", window).amounts(answers) or {None: 0}
        return -users[None], app.name.casefold(), app.app_id

    reason = f"You chose a {cadence} digest on the alerts page."
    if len(apps) > APPS_MAX:
        reason += f" It lists the {APPS_MAX} of {len(apps)} apps with the most users."
    if is_early:
        reason += " Events are still being loaded, so the numbers of users may be too low."
    return Draft(
        kind="digest",
        title=f"{cadence.capitalize()} digest of {organization.name}: {days(window)}",
        reason=reason,
        facts=[
            fact
            for app in sorted(apps, key=rank)[:APPS_MAX]
            for metric in _LABELS
            for fact in _facts(app, metric, window, answers)
        ],
        link=f"/?from={window.first}&to={window.last}",
    )


def _facts(app: App, metric: str, window: Window, answers: Answers) -> list[Fact]:
    label, link = _LABELS[metric], f"/apps/{app.app_id}?from={window.first}&to={window.last}"
    now, before = (Measure(app.public_id, metric, each).amounts(answers) for each in (window, window.before))
    if now is None or before is None:
        return [Fact(app.name, label, "not readable now", None, link)]
    largest = sorted(now.keys() | before.keys(), key=lambda each: (-now.get(each, 0), each or ""))
    return [
        Fact(
            app.name,
            label,
            amount_text(metric, now.get(currency, 0), currency),
            amount_text(metric, before.get(currency, 0), currency),
            link,
        )
        for currency in largest[:_CURRENCIES_MAX]
    ]
