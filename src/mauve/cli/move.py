"""`mauve move`."""

from pathlib import Path

import click

from mauve.cli.options import UsageError, data_options, settings_for
from mauve.cli.output import print_result, shown_progress


@click.command("move")
@data_options
def move(*, data: Path | None, as_json: bool) -> None:
    """Move an installation from files to the servers at MAUVE_DATABASE_URL and MAUVE_WAREHOUSE_URL.

    Stop the service first. The command copies catalog and ledger to PostgreSQL and the events to ClickHouse, whichever
    of them the settings name, compares the counts of every table and the metrics of every project, and then renames the
    files to *.moved. An interrupted move continues when it is run again; before its last step, nothing in the data
    directory changes. The log needs no move: set MAUVE_STREAM_URL, and what waits in files is loaded first.
    """
    from mauve.wiring.move import move_to_servers  # noqa: PLC0415 - slow to import

    settings = settings_for(data)
    if settings.database_url is None and settings.warehouse_url is None:
        raise UsageError("set MAUVE_DATABASE_URL, MAUVE_WAREHOUSE_URL or both to the servers to move to")
    with shown_progress(as_json=as_json, format_total="{:,}".format) as progress:
        moved = move_to_servers(settings, progress)
    text = (
        f"moved {moved.rows} rows; {moved.metrics_compared} metrics are equal: start the service with these settings, "
        f"and on {settings.data}, so that it loads what waits in the log there"
    )
    print_result(moved, as_json=as_json, text=text)
