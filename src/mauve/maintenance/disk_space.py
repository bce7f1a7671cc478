"""Disk space: file sizes, free space, and syncing files and folders to disk."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from mauve.maintenance.errors import MaintenanceRefusedError
from mauve.stores.disk import LOCAL_DISK

sync_folder: Final = LOCAL_DISK.sync_directory


def files_in(folder: Path) -> Iterator[Path]:
    """Yield every file under a folder, in order; nothing if the folder is missing."""
    for name, folders, files in os.walk(folder):
        folders.sort()
        yield from (Path(name, file) for file in sorted(files))


def bytes_in(*paths: Path) -> int:
    """Return the total size of files and folders; a missing one counts as 0."""
    return sum(_size(path) for given in paths for path in ([given] if given.is_file() else files_in(given)))


def check_free_space(folder: Path, bytes_needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < bytes_needed:
        needed = format_bytes(bytes_needed)
        raise MaintenanceRefusedError(
            f"{folder} has {format_bytes(free)} free and {needed} may be needed: free some space"
        )


def format_bytes(byte_count: int) -> str:
    size = float(byte_count)
    for unit in ("bytes", "KB", "MB"):
        if size < 1000:  # noqa: PLR2004 - three digits at most
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} GB"


def sync_tree(folder: Path) -> None:
    """Make every file and every name under a folder survive a power cut."""
    for name, _, files in os.walk(folder):
        for path in (Path(name, file) for file in files):
            if not path.is_symlink():
                with path.open("rb") as file:
                    os.fsync(file.fileno())
        sync_folder(Path(name))


@contextmanager
def locked(folder: Path, if_taken: str) -> Iterator[None]:
    """Lock a folder against other processes, or refuse with this message."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            LOCAL_DISK.lock(descriptor)
        except BlockingIOError:
            raise MaintenanceRefusedError(if_taken) from None
        yield
    finally:
        os.close(descriptor)


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except FileNotFoundError:  # Merged, trimmed or renamed since it was listed.
        return 0
