"""`mauve move`."""

from pathlib import Path

import click

from mauve.cli.options import UsageError, data_options, settings_for
from mauve.cli.output import print_result, shown_progress


@click.command("move")
@data_options
def move(*, data: Path | None, as_json: bool) -> None:
    """Move an installation from local files to the servers that the settings name.

    Stop the service first. The command loads the local log, copies the catalog and ledger to PostgreSQL and the events
    to ClickHouse, compares the counts of every table and the metrics of every project, and then renames the files to
    *.moved. It moves only engines whose setting names a server: MAUVE_DATABASE_URL, MAUVE_WAREHOUSE_URL,
    MAUVE_STREAM_URL. Repeat the command to resume an interrupted move. Several machines can serve the installation once
    all three name servers.
    """
    from mauve.wiring.move import move_to_servers  # noqa: PLC0415 - slow to import

    settings = settings_for(data)
    if settings.database_url is None and settings.warehouse_url is None and settings.stream_url is None:
        raise UsageError("set MAUVE_DATABASE_URL, MAUVE_WAREHOUSE_URL or MAUVE_STREAM_URL to the servers to move to")
    with shown_progress(as_json=as_json, format_total="{:,}".format) as progress:
        moved = move_to_servers(settings, progress)
    text = f"moved {moved.rows} rows; {moved.metrics_compared} metrics are equal: start the service with these settings"
    print_result(moved, as_json=as_json, text=text)
