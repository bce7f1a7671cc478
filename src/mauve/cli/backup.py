"""`mauve backup` and `mauve restore`."""

from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import click

from mauve.cli.options import UsageError, data_options, settings_for
from mauve.cli.output import print_result, shown_progress
from mauve.config import Settings
from mauve.maintenance.disk_space import format_bytes

_file_argument = click.argument("file", metavar="FILE", type=click.Path(path_type=Path))


@click.command()
@_file_argument
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@data_options
def backup(*, file: Path, force: bool, data: Path | None, as_json: bool) -> None:
    """Back up all data into one file, whether or not the service is running.

    The file contains everything acknowledged when the command began, and the master key if it is in the data directory.
    """
    from mauve.core.clock import SystemClock  # noqa: PLC0415
    from mauve.maintenance.backup import check_target, write_backup  # noqa: PLC0415
    from mauve.server.admin_client import pause_loader  # noqa: PLC0415
    from mauve.wiring.maintenance import backup_sources  # noqa: PLC0415 - slow to import
    from mauve.wiring.paths import has_data  # noqa: PLC0415 - slow to import

    settings = settings_for(data)
    if not has_data(settings):
        raise UsageError(f"there is no data in {settings.data}: check --data")
    _refuse_servers(settings)
    check_target(file, may_replace=force)
    sources = backup_sources(settings, lambda: pause_loader(settings))
    with shown_progress(as_json=as_json) as progress:
        made = write_backup(sources, file, SystemClock().now_ms(), version("mauve"), progress)
    text = f"{made.file}: {format_bytes(made.bytes)}, {made.events} events; {_key_notice(has_key=made.has_master_key)}"
    print_result(made, as_json=as_json, text=text)


def _refuse_servers(settings: Settings) -> None:
    """Raise if any engine is on a server, and say how to back up each of them, in this order."""
    ways = {
        "pg_dump for PostgreSQL": settings.database_url,
        "BACKUP for ClickHouse": settings.warehouse_url,
        "'nats stream backup' for NATS": settings.stream_url,
    }
    used = [way for way, url in ways.items() if url is not None]
    if used:
        files = "" if len(used) == len(ways) else ", and copy the data directory"
        raise UsageError(f"engines are on servers: stop the service, use {', then '.join(used)}{files}")


def _key_notice(*, has_key: bool) -> str:
    if has_key:
        return "with the master key, which decrypts your webhook secrets: keep the file safe"
    return "without the master key, which is in MAUVE_MASTER_KEY: back it up separately"


@click.command()
@_file_argument
@data_options
def restore(*, file: Path, data: Path | None, as_json: bool) -> None:
    """Restore a backup into a new or empty data directory."""
    from mauve.maintenance.restore import restore as restore_backup  # noqa: PLC0415
    from mauve.wiring.maintenance import restore_steps  # noqa: PLC0415 - slow to import

    settings = settings_for(data)
    with shown_progress(as_json=as_json) as progress:
        restored = restore_backup(file, settings.data, restore_steps(), progress)
    made_at = datetime.fromtimestamp(restored.created_at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    key = "" if restored.has_master_key else "; the master key is not in the backup: set MAUVE_MASTER_KEY"
    print_result(restored, as_json=as_json, text=f"{restored.data}: as of {made_at}, {restored.events} events{key}")
