"""`mauve backup`, `mauve restore` and `mauve move`."""

from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from mauve.cli.options import UsageError, data_options, settings_for, stop_on_sigterm
from mauve.cli.output import print_result, shown_progress, table, utc_time
from mauve.config import KEY_ELSEWHERE, Settings
from mauve.core.window import today_at
from mauve.maintenance.disk_space import format_bytes

if TYPE_CHECKING:
    from mauve.maintenance.encryption import BackupKeys
    from mauve.wiring.server_backup import ReplacedStream

_DESTINATION: Final = "Disk('backups', '{}')"


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


class _BackupGroup(click.Group):
    """`mauve backup list …`; anything else is a backup to make."""

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        place = _place_of_word(arguments)
        if place is None or arguments[place] != "list":
            return super().parse_args(context, ["make", *arguments])
        return super().parse_args(context, ["list", *arguments[:place], *arguments[place + 1 :]])


def _place_of_word(arguments: list[str]) -> int | None:
    """Return the index of the first argument that is neither an option nor its value; None after `--`."""
    options = [each for each in make_backup.params if isinstance(each, click.Option) and not each.is_flag]
    with_value = {name for option in options for name in option.opts}
    is_value = False
    for place, argument in enumerate(arguments):
        if argument == "--":
            return None
        if not is_value and not argument.startswith("-"):
            return place
        is_value = argument in with_value
    return None


@click.group(cls=_BackupGroup)
def backup() -> None:
    """Back up all data into a file or a bucket, or list the backups there."""


@backup.command("make")
@click.argument("target", metavar="[TARGET]", required=False)
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@click.option("--encrypt", is_flag=True, help="Encrypt it with MAUVE_MASTER_KEY, which is needed to restore it.")
@click.option(
    "--keep",
    type=click.IntRange(1, 1000),
    metavar="N",
    help="In a bucket: once this backup is complete, remove all but the newest N. Without TARGET: MAUVE_BACKUP_KEEP.",
)
@click.option("--plan", is_flag=True, help="On servers: print the commands that back up this installation.")
@click.option(
    "--warehouse-to",
    default=_DESTINATION,
    metavar="DESTINATION",
    help=f"On servers: where ClickHouse writes its part; {{}} is TARGET's name. Default: {_DESTINATION}.",
)
@data_options
def make_backup(
    *,
    target: str | None,
    force: bool,
    encrypt: bool,
    keep: int | None,
    plan: bool,
    warehouse_to: str,
    data: Path | None,
    as_json: bool,
) -> None:
    """Back up all data into one file or object, whether or not the service is running.

    TARGET is a file, or s3://BUCKET/PREFIX, where each backup gets a unique name. The default is MAUVE_BACKUP_URL, as
    for scheduled backups. 'mauve backup list PLACE' lists the backups in a bucket or directory.

    A backup contains everything acknowledged when the command began, and the master key if it is in the data directory.

    If every engine is on a server, --plan prints the commands to back up and restore them: pg_dump into the folder
    TARGET, and BACKUP, which makes ClickHouse write the events to DESTINATION.
    """
    from mauve.wiring.paths import has_data  # noqa: PLC0415 - slow to import

    settings = settings_for(data)
    if not has_data(settings):
        raise UsageError(f"there is no data in {settings.data.absolute()}: check --data")
    servers = [url is not None for url in (settings.database_url, settings.warehouse_url, settings.stream_url)]
    if all(servers):
        if not plan:
            raise UsageError(
                "every engine is on a server with its own backup tool: 'mauve backup --plan' prints the commands"
            )
        _print_plan(settings, target, warehouse_to, as_json=as_json)
    elif any(servers):
        raise UsageError(_advice_for_mixed_engines(settings))
    elif plan:
        raise UsageError("--plan is for engines on servers, but all engines are in files: run 'mauve backup FILE'")
    else:
        _back_up_files(settings, target, force=force, encrypt=encrypt, keep=keep, as_json=as_json)


