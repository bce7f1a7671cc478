"""Backups as files of a directory, each renamed to its name when it is complete."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from mauve.stores.backups import NAME_PREFIX, StoredBackup

_PRIVATE_FILE: Final = 0o600
_DRAFT: Final = ".part"


class FolderBackupStore:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __str__(self) -> str:
        return str(self._folder)

    @contextmanager
    def writing(self, name: str, bytes_expected: int) -> Iterator[IO[bytes]]:  # noqa: ARG002 - for other engines
        draft = self._folder / f".{name}{_DRAFT}"
        draft.unlink(missing_ok=True)  # left over from a backup that was killed
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE_FILE)
        try:
            with os.fdopen(descriptor, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            draft.rename(self._folder / name)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        self._sync()

    @contextmanager
    def reading(self, name: str) -> Iterator[IO[bytes]]:
        with (self._folder / name).open("rb") as file:
            yield file

    def list(self) -> list[StoredBackup]:
        paths = [path for path in sorted(self._folder.iterdir()) if path.is_file() and not path.name.startswith(".")]
        return [StoredBackup(path.name, path.stat().st_size) for path in paths]

    def delete(self, name: str) -> None:
        (self._folder / name).unlink(missing_ok=True)
        self._sync()

    def sweep(self, before_ms: int) -> int:
        found = self._folder.glob(f".{NAME_PREFIX}*{_DRAFT}")
        drafts = [path for path in found if path.lstat().st_mtime * 1000 < before_ms]
        for draft in drafts:
            draft.unlink(missing_ok=True)
        return len(drafts)

    def _sync(self) -> None:
        descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
