"""The folders of a spool: each belongs to the client that holds its lock, or to nobody once that client is gone."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from mauve_metrics._segment import DONE, ITEMS, Segment

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_NEW = ".new-"
_NEW_FOR_S = 3600.0  # A folder gets its name within moments: one that has none by then was left by a crash.


class Folder:
    """A folder of segments whose lock this process holds."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self.segments: list[Segment] = []
        self.waiting: deque[Path] = deque()  # segments that an earlier owner left, not taken over yet
        self._lock = lock

    def release(self) -> None:
        """Unlock the folder, and remove it if it is empty."""
        if not self.segments and not self.waiting:
            with suppress(OSError):  # A file that could not be read keeps it.
                self.path.rmdir()
        self.forget()

    def forget(self) -> None:
        """Close the lock's file. In a child after a fork, this leaves the lock to the parent."""
        lock, self._lock = self._lock, -1  # first: a child must not close what has this number by then
        if lock >= 0:
            with suppress(OSError):
                os.close(lock)


def require_locks() -> None:
    if fcntl is None:
        raise ValueError("spool needs file locks, which this system lacks: leave it out")


def new_folder(root: Path, prefix: str) -> Folder:
    """Create a locked folder. It gets its name once it is locked, so that no other process takes it for abandoned."""
    hidden = root / f"{_NEW}{uuid4().hex}"
    hidden.mkdir(mode=0o700, parents=True)
    folder = _locked(hidden)
    if folder is None:
        hidden.rmdir()
        raise OSError("the file system has no locks: put the spool on a local disk")
    folder.path = root / f"{prefix}-{uuid4().hex}"
    hidden.rename(folder.path)
    return folder


def abandoned_folder(root: Path, prefix: str, skipped: Collection[Path]) -> Folder | None:
    """Return a folder whose owner is gone, now locked, with the segments that wait there; None if there is none."""
    for path in sorted(root.glob(f"{prefix}-*")):
        folder = _locked(path) if path not in skipped and path.is_dir() else None
        if folder is None:
            continue
        folder.waiting.extend(sorted(path.glob(f"*{ITEMS}")))
        if folder.waiting:
            return folder
        for orphan in path.glob(f"*{DONE}"):
            orphan.unlink(missing_ok=True)
        folder.release()
    return None


def folders_of_other_keys(root: Path, name: str) -> list[Path]:
    """Return the abandoned folders with items that were queued with another key."""
    if not root.is_dir():
        return []
    others = [path for path in root.iterdir() if path.is_dir() and not path.name.startswith((".", name))]
    locked = [folder for folder in map(_locked, others) if folder is not None]
    for folder in locked:
        folder.forget()
    return [folder.path for folder in locked if any(folder.path.glob(f"*{ITEMS}"))]


def remove_unnamed_folders(root: Path) -> None:
    """Remove what processes left that ended while they created a folder."""
    for path in root.glob(f"{_NEW}*"):
        with suppress(OSError):
            if path.stat().st_mtime < time.time() - _NEW_FOR_S:
                path.rmdir()


def _locked(path: Path) -> Folder | None:
    """Return the folder if no process holds its lock."""
    try:
        lock = os.open(path, os.O_RDONLY)
    except OSError:
        return None  # Its last owner has just removed it.
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    return Folder(path, lock)
