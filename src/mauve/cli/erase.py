"""`mauve erase-user`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mauve.cli.frame import MistakeError, answer, app_option, existing, on_data, settings_at, test_option
from mauve.control import operator

if TYPE_CHECKING:
    from mauve.maintenance.erase import Erased


@click.command("erase-user")
@app_option
@test_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.argument("user", metavar="USER")
@on_data
def erase_user(*, app: str, test: bool, yes: bool, user: str, data: Path | None, as_json: bool) -> None:
    """Erase a person from an app: everything that tells of them goes, every count and every sum stays.

    USER is what your code sends as `user`. A biller's customers have ids of their own: erase those, too.
    """
    from mauve.server.admin_client import erase_person  # noqa: PLC0415 - slow to import

    if not user:
        raise MistakeError("USER is empty: name the person as your code does")
    with existing(data) as parts:
        found = operator.find_app(parts, app)
    project = found.test_public_id if test else found.public_id
    if project is None:
        raise MistakeError("the app has no test plane: there is nothing to erase")
    if not yes:
        _confirm(user, found.name)
    erased = erase_person(settings_at(data), project, user)
    answer(erased, as_json=as_json, text=_told(erased))


def _confirm(user: str, app: str) -> None:
    if not sys.stdin.isatty():
        raise MistakeError("this cannot be undone: add --yes if you mean it")
    click.confirm(f"Erase {user!r} from {app!r}? This cannot be undone.", abort=True, err=True)


def _told(erased: "Erased") -> str:
    counts = [
        (erased.events, "events"),
        (erased.payments, "payments"),
        (erased.subscription_versions, "versions of subscriptions"),
        (erased.dead_letters, "dead letters"),
        (erased.damaged_records, "damaged records"),
    ]
    lines = ["made anonymous: " + ", ".join(f"{count} {what}" for count, what in counts)]
    if not erased.queue_is_clean:
        lines.append(
            "the queue's files are overwritten as events come in; at once if you repeat this with mauve stopped"
        )
    if not erased.journal_is_clean:
        lines.append(
            "ledger.db-wal still holds what was erased, because something reads the ledger without end, "
            "such as a backup: repeat this when it has ended"
        )
    return "\n".join(lines)
