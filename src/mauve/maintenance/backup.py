"""Make a backup: pause the loader, snapshot every store, resume the loader, then copy the snapshots.

The order makes it consistent. While the loader is paused, the ledger's positions, the rows in the warehouse and the
records in the log agree. The warehouse is frozen, the ledger is snapshotted, and the log's records after the positions
are copied. The catalog comes last, so that it includes every key that was used and every first event. The loader then
resumes while the snapshots are copied. Ingest and reads continue throughout.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import msgspec

from mauve.maintenance import Progress
from mauve.maintenance.archive import FORMAT, Header, Member, OnBytes, write_archive
from mauve.maintenance.disk_space import check_free_space, files_in, locked
from mauve.maintenance.errors import MaintenanceRefusedError
from mauve.maintenance.stored_backups import BackupTarget
from mauve.stores.backups import Writable
from mauve.stores.maintenance import Frozen

CATALOG: Final = "catalog.db"
LEDGER: Final = "ledger.db"
LOG: Final = "log"
MASTER_KEY: Final = "master.key"
FROZEN: Final = "frozen"
_PRIVATE_DIRECTORY: Final = 0o700
_IN_PROGRESS: Final = "another backup is in progress: wait for it to finish"  # perhaps left by a killed service


@dataclass(frozen=True, slots=True)
class LoaderPause:
    """A paused loader and a frozen warehouse."""

    frozen: Frozen
    resume: Callable[[], None]  # Resume the loader; the frozen files remain.
    release: Callable[[], None]  # Release the files; raise if they were already released: their copies may be bad.


class Snapshot(Protocol):
    """A consistent copy of a database."""

    def copy_to(self, target: Path, on_bytes: OnBytes) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class BackupSources:
    pause_loader: Callable[[], AbstractContextManager[LoaderPause]]
    snapshot_ledger: Callable[[], Snapshot]
    snapshot_catalog: Callable[[], Snapshot]
    copy_log: Callable[[Path], int]  # returns the number of records
    master_key: Path | None  # None: not in the data directory
    copied_bytes: Callable[[], int]  # databases and log
    frozen_bytes: Callable[[], int]  # warehouse


class BackupResult(msgspec.Struct, frozen=True):
    file: str
    bytes: int
    created_at: int  # epoch ms
    events: int  # rows in the warehouse
    unloaded_records: int  # batches accepted but not loaded yet
    has_master_key: bool


def write_backup(
    sources: BackupSources, target: BackupTarget, now_ms: int, version: str, progress: Progress
) -> BackupResult:
    """Create the backup. It appears under its name only once it is complete."""
    copied_bytes, frozen_bytes = sources.copied_bytes(), sources.frozen_bytes()
    _check_space(target, copied_bytes, copied_bytes + frozen_bytes)
    drafts = target.drafts
    progress.begin("freezing", 0)
    with locked(drafts.parent, _IN_PROGRESS), sources.pause_loader() as pause:
        try:
            _make_empty(drafts)  # Remove leftovers of a killed backup.
            records = _copy(sources, drafts, pause, copied_bytes, progress)
            has_key = sources.master_key is not None
            header = Header(FORMAT, version, now_ms, 0, pause.frozen.events, has_key)
            with target.writing(copied_bytes + frozen_bytes) as file:
                _pack(file, drafts, pause.frozen, header, progress)
                pause.release()
        finally:
            shutil.rmtree(drafts, ignore_errors=True)
    return BackupResult(target.place, target.bytes, now_ms, pause.frozen.events, records, has_key)


def check_target(file: Path, *, may_replace: bool) -> None:
    """Refuse an unusable file name before the loader is paused."""
    if not file.parent.is_dir():
        raise MaintenanceRefusedError(f"there is no directory {file.parent}: create it, or choose another place")
    if file.is_dir():
        raise MaintenanceRefusedError(f"{file} is a directory: name a file in it")
    if file.exists() and not may_replace:
        raise MaintenanceRefusedError(f"{file} already exists: choose another name, or replace it with --force")


def _check_space(target: BackupTarget, copied_bytes: int, archive_bytes: int) -> None:
    data, folder = target.drafts.parent, target.folder
    if folder is not None and folder.stat().st_dev == data.stat().st_dev:
        check_free_space(folder, copied_bytes + archive_bytes)
        return
    check_free_space(data, copied_bytes)
    if folder is not None:
        check_free_space(folder, archive_bytes)


def _copy(sources: BackupSources, drafts: Path, pause: LoaderPause, copied_bytes: int, progress: Progress) -> int:
    """Copy everything but the warehouse; return the number of log records."""
    progress.begin("copying the queue", 0)
    with closing(sources.snapshot_ledger()) as ledger:
        records = sources.copy_log(drafts / LOG)
        with closing(sources.snapshot_catalog()) as catalog:
            pause.resume()
            progress.begin("copying the databases", copied_bytes)
            ledger.copy_to(drafts / LEDGER, progress.add)
            catalog.copy_to(drafts / CATALOG, progress.add)
    if sources.master_key is not None:
        shutil.copyfile(sources.master_key, drafts / MASTER_KEY)
    return records


def _members(drafts: Path, frozen: Frozen) -> Iterator[Member]:
    for path in files_in(drafts):
        yield Member(path.relative_to(drafts).as_posix(), path)
    for table, folder in sorted(frozen.folders.items()):
        for path in files_in(folder):
            yield Member(f"{FROZEN}/{table}/{path.relative_to(folder).as_posix()}", path)


def _pack(file: Writable, drafts: Path, frozen: Frozen, header: Header, progress: Progress) -> None:
    members = [*_members(drafts, frozen)]
    byte_count = sum(member.path.stat().st_size for member in members)
    progress.begin("packing", byte_count)
    write_archive(file, msgspec.structs.replace(header, bytes=byte_count), members, progress.add)


def _make_empty(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=_PRIVATE_DIRECTORY)
