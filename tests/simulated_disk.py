"""A disk in memory that loses, tears and refuses what a real one may, drawn from one seed."""

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path

SECTOR_BYTES = 512
AMPLE = 2**30


class MachineDownError(OSError):
    """Nothing works any more until the machine is up again."""


class SimulatedFile:
    """What processes see, what the platter holds, and what is under way from one to the other."""

    def __init__(self, place: Path) -> None:
        self.content = bytearray()
        self.kept = bytearray()
        self.writes: list[tuple[int, bytes]] = []  # cut at sector edges
        self.place: Path | None = place
        self.kept_place: Path | None = None
        self.moves: list[tuple[Path | None, set[Path]]] = [(place, {place.parent})]

    def move(self, target: Path | None) -> None:
        self.moves.append((target, {path.parent for path in (self.place, target) if path}))
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
        done = rng.randint(0, len(self.moves))
        self.place = self.kept_place = self.moves[done - 1][0] if done else self.kept_place
        self.moves.clear()


def put(content: bytearray, offset: int, piece: bytes) -> None:
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(piece)] = piece


class SimulatedDisk:
    """The calls of a disk; each may be the last one before the machine goes down."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.files: list[SimulatedFile] = []
        self.directories: set[Path] = {Path("/")}
        self.new_directories: set[Path] = set()
        self.opened: dict[int, SimulatedFile] = {}
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
        if has_lost_power:
            lost = {path for path in sorted(self.new_directories) if self.rng.random() < 0.5}
            self.directories -= lost
            self.new_directories.clear()
            for file in self.files:
                file.lose_power(self.rng)
                if file.place and not lost.isdisjoint(file.place.parents):
                    file.place = None
        self.files = [file for file in self.files if file.place]
        self.repair()

    def call(self) -> None:
        if self.calls_left == 0:
            self.is_down = True
        self.calls_left -= 1
        if self.is_down:
            raise MachineDownError

    def file_at(self, path: Path) -> SimulatedFile:
        for file in reversed(self.files):
            if file.place == path:
                return file
        raise FileNotFoundError(errno.ENOENT, str(path))

    def open(self, path, flags):
        self.call()
        try:
            file = self.file_at(path)
        except FileNotFoundError:
            if not flags & os.O_CREAT:
                raise
            assert path.parent in self.directories
            file = SimulatedFile(path)
            self.files.append(file)
        self.next_descriptor += 1
        self.opened[self.next_descriptor] = file
        return self.next_descriptor

    def close(self, descriptor):
        self.opened.pop(descriptor, None)

    def lock(self, descriptor):
        self.call()

    def pread(self, descriptor, bytes_max, offset):
        self.call()
        return bytes(self.opened[descriptor].content[offset : offset + bytes_max])

    def pwritev(self, descriptor, buffers, offset):
        self.call()
        file, content = self.opened[descriptor], b"".join(buffers)
        growth = offset + len(content) - len(file.content)
        if growth > self.room_bytes - sum(len(other.content) for other in self.files if other.place):
            raise OSError(errno.ENOSPC, "full")
        if self.rng.random() < self.short_write:
            content = content[: self.rng.randint(1, len(content))]
        file.write(offset, content)
        self.call()
        return len(content)

    def sync(self, descriptor):
        self.before_sync()
        self.call()
        file = self.opened[descriptor]
        if self.rng.random() < self.sync_failure:
            file.writes.clear()  # As Linux does: the pages count as clean, and the error is told once.
            raise OSError(errno.EIO, "broken")
        file.sync()

    def sync_directory(self, path):
        self.call()
        self.new_directories -= {child for child in self.new_directories if child.parent == path}
        for file in self.files:
            file.sync_moves(path)

    def make_directory(self, path):
        self.call()
        for directory in (path, *path.parents):
            if directory not in self.directories:
                self.directories.add(directory)
                self.new_directories.add(directory)

    def rename(self, path, target):
        self.call()
        self.file_at(path).move(target)
        self.call()

    def unlink(self, path):
        self.call()
        self.file_at(path).move(None)
        self.call()

    def names(self, directory):
        self.call()
        places = {file.place for file in self.files if file.place} | self.directories
        return sorted(place.name for place in places if place.parent == directory)

    def size(self, path):
        self.call()
        try:
            return len(self.file_at(path).content)
        except FileNotFoundError:
            return 0
