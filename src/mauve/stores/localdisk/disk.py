"""What the log asks of a disk: one method per system call, so that a simulation can stand in for it."""

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

_PRIVATE_DIRECTORY: Final = 0o700
_PRIVATE_FILE: Final = 0o600


class Disk(Protocol):
    """Files by descriptor, names by path. Whatever fails raises `OSError`.

    - What was written outlives a power cut after `sync`, the file's size and blocks included. If it fails, everybody
      who has the file open is told so by their own next `sync`, once (Linux since 4.13).
    - A name that was made, moved or removed outlives it after `sync_directory`.
    """

    def open(self, path: Path, flags: int) -> int: ...

    def close(self, descriptor: int) -> None: ...

    def lock(self, descriptor: int) -> None:
        """Take the file for this process alone, until it is closed; raise `BlockingIOError` if it is taken."""
        ...

    def pread(self, descriptor: int, bytes_max: int, offset: int) -> bytes: ...

    def pwritev(self, descriptor: int, buffers: Sequence[bytes | memoryview], offset: int) -> int:
        """Write the buffers one behind the other; return how much was written, which may be less."""
        ...

    def sync(self, descriptor: int) -> None: ...

    def sync_directory(self, path: Path) -> None: ...

    def make_directory(self, path: Path) -> None:
        """Make the directory, and those above it, unless it is there."""
        ...

    def rename(self, path: Path, target: Path) -> None: ...

    def unlink(self, path: Path) -> None: ...

    def names(self, directory: Path) -> list[str]:
        """Return what is in the directory; nothing if it is missing."""
        ...

    def size(self, path: Path) -> int:
        """Return the size of a file, 0 if it is missing."""
        ...


class LocalDisk:
    """The machine's file system."""

    def open(self, path: Path, flags: int) -> int:
        return os.open(path, flags | os.O_CLOEXEC, _PRIVATE_FILE)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def lock(self, descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def pread(self, descriptor: int, bytes_max: int, offset: int) -> bytes:
        return os.pread(descriptor, bytes_max, offset)

    def pwritev(self, descriptor: int, buffers: Sequence[bytes | memoryview], offset: int) -> int:
        return os.pwritev(descriptor, buffers, offset)

    def sync(self, descriptor: int) -> None:
        os.fdatasync(descriptor)  # Enough also for a new file: it includes what is needed to read it back.

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
        try:
            return [path.name for path in directory.iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def size(self, path: Path) -> int:
        try:
            return path.stat().st_size
        except FileNotFoundError:
            return 0


LOCAL_DISK: Final = LocalDisk()
_BUFFERS_MAX: Final = 1024  # IOV_MAX of Linux: a call with more is refused


def write_all(disk: Disk, descriptor: int, buffers: Sequence[bytes | memoryview], offset: int) -> None:
    """Write every byte, however little the disk takes at a time."""
    rest = list(buffers)
    while rest:
        written = disk.pwritev(descriptor, rest[:_BUFFERS_MAX], offset)
        if written <= 0:
            raise OSError("the disk took nothing and gave no reason")
        offset += written
        rest = _rest(rest, written)


def _rest(buffers: list[bytes | memoryview], written: int) -> list[bytes | memoryview]:
    for index, buffer in enumerate(buffers):
        if written < len(buffer):
            return [memoryview(buffer)[written:], *buffers[index + 1 :]]
        written -= len(buffer)
    return []
