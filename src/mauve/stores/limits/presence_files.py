"""Which processes of one machine share a limit: each holds the lock of a file, which ends with the process."""

import fcntl
import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import structlog

LOOK_EVERY_S: Final = 0.5
_LOOKS_OF_USE: Final = 60
_SUFFIX: Final = ".alive"
LOCK_S_MAX: Final = 2.0
_LOCK_AGAIN_S: Final = 0.01
_LOCKED_ADVICE: Final = "until a restart the others count without this process, and allow more than the limit"
_PRIVATE_FILE: Final = 0o600
_PRIVATE_DIRECTORY: Final = 0o700

log = structlog.get_logger()


class FilePresence:
    """Announces this process until it is closed, and looks for the others in a thread.

    A process that uses the limit touches its file. One that has not done so for some looks leaves its share to the
    others. On its first use it looks at once: of two processes that begin together, at least one sees the other.
    """

    def __init__(self, folder: Path, process: int) -> None:
        self._own = folder / f"{process:03d}{_SUFFIX}"
        self._file = _locked(self._own)
        self._touches: dict[Path, _Touch] = {}
        self._is_used = False
        self._idle_looks = _LOOKS_OF_USE
        self._sharing = 1
        self._lock = threading.Lock()
        self._look()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._look_forever, name="presence", daemon=True)
        self._thread.start()

    def live(self) -> int:
        """Return the number of live processes, this one included."""
        return 1 + len(self._touches)

    def use(self) -> int:
        """Record that this process uses the limit; return how many do so now, this one included."""
        self._is_used = True
        if self._idle_looks >= _LOOKS_OF_USE:
            self._touch_and_look()
        return self._sharing

    def close(self) -> None:
        self._closing.set()
        self._thread.join()
        if self._file is not None:
            os.close(self._file)

    def _look_forever(self) -> None:
        while not self._closing.wait(LOOK_EVERY_S):
            self._touch_and_look()

    def _touch_and_look(self) -> None:
        self._idle_looks = 0 if self._is_used else self._idle_looks + 1
        if self._is_used and self._file is not None:
            self._is_used = False
            with suppress(OSError):
                os.utime(self._file)
        self._look()

    def _look(self) -> None:
        with self._lock:
            others = [path for path in self._own.parent.glob(f"*{_SUFFIX}") if path != self._own and _is_locked(path)]
            self._touches = {path: _touch_of(path, self._touches.get(path)) for path in others}
            self._sharing = 1 + sum(touch.looks_ago < _LOOKS_OF_USE for touch in self._touches.values())


class _Touch(NamedTuple):
    at_ns: int
    looks_ago: int


def _touch_of(path: Path, known: _Touch | None) -> _Touch:
    """Return when a file was touched. Its times are only compared with each other: the clock may change."""
    try:
        at_ns = path.stat().st_mtime_ns
    except OSError:
        return _Touch(0, _LOOKS_OF_USE)
    if known is None:
        return _Touch(at_ns, _LOOKS_OF_USE)
    return _Touch(at_ns, 0 if at_ns != known.at_ns else known.looks_ago + 1)


def _locked(path: Path) -> int | None:
    """Return the open file with its lock. If that fails, on a full disk for example, the others count without us."""
    try:
        path.parent.mkdir(mode=_PRIVATE_DIRECTORY, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT, _PRIVATE_FILE)
    except OSError as error:
        log.warning("presence_not_announced", reason=str(error), advice="restart the service when the disk works again")
        return None
    ends_at = time.monotonic() + LOCK_S_MAX
    while time.monotonic() < ends_at:
        with suppress(OSError):  # Another process is looking at it.
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        time.sleep(_LOCK_AGAIN_S)
    log.warning("presence_not_announced", reason="its file is locked by another process", advice=_LOCKED_ADVICE)
    return file


def _is_locked(path: Path) -> bool:
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(file)  # which unlocks it
    return False