def _back_up_files(
    settings: Settings, given: str | None, *, force: bool, encrypt: bool, keep: int | None, as_json: bool
) -> None:
    from mauve.core.clock import SystemClock  # noqa: PLC0415
    from mauve.maintenance.backup import check_target, write_backup  # noqa: PLC0415
    from mauve.maintenance.stored_backups import tidy_up  # noqa: PLC0415
    from mauve.server.admin_client import pause_loader  # noqa: PLC0415
    from mauve.wiring.backups import file_target, is_bucket, open_backup_store, target_in  # noqa: PLC0415
    from mauve.wiring.maintenance import backup_sources  # noqa: PLC0415 - slow to import

    place = given or settings.backup.url
    if not place:
        raise UsageError("name a FILE or s3://BUCKET/PREFIX, or set MAUVE_BACKUP_URL")
    if given and keep and not is_bucket(place):
        raise UsageError("--keep is for a bucket: name s3://BUCKET/PREFIX, or set MAUVE_BACKUP_URL to a directory")
    keys = _keys_for_encryption(settings) if encrypt or settings.backup.encrypts else None
    now_ms, store, name = SystemClock().now_ms(), None, ""
    if given and not is_bucket(place):
        check_target(Path(place), may_replace=force)
        target = file_target(settings, Path(place), keys)
    else:
        store = open_backup_store(settings.backup, place)
        name, target = target_in(settings, place, store, now_ms, keys)
    sources = backup_sources(settings, lambda: pause_loader(settings))
    stop_on_sigterm()
    with shown_progress(as_json=as_json) as progress:
        made = write_backup(sources, target, now_ms, version("mauve"), progress)
    if store is not None:
        tidy_up(store, name, keep if given else keep or settings.backup.keep, now_ms)
    notice = _encryption_notice() if keys else _key_notice(has_key=made.has_master_key)
    text = f"{made.file}: {format_bytes(made.bytes)}, {made.events} events; {notice}"
    print_result(made, as_json=as_json, text=text)


def _keys_for_encryption(settings: Settings) -> "BackupKeys":
    """Return the keys derived from the master key. A key stored only with the data would be lost with it."""
    from mauve.maintenance.encryption import backup_keys  # noqa: PLC0415
    from mauve.wiring.bootstrap import check_vault  # noqa: PLC0415 - slow to import

    if settings.master_key is None:
        raise UsageError(f"--encrypt needs MAUVE_MASTER_KEY: {KEY_ELSEWHERE}")
    check_vault(settings)  # A backup must not depend on a mistyped key.
    return backup_keys(settings.master_key)


@backup.command("list")
@click.argument("place", metavar="[PLACE]", required=False)
@data_options
def list_backups(*, place: str | None, data: Path | None, as_json: bool) -> None:
    """List the backups in a bucket (s3://BUCKET/PREFIX) or a directory, newest first."""
    from mauve.maintenance.stored_backups import backups_listed  # noqa: PLC0415
    from mauve.wiring.backups import open_backup_store  # noqa: PLC0415

    settings = settings_for(data)
    where = place or settings.backup.url
    if not where:
        raise UsageError("name s3://BUCKET/PREFIX or a directory, or set MAUVE_BACKUP_URL")
    store = open_backup_store(settings.backup, where)
    found = backups_listed(store, settings.master_key)
    rows = [
        (each.name, "unknown" if each.created_at is None else utc_time(each.created_at), format_bytes(each.bytes))
        for each in found
    ]
    text = table(("NAME", "CREATED", "SIZE"), rows, f"there are no backups in {where}")
    print_result(found, as_json=as_json, text=text)


def _print_plan(settings: Settings, target: str | None, warehouse_to: str, *, as_json: bool) -> None:
    from mauve.core.clock import SystemClock  # noqa: PLC0415
    from mauve.maintenance.server_backup import backup_plan  # noqa: PLC0415
    from mauve.wiring.server_backup import server_places  # noqa: PLC0415 - slow to import

    if "{}" not in warehouse_to:
        raise UsageError("--warehouse-to must contain {}, which becomes the name of this backup")
    folder = Path(target or f"mauve-{today_at(SystemClock().now_ms())}").absolute()
    plan = backup_plan(server_places(settings), folder, warehouse_to.replace("{}", folder.name))
    print_result({"steps": plan.splitlines()}, as_json=as_json, text=plan)


def _advice_for_mixed_engines(settings: Settings) -> str:
    """Describe how to back up a mix of server and file engines."""
    ways = {
        "pg_dump for PostgreSQL": settings.database_url,
        "BACKUP for ClickHouse": settings.warehouse_url,
        "'nats stream backup' for NATS": settings.stream_url,
    }
    used = ", then ".join(way for way, url in ways.items() if url is not None)
    return f"some engines are on servers and some in files: stop the service, use {used}, and copy the data directory"


def _encryption_notice() -> str:
    return "encrypted: only MAUVE_MASTER_KEY decrypts it, so keep a copy away from this machine and from the backup"


