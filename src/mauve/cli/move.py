"""`mauve move`."""

from pathlib import Path

import click

from mauve.cli.options import UsageError, data_options, settings_for
from mauve.cli.output import print_result, shown_progress


@click.command("move")
@data_options
def move(*, data: Path | None, as_json: bool) -> None:
    """Move catalog and ledger from SQLite to the PostgreSQL server at MAUVE_DATABASE_URL.

    Stop the service first. The command copies every row, compares the copy and every money metric, and then renames the
    SQLite files to *.moved. An interrupted move continues when it is run again; before its last step, nothing in the
    data directory changes.
    """
    from mauve.wiring.move import move_to_database  # noqa: PLC0415 - slow to import

    settings = settings_for(data)
    if settings.database_url is None:
        raise UsageError("MAUVE_DATABASE_URL is not set: set it to the server to move to")
    with shown_progress(as_json=as_json, format_total="{:,}".format) as progress:
        moved = move_to_database(settings, progress)
    text = f"moved {moved.rows} rows; {moved.metrics_compared} metrics are equal: start the service with these settings"
    print_result(moved, as_json=as_json, text=text)
