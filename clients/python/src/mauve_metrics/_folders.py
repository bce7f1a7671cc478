"""The folders of a spool: each belongs to the client that holds its lock, and is abandoned once that client is gone."""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from mauve_metrics._segment import DONE, ITEMS, Folder

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_NEW = ".new-"
_NEW_FOR_S = 3600.0  # A folder is named immediately after its creation: an older unnamed one was left by a crash.


def require_locks() -> None:
    if fcntl is None:
        raise ValueError("spool needs file locks, which this system does not support: omit it")


def new_folder(root: Path, prefix: str) -> Folder:
    """Create a locked folder. Name it only once it is locked, so that no other process considers it abandoned."""
    hidden = root / f"{_NEW}{uuid4().hex}"
    hidden.mkdir(mode=0o700, parents=True)
    folder = _locked(hidden)
    if folder is None:
        hidden.rmdir()
        raise OSError("the file system does not support locks: put the spool on a local disk")
    folder.path = root / f"{prefix}-{uuid4().hex}"
    hidden.rename(folder.path)
    return folder


def abandoned_folder(root: Path, prefix: str, skipped: Collection[Path]) -> Folder | None:
    """Lock and return an abandoned folder that has segments, or None if there is none."""
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


def lines_about_other_keys(root: Path, name: str) -> list[str]:
    """Return a log line for each abandoned folder with items that were queued with another key."""
    if not root.is_dir():
        return []
    others = [path for path in root.iterdir() if path.is_dir() and not path.name.startswith((".", name))]
    locked = [folder for folder in map(_locked, others) if folder is not None]
    for folder in locked:
        folder.forget()
    left = [folder.path for folder in locked if any(folder.path.glob(f"*{ITEMS}"))]
    advice = f"if this key replaces that one, rename the folder so that it begins with {name}"
    return [f"{path} holds items queued with another key: {advice}" for path in left]


def remove_unnamed_folders(root: Path) -> None:
    """Remove folders left by processes that died while creating them."""
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
