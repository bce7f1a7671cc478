"""The data directory: private, and used by one server at a time."""

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

import msgspec

_PRIVATE_DIRECTORY: Final = 0o700
_WRITABLE_BY_OTHERS: Final = 0o022
_PRIVATE_FILE: Final = 0o600
_LOCK_FILE: Final = "serve.lock"
RESTORING: Final = "restoring"
"""The folder in which a restore prepares what it cannot move into place at once."""
_ROOM_BYTES_MIN: Final = 4 * 2**20  # more than one transaction needs
_ORPHANS_GRACE_S: Final = 10.0


class HeldError(Exception):
    """Another server uses this data directory."""


class DirectoryError(Exception):
    """A path that cannot hold the data. The message says what to do."""


class Holder(msgspec.Struct, frozen=True):
    pid: int
    url: str  # where it listens
    public_url: str  # the address for users


_holder: Final = msgspec.json.Decoder(Holder)


def make_private_directory(path: Path) -> bool:
    """Create the directory for its owner only and return True, or make an existing one private and return False.

    Refuse a shared one that is not empty.
    """
    try:
        is_new = _create(path)
    except (FileExistsError, NotADirectoryError):
        raise DirectoryError(f"{path} is not a directory: choose another --data") from None
    try:
        _make_private(path)
    except PermissionError:
        raise _of_another_user(path, path.stat().st_uid) from None
    return is_new


def _of_another_user(path: Path, owner: int) -> DirectoryError:
    user = os.geteuid()
    advice = f"run 'chown {user} {path}' as root" if user else "run this as that user, not as root"
    return DirectoryError(f"{path} belongs to user {owner}: {advice}, or choose another --data")


def _make_private(path: Path) -> None:
    found = path.stat()
    if (path / RESTORING).exists():
        raise DirectoryError(f"a restore into {path} did not end: empty the directory and restore again")
    is_empty = not any(path.iterdir())
    if found.st_mode & _WRITABLE_BY_OTHERS and not is_empty:
        raise DirectoryError(f"{path} is shared with other users: choose a directory of your own for --data")
    if found.st_uid != os.geteuid() and not is_empty:
        raise _of_another_user(path, found.st_uid)
    path.chmod(_PRIVATE_DIRECTORY)


def _create(path: Path) -> bool:
    try:
        path.mkdir(mode=_PRIVATE_DIRECTORY, parents=True)
    except FileExistsError:
        path.mkdir(exist_ok=True)  # raises again if it is a file
        return False
    return True


def has_room(data: Path) -> bool:
    """Return whether the files in the directory can grow: on a full disk, nothing more is recorded."""
    try:
        return shutil.disk_usage(data).free >= _ROOM_BYTES_MIN
    except OSError:  # The directory was removed or unmounted.
        return False


def hold(data: Path) -> IO[bytes]:
    """Lock the directory for this process and the children that inherit the file.

    Children of a killed server may take some seconds to end; wait for them.
    """
    file = (data / _LOCK_FILE).open("ab+")
    try:
        os.chmod(file.fileno(), _PRIVATE_FILE)  # noqa: PTH101 - by descriptor: the path may have moved
        _take_lock(file, data)
    except BaseException:
        file.close()
        raise
    return file


def _take_lock(file: IO[bytes], data: Path) -> None:
    patience_ends_at = time.monotonic() + _ORPHANS_GRACE_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder_from(file)
            if (holder is not None and _is_running(holder.pid)) or time.monotonic() > patience_ends_at:
                who = f"process {holder.pid}" if holder else "another process"
                raise HeldError(f"{data} is in use by {who}: stop it first, or choose another --data") from None
            time.sleep(0.1)
        else:
            _check_still_there(file, data)
            return


def _check_still_there(file: IO[bytes], data: Path) -> None:
    """Refuse a lock file that was removed while we waited for it: others would lock a new one."""
    try:
        is_there = os.path.samestat(os.fstat(file.fileno()), (data / _LOCK_FILE).stat())
    except FileNotFoundError:
        is_there = False
    if not is_there:
        raise HeldError(f"another process has just left {data}: try again")


def record_holder(file: IO[bytes], holder: Holder) -> None:
    """Write the holder and its address into the lock file, for commands that run at the same time."""
    file.seek(0)
    file.truncate()
    file.write(msgspec.json.encode(holder))
    file.flush()


def clear_holder(file: IO[bytes], data: Path, *, remove_unused: bool) -> None:
    """Leave nothing that looks like a running server, and no lock file without data.

    With `remove_unused`, remove a directory without data, too: only the server that created it may do so.
    """
    file.seek(0)
    file.truncate()
    if [entry.name for entry in data.iterdir()] == [_LOCK_FILE]:
        (data / _LOCK_FILE).unlink()
        if remove_unused:
            with suppress(OSError):  # Another process has just begun to use it.
                data.rmdir()


def holder_of(data: Path) -> Holder | None:
    """Return the server that uses the directory now, or None."""
    holder, is_held = _read_lock(data)
    return holder if is_held else None


def gone_holder(data: Path) -> Holder | None:
    """Return the server that the lock file names although it no longer runs, because it was killed."""
    holder, is_held = _read_lock(data)
    return None if is_held else holder


def _read_lock(data: Path) -> tuple[Holder | None, bool]:
    """Return the server that the lock file names, and whether the file is locked."""
    try:
        with (data / _LOCK_FILE).open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return _holder_from(file), True
            return _holder_from(file), False
    except OSError:
        return None, False


def other_server(data: Path) -> Holder | None:
    """Return the server that uses the directory now, unless it started this process."""
    holder = holder_of(data)
    is_other = holder is not None and holder.pid != os.getppid() and _is_running(holder.pid)
    return holder if is_other else None


@contextmanager
def exclusive_lock(data: Path, name: str) -> Iterator[None]:
    """Run the block in one process at a time; others wait."""
    with (data / f"{name}.lock").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def write_private_file(path: Path, content: bytes) -> None:
    """Write a new file atomically, readable by its owner only and durable when this returns."""
    draft = path.with_name(f"{path.name}.new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _PRIVATE_FILE)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.rename(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)  # Without it, a power cut may undo the rename.
    finally:
        os.close(directory)


def _holder_from(file: IO[bytes]) -> Holder | None:
    file.seek(0)
    try:
        return _holder.decode(file.read())
    except msgspec.DecodeError:
        return None


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return True
