"""Room on a disk: what files take, whether there is enough, and making names stay."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from mauve.maintenance.errors import MaintenanceRefusedError


def files_in(folder: Path) -> Iterator[Path]:
    """Return every file below a folder, in order; none if it is missing."""
    for name, folders, files in os.walk(folder):
        folders.sort()
        yield from (Path(name, file) for file in sorted(files))


def bytes_in(*paths: Path) -> int:
    """Return what files and folders take; one that is missing takes nothing."""
    return sum(_size(path) for given in paths for path in ([given] if given.is_file() else files_in(given)))


def check_room(folder: Path, bytes_needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < bytes_needed:
        needed = in_words(bytes_needed)
        raise MaintenanceRefusedError(f"{folder} has {in_words(free)} free and {needed} may be needed: make room there")


def in_words(byte_count: int) -> str:
    size = float(byte_count)
    for unit in ("bytes", "KB", "MB"):
        if size < 1000:  # noqa: PLR2004 - three digits are easily read
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} GB"


def sync_folder(folder: Path) -> None:
    """Make names that were made, moved or removed in a folder outlive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_everything(folder: Path) -> None:
    """Make every file below a folder outlive a power cut, and every name."""
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
    except FileNotFoundError:  # It was merged, trimmed or renamed a moment ago.
        return 0
