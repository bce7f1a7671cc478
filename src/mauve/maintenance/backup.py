"""Making a backup: everything as it was at one moment, while the service goes on.

The order is what makes it consistent. The loader stands still, so that the ledger's positions, the rows of the
warehouse and the records of the log agree. The warehouse is frozen, the ledger is held at this moment, what the log
holds behind the positions is copied; the catalog is held last, so that it knows every key that was used and
every first event that was noted. From there on the loader goes on, and the copies are made at leisure.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, Protocol

import msgspec

from mauve.maintenance.archive import FORMAT, Heading, Member, OnBytes, write_archive
from mauve.maintenance.disk_space import check_room, files_in, sync_folder
from mauve.maintenance.errors import MaintenanceRefusedError
from mauve.maintenance.progress import Progress
from mauve.stores.maintenance import Frozen

CATALOG: Final = "catalog.db"
LEDGER: Final = "ledger.db"
LOG: Final = "log"
MASTER_KEY: Final = "master.key"
FROZEN: Final = "frozen"
_ARCHIVE: Final = "archive"
_PRIVATE_FILE: Final = 0o600
_PRIVATE_DIRECTORY: Final = 0o700


class Standstill(Protocol):
    """The loader stands still, and the warehouse is frozen."""

    @property
    def frozen(self) -> Frozen: ...

    def go_on(self) -> None:
        """Let the loader go on. What is frozen stays so."""
        ...

    def finish(self) -> None:
        """Need what is frozen no more; raise if it was let go of before."""
        ...


class Snapshot(Protocol):
    """A database at one moment."""

    def copy_to(self, target: Path, on_bytes: OnBytes) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class BackupSources:
    """What there is to be backed up."""

    stand_still: Callable[[], AbstractContextManager[Standstill]]
    hold_ledger: Callable[[], Snapshot]
    hold_catalog: Callable[[], Snapshot]
    copy_log: Callable[[Path], int]  # returns how many records
    master_key: Path | None  # None: it is kept elsewhere
    copied_bytes: Callable[[], int]  # of databases and log
    frozen_bytes: Callable[[], int]  # of the warehouse


class BackupMade(msgspec.Struct, frozen=True):
    file: str
    bytes: int
    created_at: int  # epoch ms
    events: int  # rows in the warehouse
    unloaded_records: int  # batches that were accepted and not loaded yet
    has_master_key: bool


def back_up(originals: BackupSources, file: Path, now_ms: int, version: str, progress: Progress) -> BackupMade:
    """Make the file, which appears under its name when it is whole, and not before."""
    copied_bytes = originals.copied_bytes()
    check_room(file.parent, 2 * copied_bytes + originals.frozen_bytes())
    drafts = file.with_name(f".{file.name}.draft")
    progress.begin("freezing", 0)
    with originals.stand_still() as still:
        try:
            _make_empty(drafts)  # Nobody else makes a backup now; what is there was left by one that was killed.
            records = _copy(originals, drafts, still, copied_bytes, progress)
            has_key = originals.master_key is not None
            size = _pack(
                drafts, still.frozen, Heading(FORMAT, version, now_ms, 0, still.frozen.events, has_key), progress
            )
            still.finish()
            (drafts / _ARCHIVE).rename(file)
            sync_folder(file.parent)
        finally:
            shutil.rmtree(drafts, ignore_errors=True)
    return BackupMade(str(file), size, now_ms, still.frozen.events, records, has_key)


def check_target(file: Path, *, may_replace: bool) -> None:
    """Refuse a name under which no backup can be made, before anybody is disturbed."""
    if not file.parent.is_dir():
        raise MaintenanceRefusedError(f"there is no directory {file.parent}: make it, or choose another place")
    if file.is_dir():
        raise MaintenanceRefusedError(f"{file} is a directory: name a file in it")
    if file.exists() and not may_replace:
        raise MaintenanceRefusedError(f"{file} is there already: choose another name, or replace it with --force")


def _copy(originals: BackupSources, drafts: Path, still: Standstill, copied_bytes: int, progress: Progress) -> int:
    """Copy all but the warehouse; return how many records of the log there were."""
    progress.begin("copying the queue", 0)
    with closing(originals.hold_ledger()) as ledger:
        records = originals.copy_log(drafts / LOG)
        with closing(originals.hold_catalog()) as catalog:
            still.go_on()
            progress.begin("copying the databases", copied_bytes)
            ledger.copy_to(drafts / LEDGER, progress.add)
            catalog.copy_to(drafts / CATALOG, progress.add)
    if originals.master_key is not None:
        shutil.copyfile(originals.master_key, drafts / MASTER_KEY)
    return records


def _members(drafts: Path, frozen: Frozen) -> Iterator[Member]:
    for path in files_in(drafts):
        yield Member(path.relative_to(drafts).as_posix(), path)
    for table, folder in sorted(frozen.folders.items()):
        for path in files_in(folder):
            yield Member(f"{FROZEN}/{table}/{path.relative_to(folder).as_posix()}", path)


def _pack(drafts: Path, frozen: Frozen, heading: Heading, progress: Progress) -> int:
    """Write the archive beside the copies, durably; return its size."""
    members = [*_members(drafts, frozen)]
    byte_count = sum(member.path.stat().st_size for member in members)
    progress.begin("packing", byte_count)
    with _new_private_file(drafts / _ARCHIVE) as file:
        write_archive(file, msgspec.structs.replace(heading, bytes=byte_count), members, progress.add)
        file.flush()
        os.fsync(file.fileno())
        return file.tell()


def _new_private_file(path: Path) -> IO[bytes]:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE_FILE), "wb")


def _make_empty(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=_PRIVATE_DIRECTORY)
