"""Disk space: file sizes, free space, and syncing files and folders to disk."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from mauve.maintenance.errors import MaintenanceRefusedError


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


def sync_folder(folder: Path) -> None:
    """Make created, renamed and removed names in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Make every file and every name under a folder survive a power cut."""
    for name, _, files in os.walk(folder):
        for file in files:
            path = Path(name, file)
            if not path.is_symlink():
                _sync_file(path)
        sync_folder(Path(name))


def _sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except FileNotFoundError:  # Merged, trimmed or renamed since it was listed.
        return 0
