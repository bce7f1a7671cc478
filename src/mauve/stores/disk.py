"""The disk as the log uses it: one method per system call, so that a simulation can replace it."""

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_PRIVATE_DIRECTORY: Final = 0o700
_PRIVATE_FILE: Final = 0o600


class Disk:
    """Files by descriptor, names by path. Every failure raises `OSError`.

    - After `sync`, written data survives a power cut, including the file's size and blocks. If it fails, every process
      with the file open sees the error once, at its own next `sync` (Linux since 4.13).
    - After `sync_directory`, names that were created, moved or removed survive it too.
    """

    def open(self, path: Path, flags: int) -> int:
        return os.open(path, flags | os.O_CLOEXEC, _PRIVATE_FILE)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def lock(self, descriptor: int) -> None:
        """Lock the file for this process until it is closed; raise `BlockingIOError` if it is locked."""
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def pread(self, descriptor: int, bytes_max: int, offset: int) -> bytes:
        return os.pread(descriptor, bytes_max, offset)

    def pwritev(self, descriptor: int, buffers: Sequence[bytes | memoryview], offset: int) -> int:
        return os.pwritev(descriptor, buffers, offset)

    def sync(self, descriptor: int) -> None:
        os.fdatasync(descriptor)  # Enough for a new file too: it includes the metadata needed to read it back.

    def sync_directory(self, path: Path) -> None:
        directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def make_directory(self, path: Path) -> None:
        path.mkdir(mode=_PRIVATE_DIRECTORY, parents=True, exist_ok=True)

    def rename(self, path: Path, target: Path) -> None:
        path.rename(target)

    def unlink(self, path: Path) -> None:
        path.unlink()

    def names(self, directory: Path) -> list[str]:
        """Return the names in the directory; none if it is missing."""
        try:
            return [path.name for path in directory.iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def size(self, path: Path) -> int:
        """Return the size of a file, 0 if it is missing."""
        try:
            return path.stat().st_size
        except FileNotFoundError:
            return 0


LOCAL_DISK: Final = Disk()
_BUFFERS_MAX: Final = 1024  # IOV_MAX of Linux: a call with more fails


def write_all(disk: Disk, descriptor: int, buffers: Sequence[bytes | memoryview], offset: int) -> None:
    """Write every byte, however few the disk accepts at a time."""
    rest = list(buffers)
    while rest:
        written = disk.pwritev(descriptor, rest[:_BUFFERS_MAX], offset)
        if written <= 0:
            raise OSError("the disk took nothing and reported no error")
        offset += written
        rest = _rest(rest, written)


def _rest(buffers: list[bytes | memoryview], written: int) -> list[bytes | memoryview]:
    for index, buffer in enumerate(buffers):
        if written < len(buffer):
            return [memoryview(buffer)[written:], *buffers[index + 1 :]]
        written -= len(buffer)
    return []
