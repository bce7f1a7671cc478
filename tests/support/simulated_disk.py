"""A disk in memory that loses, tears and refuses what a real one may, drawn from one seed."""

import errno
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

from mauve.stores.disk import Disk

SECTOR_BYTES = 512
AMPLE = 2**30


class MachineDownError(OSError):
    """Nothing works until the machine is up again."""


class Place(str):
    """The part of a path that the log uses: real ones would take a third of the time of a simulation."""

    __slots__ = ()

    def __truediv__(self, name: str) -> "Place":
        return Place(f"{self}/{name}")

    @property
    def parent(self) -> "Place":
        return Place(self.rpartition("/")[0] or "/")

    @property
    def name(self) -> str:
        return self.rpartition("/")[2]


def place_of(text: str) -> Path:
    return cast("Path", Place(text))  # It has all of `Path` that the log and this disk use.


class SimulatedFile:
    """What processes see, what is on the platter, and the writes between the two."""

    def __init__(self, place: Path) -> None:
        self.content = bytearray()
        self.kept = bytearray()
        self.writes: list[tuple[int, bytes]] = []  # cut at sector boundaries
        self.place: Path | None = place
        self.kept_place: Path | None = None
        self.moves: list[tuple[Path | None, tuple[Path, ...]]] = [(place, (place.parent,))]

    def move(self, target: Path | None) -> None:
        self.moves.append((target, tuple(path.parent for path in (self.place, target) if path)))
        self.place = target

    def write(self, offset: int, piece: bytes) -> None:
        put(self.content, offset, piece)
        while piece:
            room = SECTOR_BYTES - offset % SECTOR_BYTES
            self.writes.append((offset, piece[:room]))
            offset, piece = offset + room, piece[room:]

    def sync(self) -> None:
        for offset, piece in self.writes:
            put(self.kept, offset, piece)
        self.writes.clear()

    def sync_moves(self, directory: Path) -> None:
        touched = [index for index, (_, directories) in enumerate(self.moves) if directory in directories]
        if touched:
            self.kept_place = self.moves[touched[-1]][0]
            del self.moves[: touched[-1] + 1]

    def lose_power(self, rng: random.Random) -> None:
        for offset, piece in self.writes:
            luck = rng.random()
            if luck < 0.5:
                put(self.kept, offset, piece if luck < 0.4 else rng.randbytes(len(piece)))
        self.writes.clear()
        self.content = bytearray(self.kept)
        if self.moves:
            done = rng.randint(0, len(self.moves))
            self.kept_place = self.moves[done - 1][0] if done else self.kept_place
            self.moves.clear()
        self.place = self.kept_place


def put(content: bytearray, offset: int, piece: bytes) -> None:
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(piece)] = piece


class SimulatedDisk(Disk):
    """The calls of a disk; each may be the last one before the machine goes down."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.files: dict[Path, SimulatedFile] = {}  # by the path that processes see
        self.unlinked: list[SimulatedFile] = []  # that may return after a power cut
        self.listings: dict[Path, list[str]] = {}  # until a name changes
        self.directories: set[Path] = {place_of("/")}
        self.new_directories: set[Path] = set()
        self.opened: dict[int, SimulatedFile] = {}
        self.unreported: set[int] = set()  # descriptors that have not reported a failed sync yet
        self.has_lied = False
        self.next_descriptor = 3
        self.repair()

    def repair(self) -> None:
        self.is_down = False
        self.calls_left = -1
        self.sync_failure = self.short_write = 0.0
        self.room_bytes = AMPLE
        self.before_sync: Callable[[], None] = lambda: None

    def restart(self, *, has_lost_power: bool) -> None:
        self.opened.clear()
        self.unreported.clear()
        if has_lost_power:
            self.lose_power()
        self.repair()

    def lose_power(self) -> None:
        lost = {path for path in sorted(self.new_directories) if self.rng.random() < 0.5}
        self.directories -= lost
        self.new_directories.clear()
        files = [*self.files.values(), *self.unlinked]
        for file in files:
            file.lose_power(self.rng)
        # If two files claim a name, the younger one wins: it replaced the other.
        self.files = {file.place: file for file in files if file.place and file.place.parent in self.directories}
        self.unlinked = []
        self.listings.clear()

    def call(self) -> None:
        if self.calls_left == 0:
            self.is_down = True
        self.calls_left -= 1
        if self.is_down:
            raise MachineDownError

    def open(self, path: Path, flags: int) -> int:
        self.call()
        file = self.files.get(path)
        if file is None:
            if not flags & os.O_CREAT:
                raise FileNotFoundError(errno.ENOENT, path)
            assert path.parent in self.directories
            file = self.files[path] = SimulatedFile(path)
            self.listings.clear()
        self.next_descriptor += 1
        self.opened[self.next_descriptor] = file
        return self.next_descriptor

    def close(self, descriptor: int) -> None:
        self.opened.pop(descriptor, None)
        self.unreported.discard(descriptor)

    def lock(self, descriptor: int) -> None:
        self.call()

    def pread(self, descriptor: int, bytes_max: int, offset: int) -> bytes:
        self.call()
        return bytes(self.opened[descriptor].content[offset : offset + bytes_max])

    def pwritev(self, descriptor: int, buffers: Sequence[bytes | memoryview], offset: int) -> int:
        self.call()
        file, content = self.opened[descriptor], b"".join(buffers)
        growth = offset + len(content) - len(file.content)
        if growth > 0 and growth > self.room_bytes - sum(len(other.content) for other in self.files.values()):
            raise OSError(errno.ENOSPC, "full")
        if self.short_write and self.rng.random() < self.short_write:
            content = content[: self.rng.randint(1, len(content))]
        file.write(offset, content)
        self.call()
        return len(content)

    def sync(self, descriptor: int) -> None:
        self.before_sync()
        self.call()
        file = self.opened[descriptor]
        if self.sync_failure and file.writes and self.rng.random() < self.sync_failure:
            file.writes.clear()  # As in Linux: the pages count as clean, and each descriptor reports it once.
            self.has_lied = True  # Unsynced data can still be read until the power fails.
            self.unreported |= {other for other, opened in self.opened.items() if opened is file}
        if descriptor in self.unreported:
            self.unreported.remove(descriptor)
            raise OSError(errno.EIO, "broken")
        file.sync()

    def sync_directory(self, path: Path) -> None:
        self.call()
        self.new_directories -= {child for child in self.new_directories if child.parent == path}
        for file in [*self.files.values(), *self.unlinked]:
            if file.moves:
                file.sync_moves(path)
        self.unlinked = [file for file in self.unlinked if file.moves]

    def make_directory(self, path: Path) -> None:
        self.call()
        while path not in self.directories:
            self.directories.add(path)
            self.new_directories.add(path)
            self.listings.clear()
            path = path.parent

    def rename(self, path: Path, target: Path) -> None:
        self.call()
        file = self.files.pop(path)
        self.listings.clear()
        file.move(target)
        self.files[target] = file
        self.call()

    def unlink(self, path: Path) -> None:
        self.call()
        file = self.files.pop(path)
        self.listings.clear()
        file.move(None)
        self.unlinked.append(file)
        self.call()

    def names(self, directory: Path) -> list[str]:
        self.call()
        if directory not in self.listings:
            places = [str(place).rpartition("/") for place in (*self.files, *self.directories)]
            self.listings[directory] = [name for parent, _, name in places if parent == str(directory)]
        return self.listings[directory]

    def size(self, path: Path) -> int:
        self.call()
        file = self.files.get(path)
        return 0 if file is None else len(file.content)
