"""`mauve export` and `mauve erase-user`."""

import os
import sys
from contextlib import AbstractContextManager, closing, nullcontext
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import click

from mauve.cli.options import (
    UsageError,
    app_option,
    confirm,
    data_options,
    open_existing,
    settings_for,
    stop_on_sigterm,
    test_option,
    yes_option,
)
from mauve.cli.output import counted, counts_of, print_result, shown_progress
from mauve.control import operator
from mauve.core.app import App

if TYPE_CHECKING:
    from mauve.maintenance.erase import Erased
    from mauve.maintenance.export import Exported, ExportOutput

_DAY: Final = click.DateTime(formats=["%Y-%m-%d"])


@click.command()
@app_option
@test_option
@click.option("--format", "format_", type=click.Choice(["jsonl", "parquet"]), default="jsonl", show_default=True)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="A file, compressed if it ends in .gz; for Parquet, a new folder. Default: standard output.",
)
@click.option("--force", is_flag=True, help="Replace the output if it exists.")
@click.option("--from", "first", type=_DAY, metavar="DAY", help="The first UTC day, YYYY-MM-DD.")
@click.option("--to", "last", type=_DAY, metavar="DAY", help="The last UTC day, inclusive.")
@click.option("--user", metavar="USER", help="Only data about this user.")
@data_options
def export(
    *,
    app: str,
    test: bool,
    format_: Literal["jsonl", "parquet"],
    output: Path | None,
    force: bool,
    first: datetime | None,
    last: datetime | None,
    user: str | None,
    data: Path | None,
    as_json: bool,
) -> None:
    """Export an app's events, payments and subscription versions, as lines of JSON or as Parquet files.

    The export contains everything accepted before the command began, each row once. A file or folder gets its name
    when it is complete. The service may be running.
    """
    from mauve.maintenance.export import export as write_export  # noqa: PLC0415 - slow to import
    from mauve.server.admin_client import store_operations  # noqa: PLC0415
    from mauve.stores.export import Chosen  # noqa: PLC0415
    from mauve.wiring.maintenance import open_ledger_export  # noqa: PLC0415

    _check_options(format_, output, user, as_json=as_json)
    days = _day(first, date.min), _day(last, date.max)
    if days[0] > days[1]:
        raise UsageError("--from is after --to: swap them")
    _, project = _app_and_project(data, app, test=test)
    chosen = Chosen(project, *days, user)
    settings = settings_for(data)
    stop_on_sigterm()
    with (
        _output(format_, output, may_replace=force) as target,
        store_operations(settings) as events,
        closing(open_ledger_export(settings)) as ledger,
        shown_progress(as_json=as_json, format_total="{:,}".format) as progress,
    ):
        exported = write_export(chosen, events, ledger, target, progress)
    if as_json:
        print_result(exported, as_json=True, text="")
    else:
        click.echo(_summary(exported), err=True)


def _check_options(format_: str, output: Path | None, user: str | None, *, as_json: bool) -> None:
    if user == "":
        raise UsageError("--user is empty: give the value that your code sends as user")
    if output is None and format_ == "parquet":
        raise UsageError("Parquet files go into a folder: name it with --output")
    if output is None and as_json:
        raise UsageError("--json prints the counts on standard output: name a file with --output")


def _day(given: datetime | None, default: date) -> date:
    return default if given is None else given.date()


def _app_and_project(data: Path | None, app: str, *, test: bool) -> tuple[App, str]:
    with open_existing(data) as parts:
        found = operator.find_app(parts, app)
    project = found.test_public_id if test else found.public_id
    if project is None:
        raise UsageError("the app has no test environment, so there is nothing to export or erase")
    return found, project


def _output(
    format_: Literal["jsonl", "parquet"], path: Path | None, *, may_replace: bool
) -> "AbstractContextManager[ExportOutput]":
    from mauve.maintenance.export import json_output, open_output  # noqa: PLC0415 - slow to import

    if path is None:
        return nullcontext(json_output(_print))
    return open_output(path, as_parquet=format_ == "parquet", may_replace=may_replace)


def _print(lines: bytes) -> None:
    try:
        sys.stdout.buffer.write(lines)
        sys.stdout.buffer.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python would retry the write at exit.
        if isinstance(error, BrokenPipeError):  # as with `mauve export … | head`
            raise SystemExit(1) from None
        from mauve.maintenance.export import not_written  # noqa: PLC0415 - slow to import

        raise not_written("standard output", error) from None


def _summary(exported: "Exported") -> str:
    return "exported " + ", ".join(
        (
            counted(exported.events, "event"),
            counted(exported.payments, "payment"),
            counted(exported.subscription_versions, "subscription version"),
        )
    )


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
    found, project = _app_and_project(data, app, test=test)
    confirm(f"Erase {user!r} from {found.name!r}? This cannot be undone.", yes=yes)
    with store_operations(settings_for(data)) as stores:
        erased = stores.erase_user(project, user)
    print_result(erased, as_json=as_json, text=_erased_text(erased))


def _erased_text(erased: "Erased") -> str:
    lines = [f"anonymized: {counts_of(erased)}"]
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
