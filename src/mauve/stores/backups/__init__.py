"""Where finished backups are kept: a directory, or a bucket of an object store."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import IO, Final, Protocol

import msgspec

NAME_PREFIX: Final = "mauve-"
"""How generated names of backups begin. Only such files are swept or removed."""


class BackupStoreError(Exception):
    """The store could not be read or written. The message says what to do."""


class StoredBackup(msgspec.Struct, frozen=True):
    name: str
    bytes: int


class Writable(Protocol):
    def write(self, content: bytes, /) -> int: ...


class BackupStore(Protocol):
    """Promises: a name is listed only if its content is complete, and content never changes under its name."""

    def writing(self, name: str, bytes_expected: int) -> AbstractContextManager[Writable]:
        """Write a backup. It appears when the block ends, and never if the block raises or the process dies."""
        ...

    def reading(self, name: str) -> AbstractContextManager[IO[bytes]]:
        """Read a backup; the file can seek. Raise FileNotFoundError if there is none."""
        ...

    def list(self) -> Sequence[StoredBackup]:
        """Return every complete file, in the order of their names."""
        ...

    def delete(self, name: str) -> None: ...

    def sweep(self, before_ms: int) -> int:
        """Remove incomplete backups begun before a moment; return their number."""
        ...
