"""`mauve erase-user`."""

from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mauve.cli.options import (
    UsageError,
    app_option,
    confirm,
    data_options,
    open_existing,
    settings_for,
    test_option,
    yes_option,
)
from mauve.cli.output import counted, print_result
from mauve.control import operator

if TYPE_CHECKING:
    from mauve.maintenance.erase import Erased


@click.command("erase-user")
@app_option
@test_option
@yes_option
@click.argument("user", metavar="USER")
@data_options
def erase_user(*, app: str, test: bool, yes: bool, user: str, data: Path | None, as_json: bool) -> None:
    """Erase a user from an app: remove everything that identifies them; counts and sums do not change.

    USER is the value that your code sends as `user`. Billers have their own customer ids: erase those, too.
    """
    from mauve.server.admin_client import store_operations  # noqa: PLC0415 - slow to import

    if not user:
        raise UsageError("USER is empty: give the value that your code sends as user")
    with open_existing(data) as parts:
        found = operator.find_app(parts, app)
    project = found.test_public_id if test else found.public_id
    if project is None:
        raise UsageError("the app has no test environment: there is nothing to erase")
    confirm(f"Erase {user!r} from {found.name!r}? This cannot be undone.", yes=yes)
    with store_operations(settings_for(data)) as stores:
        erased = stores.erase_user(project, user)
    print_result(erased, as_json=as_json, text=_summary(erased))


def _summary(erased: "Erased") -> str:
    counts = [
        (erased.events, "event"),
        (erased.payments, "payment"),
        (erased.subscription_versions, "subscription version"),
        (erased.dead_letters, "dead letter"),
        (erased.damaged_records, "damaged record"),
    ]
    lines = ["anonymized: " + ", ".join(starmap(counted, counts))]
    if not erased.queue_is_clean:
        lines.append(
            "the queue's files hold the user until new events overwrite them; to overwrite them now, "
            "stop the service and run this command again"
        )
    if not erased.journal_is_clean:
        lines.append(
            "ledger.db-wal still holds the user, because a long read such as a backup is in progress: "
            "run this command again once it has finished"
        )
    return "\n".join(lines)
