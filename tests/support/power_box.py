"""A box whose power can be cut: a separate file system on a loop device, shut down without flushing.

Unsynced data is lost after a cut, as on a machine that lost power. Torn sectors and a device that lies about its cache
do not occur here; the simulated disk covers those.
"""

import fcntl
import os
import random
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from support.service import eventually

_SHUT_DOWN = (2 << 30) | (4 << 16) | (ord("X") << 8) | 125  # EXT4_IOC_SHUTDOWN, _IOR('X', 125, __u32)
_WITHOUT_FLUSHING = struct.pack("I", 2)  # not even the journal
_MEGABYTES = 512
_FILES_MAX = 100_000


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


class PowerBox:
    def __init__(self, home: Path) -> None:
        self._image = home / "disk.img"
        self.path = home / "disk"
        self.path.mkdir(parents=True)
        with self._image.open("wb") as image:
            image.truncate(_MEGABYTES << 20)
        _run("mkfs.ext4", "-q", "-F", "-N", str(_FILES_MAX), str(self._image))
        self._mount()
        os.sync()

    def cut(self) -> None:
        """Cut the power. Processes that work on the box must be killed before it is switched on again.

        A sync in progress may still report success wrongly: ext4 does not report that the blocks it has just filled
        were not recorded. Without power the report would not be received: ignore everything reported after this call.
        """
        handle = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(handle, _SHUT_DOWN, _WITHOUT_FLUSHING)
        finally:
            os.close(handle)

    def switch_on(self) -> None:
        eventually(self._unmounted)
        self._mount()

    def write_back_some(self, rng: random.Random) -> None:
        """Act like the kernel in the background: some of the written data reaches the disk, in any order."""
        files = [Path(folder, name) for folder, _, names in os.walk(self.path) for name in names]
        for path in rng.sample(files, min(len(files), 40)):
            with suppress(OSError):  # it was removed meanwhile
                handle = os.open(path, os.O_RDONLY)
                try:
                    os.fdatasync(handle)
                finally:
                    os.close(handle)

    def sync_a_new_file(self) -> None:
        """Act like the log: afterwards every name created or removed so far is on disk."""
        with (self.path / "new").open("wb") as file:
            os.fsync(file.fileno())

    def close(self) -> None:
        with suppress(AssertionError):
            eventually(self._unmounted)
        self._image.unlink(missing_ok=True)

    def _mount(self) -> None:
        _run("mount", "-o", "loop", str(self._image), str(self.path))

    def _unmounted(self) -> bool:
        return subprocess.run(["umount", str(self.path)], capture_output=True, check=False).returncode == 0


@contextmanager
def power_box(home: Path) -> Iterator[PowerBox]:
    box = PowerBox(home)
    try:
        yield box
    finally:
        box.close()


def reason_for_no_box(home: Path) -> str | None:
    """Return why the power cannot be cut here."""
    if os.geteuid() != 0:
        return "only root can mount a file system of its own"
    if shutil.which("mkfs.ext4") is None:
        return "there is no mkfs.ext4"
    try:
        with power_box(home / "trial") as box:
            box.cut()
    except (subprocess.CalledProcessError, OSError) as error:
        return f"no ext4 image can be mounted and shut down: {error}"
    return None
