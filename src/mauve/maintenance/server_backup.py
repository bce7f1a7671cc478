"""Back up an installation whose engines are all on servers, each by its own means, and say how to restore it.

The order makes it consistent. PostgreSQL comes first: its dump shows one moment, before the warehouse is copied. So the
warehouse holds everything that the positions in the dump call loaded, and some rows more. The log keeps loaded events
for a while; the loader reads them again from the positions on, recognizes the rows that are stored, and adds the rest.
The streams come last, if at all: a stream that is older than the warehouse would number new events like stored ones.
"""

import shutil
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Final, Protocol

import msgspec

from mauve.maintenance.backup import Progress
from mauve.maintenance.disk_space import sync_folder
from mauve.maintenance.errors import MaintenanceRefusedError

DUMP: Final = "postgresql.dump"
STEPS: Final = "RESTORE.txt"


class RunningDump(Protocol):
    """A dump in progress. It shows the moment at which it began."""

    def wait_for_data(self) -> None:
        """Wait until it is certain that the tables can be dumped; raise if they cannot."""
        ...

    def check(self) -> None:
        """Raise if it has failed by now."""
        ...

    def finish(self) -> None:
        """Wait until it is complete; raise if it failed."""
        ...


@dataclass(frozen=True, slots=True)
class ServerPlaces:
    """What the commands name. No passwords."""

    database: str  # host, port, user and name, as a URL
    warehouse: str  # the database on ClickHouse
    on_cluster: str  # empty, or the clause
    streams: tuple[str, ...]
    nats: str  # URLs
    keep_hours: int


@dataclass(frozen=True, slots=True)
class ServerBackupSteps:
    """The engine-specific steps."""

    dump: Callable[[Path], AbstractContextManager[RunningDump]]  # fixes its moment before it returns
    # To a destination that ClickHouse knows; the second is called meanwhile, and raises if the copy is useless.
    copy_warehouse: Callable[[str, Callable[[], None]], None]


class ServerBackup(msgspec.Struct, frozen=True):
    folder: str
    warehouse: str  # where ClickHouse has put its part
    bytes: int  # of the dump


def check_folder(folder: Path) -> None:
    if folder.exists():
        raise MaintenanceRefusedError(f"{folder} exists: choose another name")
    if not folder.absolute().parent.is_dir():
        raise MaintenanceRefusedError(f"{folder.parent} is not a directory: create it, or choose another place")


def write_server_backup(
    steps: ServerBackupSteps, places: ServerPlaces, folder: Path, destination: str, progress: Progress
) -> ServerBackup:
    """Dump PostgreSQL, copy the warehouse meanwhile, and write down how to restore both. On failure leave no folder."""
    # A name of its own: another backup to the same folder may be in progress.
    drafts = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".draft", dir=folder.absolute().parent))
    try:
        progress.begin("dumping PostgreSQL", 0)
        with steps.dump(drafts / DUMP) as dump:
            dump.wait_for_data()
            progress.begin("copying the warehouse", 0)
            steps.copy_warehouse(destination, dump.check)
            dump.finish()
        (drafts / STEPS).write_text(restore_steps(places, folder, destination))
        sync_folder(drafts)
        check_folder(folder)
        drafts.rename(folder)
        sync_folder(folder.absolute().parent)
    finally:
        shutil.rmtree(drafts, ignore_errors=True)
    return ServerBackup(str(folder), destination, (folder / DUMP).stat().st_size)


def backup_steps(places: ServerPlaces, folder: Path, destination: str) -> str:
    """Return the commands that back up this installation, in their order."""
    return "\n".join(
        [
            "Back up, while the service runs, in this order:",
            f"  1. pg_dump --format=custom --file={_quoted(folder / DUMP)} {quote(places.database)}",
            f"  2. on ClickHouse, once 1 has begun: {_copy(places, destination)}",
            "'mauve backup' runs both, at one moment. Then, to be able to replace lost NATS servers:",
            *_stream_commands("backup", places, folder),
            "Keep MAUVE_MASTER_KEY elsewhere: it is in none of them. Keys are published again from the catalog.",
            "",
            restore_steps(places, folder, destination),
        ]
    )


def restore_steps(places: ServerPlaces, folder: Path, destination: str) -> str:
    return "\n".join(
        [
            "Restore, while no service runs, into new databases (create them first). The addresses below are old ones:",
            "put in the new ones, with their passwords, here and in the settings.",
            f"  1. pg_restore --no-owner --dbname={quote(places.database)} {_quoted(folder / DUMP)}",
            f"  2. on ClickHouse: RESTORE DATABASE `{places.warehouse}`{places.on_cluster} FROM {destination}",
            f"     (under another name: RESTORE DATABASE `{places.warehouse}` AS `NEW`{places.on_cluster} FROM …)",
            "  3. only if streams on NATS are lost, for those (without a backup, add --new-streams to step 4 instead):",
            *_stream_commands("restore", places, folder),
            "  4. mauve restore --servers   (brings the warehouse and the published keys in line with PostgreSQL)",
            "  5. mauve doctor; mauve serve",
            f"Events that NATS still holds, {places.keep_hours} hours of loaded ones, are loaded again, once; fewer",
            "if they took half of its room before ('mauve doctor': window). Step 4 refuses if it lacks some.",
            "Payments and subscriptions newer than the dump are not in it: replay them from your billers.",
            "",
        ]
    )


def _quoted(path: Path) -> str:
    return quote(str(path))


def _copy(places: ServerPlaces, destination: str) -> str:
    return f"BACKUP DATABASE `{places.warehouse}`{places.on_cluster} TO {destination}"


def _stream_commands(verb: str, places: ServerPlaces, folder: Path) -> list[str]:
    server = f"nats --server={quote(places.nats)}"
    if verb == "backup":
        return [f"     {server} stream backup {name} {_quoted(folder / name)}" for name in places.streams]
    return [f"     {server} stream restore {_quoted(folder / name)}" for name in places.streams]
