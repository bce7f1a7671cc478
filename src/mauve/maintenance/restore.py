"""Restoring a backup into a data directory that is empty: all of it appears there, or nothing does."""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from mauve.maintenance.archive import Heading, read_heading, unpack_archive
from mauve.maintenance.backup import CATALOG, FROZEN
from mauve.maintenance.disk_space import check_room, sync_everything, sync_folder
from mauve.maintenance.errors import MaintenanceRefusedError
from mauve.maintenance.progress import Progress
from mauve.stores.data_directory import RESTORING, holder_of
from mauve.stores.maintenance import Frozen

_PRIVATE_DIRECTORY: Final = 0o700
_OF_THE_DISK: Final = frozenset({"lost+found"})


@dataclass(frozen=True, slots=True)
class Builders:
    """What makes a data directory of the members."""

    tables: tuple[str, ...]  # of the warehouse
    check_tables: Callable[[Path], None]  # raises if a newer release made them
    build_warehouse: Callable[[Path, Frozen], None]  # in a data directory, from frozen parts


class Restored(msgspec.Struct, frozen=True):
    data: str
    created_at: int  # when the backup was made, epoch ms
    mauve: str  # and by which version
    events: int
    has_master_key: bool


def restore(file: Path, data: Path, builders: Builders, progress: Progress) -> Restored:
    """Make a data directory of the file, with all that was acknowledged when the backup began."""
    progress.begin("checking", 0)
    heading = read_heading(file)
    data = data.resolve()  # A link to a directory stays one.
    _check_empty(data)
    data.parent.mkdir(mode=_PRIVATE_DIRECTORY, parents=True, exist_ok=True)
    check_room(data.parent if not data.exists() else data, heading.bytes)
    with _drafts_for(data) as drafts:
        progress.begin("unpacking", heading.bytes)
        unpack_archive(file, drafts, progress.add)
        _build(drafts, heading, builders, progress)
        sync_everything(drafts)
        _move(drafts, data)
    return Restored(str(data), heading.created_at, heading.mauve, heading.events, heading.has_master_key)


def _build(drafts: Path, heading: Heading, builders: Builders, progress: Progress) -> None:
    builders.check_tables(drafts)
    progress.begin("building the warehouse", 0)
    folders = {table: drafts / FROZEN / table for table in builders.tables}
    builders.build_warehouse(drafts, Frozen(folders, heading.events))
    shutil.rmtree(drafts / FROZEN, ignore_errors=True)


def _check_empty(data: Path) -> None:
    holder = holder_of(data)
    if holder is not None:
        raise MaintenanceRefusedError(f"{data} is in use by process {holder.pid}: restore into another directory")
    if data.exists() and not data.is_dir():
        raise MaintenanceRefusedError(f"{data} is not a directory: choose another --data")
    if data.exists() and _names_in(data):
        raise MaintenanceRefusedError(f"{data} is not empty: restore into a new directory, or move this one away first")


def _names_in(data: Path) -> list[str]:
    return sorted({path.name for path in data.iterdir()} - _OF_THE_DISK - {RESTORING})


@contextmanager
def _drafts_for(data: Path) -> Iterator[Path]:
    """Make a directory for what is not whole yet; it is gone afterwards, whatever happens."""
    drafts = data / RESTORING if _must_stay_inside(data) else data.with_name(f".{data.name}.{RESTORING}")
    drafts.mkdir(mode=_PRIVATE_DIRECTORY, exist_ok=True)
    descriptor = os.open(drafts, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise MaintenanceRefusedError(f"another restore into {data} is under way: wait for it") from None
    try:
        for path in drafts.iterdir():  # left by one that was killed
            _remove(path)
        yield drafts
    finally:
        shutil.rmtree(drafts, ignore_errors=True)
        os.close(descriptor)


def _must_stay_inside(data: Path) -> bool:
    """Tell whether no directory can be put in the place of this one: a disk of its own, or not ours to replace."""
    return data.exists() and (data.is_mount() or any(data.iterdir()) or not os.access(data.parent, os.W_OK))


def _move(drafts: Path, data: Path) -> None:
    if drafts.parent != data:
        drafts.rename(data)  # at once, also in the place of an empty directory
        sync_folder(data.parent)
        return
    # One by one. As long as the drafts are there no service starts on it, so that half of it is never used.
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
