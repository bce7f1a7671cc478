"""Restore a backup into an empty data directory, completely or not at all."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from mauve.maintenance import Progress
from mauve.maintenance.archive import Header, Source, read_header, unpack_archive
from mauve.maintenance.backup import CATALOG, FROZEN
from mauve.maintenance.disk_space import check_free_space, locked, sync_folder, sync_tree
from mauve.maintenance.errors import MaintenanceRefusedError
from mauve.stores.data_directory import RESTORING, holder_of
from mauve.stores.maintenance import Frozen

_PRIVATE_DIRECTORY: Final = 0o700
SYSTEM_NAMES: Final = frozenset({"lost+found"})
"""Folders that file systems create at their root."""


@dataclass(frozen=True, slots=True)
class RestoreSteps:
    """The engine-specific steps that turn extracted files into a data directory."""

    tables: tuple[str, ...]  # in the warehouse
    check_tables: Callable[[Path], None]  # raises if a newer release created them
    build_warehouse: Callable[[Path, Frozen], None]  # in a data directory, from frozen files


class RestoreResult(msgspec.Struct, frozen=True):
    data: str
    created_at: int  # when the backup was created, epoch ms
    mauve: str  # the version that created it
    events: int
    has_master_key: bool


def restore(
    source: Source, data: Path, steps: RestoreSteps, progress: Progress, named_at: int | None = None
) -> RestoreResult:
    """Create a data directory with everything that was acknowledged when the backup began.

    `named_at` is the creation time in the backup's name, if any.
    """
    progress.begin("checking", 0)
    header = read_header(source)
    if named_at not in {None, header.created_at}:
        raise MaintenanceRefusedError(f"{source} does not match its name: it was renamed or replaced; use another copy")
    data = data.resolve()  # Follow a symbolic link, so that it remains one.
    refuse_used_directory(data)
    data.parent.mkdir(mode=_PRIVATE_DIRECTORY, parents=True, exist_ok=True)
    check_free_space(data.parent if not data.exists() else data, header.bytes)
    with drafts_for(data) as drafts:
        progress.begin("unpacking", header.bytes)
        unpack_archive(source, drafts, progress.add)
        _build(drafts, header, steps, progress)
        sync_tree(drafts)
        move_into_place(drafts, data)
    return RestoreResult(str(data), header.created_at, header.mauve, header.events, header.has_master_key)


def _build(drafts: Path, header: Header, steps: RestoreSteps, progress: Progress) -> None:
    steps.check_tables(drafts)
    progress.begin("building the warehouse", 0)
    folders = {table: drafts / FROZEN / table for table in steps.tables}
    steps.build_warehouse(drafts, Frozen(folders, header.events))
    shutil.rmtree(drafts / FROZEN, ignore_errors=True)


def refuse_used_directory(data: Path) -> None:
    """Refuse a directory that is in use or not empty."""
    holder = holder_of(data)
    if holder is not None:
        raise MaintenanceRefusedError(f"{data} is in use by process {holder.pid}: restore into another directory")
    if data.exists() and not data.is_dir():
        raise MaintenanceRefusedError(f"{data} is not a directory: choose another --data")
    if data.exists() and _names_in(data):
        raise MaintenanceRefusedError(f"{data} is not empty: restore into a new directory, or move this one away first")


def _names_in(data: Path) -> list[str]:
    return sorted({path.name for path in data.iterdir()} - SYSTEM_NAMES - {RESTORING})


@contextmanager
def drafts_for(data: Path) -> Iterator[Path]:
    """Create a directory for unfinished work, and always remove it at the end."""
    drafts = data / RESTORING if _is_irreplaceable(data) else data.with_name(f".{data.name}.{RESTORING}")
    drafts.mkdir(mode=_PRIVATE_DIRECTORY, exist_ok=True)
    with locked(drafts, f"another restore into {data} is in progress: wait for it to finish"):
        try:
            for path in drafts.iterdir():  # left over from a restore that was killed
                _remove(path)
            yield drafts
        finally:
            shutil.rmtree(drafts, ignore_errors=True)


def _is_irreplaceable(data: Path) -> bool:
    """Return whether this directory cannot be replaced: it is a mount point, or its parent is not writable."""
    return data.exists() and (data.is_mount() or any(data.iterdir()) or not os.access(data.parent, os.W_OK))


def move_into_place(drafts: Path, data: Path) -> None:
    """Turn the drafts into the data directory."""
    if drafts.parent != data:
        drafts.rename(data)  # atomic, and also replaces an empty directory
        sync_folder(data.parent)
        return
    # One at a time. No service starts while the drafts exist, so a half-restored directory is never used.
    paths = sorted(drafts.iterdir(), key=lambda path: path.name == CATALOG)
    try:
        for path in paths:
            path.rename(data / path.name)
        sync_folder(data)
    except OSError:
        for path in paths:
            _remove(data / path.name)
        raise
    drafts.rmdir()
    sync_folder(data)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