def _key_notice(*, has_key: bool) -> str:
    if has_key:
        return "with the master key, which decrypts your webhook secrets: keep the file safe"
    return "without the master key, which is in MAUVE_MASTER_KEY: back it up separately"


@click.command()
@click.argument("source", metavar="[SOURCE]", required=False)
@click.option("--servers", is_flag=True, help="Finish a restore of servers, instead of restoring a SOURCE.")
@click.option(
    "--new-streams",
    is_flag=True,
    help="With --servers: replace each stream on NATS that is missing or too old, and print what was lost.",
)
@click.option(
    "--without-lost",
    is_flag=True,
    help="With --servers: continue without events that neither the log nor the backup holds.",
)
@click.option("--yes", is_flag=True, help="With --new-streams: also delete acknowledged events that cannot be loaded.")
@data_options
def restore(
    *,
    source: str | None,
    servers: bool,
    new_streams: bool,
    without_lost: bool,
    yes: bool,
    data: Path | None,
    as_json: bool,
) -> None:
    """Restore a backup into a new or empty data directory.

    SOURCE is a file, s3://BUCKET/PREFIX/NAME, or a bucket prefix or directory, whose newest backup is restored. An
    encrypted backup needs the MAUVE_MASTER_KEY that the service had.

    With engines on servers, follow 'mauve backup --plan', which ends with 'mauve restore --servers': it reconciles the
    events with the restored PostgreSQL. Run it while no service runs.
    """
    settings = settings_for(data)
    if servers == (source is not None):
        raise UsageError("name the file or s3:// address to restore, or add --servers to finish a restore of servers")
    if new_streams and not servers:
        raise UsageError("--new-streams replaces streams on NATS: add --servers")
    if without_lost and not servers:
        raise UsageError("--without-lost applies to events on NATS: add --servers")
    if yes and not new_streams:
        raise UsageError("--yes confirms what --new-streams loses: add it")
    if source is None:
        _finish_servers(
            settings, new_streams=new_streams, gives_up_waiting=yes, without_lost=without_lost, as_json=as_json
        )
    else:
        _restore_files(settings, source, as_json=as_json)


def _restore_files(settings: Settings, place: str, *, as_json: bool) -> None:
    from mauve.maintenance.restore import restore as restore_backup  # noqa: PLC0415
    from mauve.maintenance.stored_backups import readable  # noqa: PLC0415
    from mauve.wiring.backups import is_bucket, stored_source  # noqa: PLC0415
    from mauve.wiring.maintenance import restore_steps  # noqa: PLC0415 - slow to import

    is_store = is_bucket(place) or Path(place).is_dir()
    stored = stored_source(settings.backup, place) if is_store else None
    named_at = None if stored is None else stored.named_at
    with shown_progress(as_json=as_json) as progress:
        source = readable(stored or Path(place), settings.master_key, must_be_encrypted=settings.backup.encrypts)
        restored = restore_backup(source, settings.data, restore_steps(), progress, named_at)
    made_at = datetime.fromtimestamp(restored.created_at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    key = "" if restored.has_master_key else "; the master key is not in the backup: set MAUVE_MASTER_KEY"
    print_result(restored, as_json=as_json, text=f"{restored.data}: as of {made_at}, {restored.events} events{key}")


def _loss_text(replaced: "ReplacedStream") -> str:
    since = "that were not loaded"
    if replaced.last_stored_at is not None:
        since = f"received after {utc_time(replaced.last_stored_at)}, when its last stored event was received,"
    return f"{replaced.stream} {replaced.loss} and was replaced: its events {since} are lost"


def _finish_servers(
    settings: Settings, *, new_streams: bool, gives_up_waiting: bool, without_lost: bool, as_json: bool
) -> None:
    from mauve.wiring.server_backup import reconcile  # noqa: PLC0415 - slow to import

    done = reconcile(settings, new_streams=new_streams, gives_up_waiting=gives_up_waiting, without_lost=without_lost)
    since = "no events are waiting in the log"
    if done.loads_again_since is not None:
        since = f"events since {utc_time(done.loads_again_since)} are loaded again, each once"
    lost = "".join(f"{_loss_text(each)}; " for each in done.streams_replaced)
    if done.lost_messages:
        lost += f"{done.lost_messages} messages with events are lost and were given up; "
    if done.imports_undone:
        lost += f"{', '.join(done.imports_undone)} began after the dump and was undone: import the file again; "
    print_result(done, as_json=as_json, text=f"{lost}{since}: start the service")
