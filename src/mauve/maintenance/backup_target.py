"""Write an archive to a store: encrypt it if requested, count its bytes, and verify it once stored."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mauve.maintenance.encryption import BackupKeys, encrypted
from mauve.stores.backups import BackupStore, BackupStoreError, Writable


class BackupTarget:
    """The destination of one backup."""

    def __init__(
        self, store: BackupStore, place: str, drafts: Path, *, folder: Path | None, keys: BackupKeys | None
    ) -> None:
        self.place = place  # with its name
        self.drafts = drafts  # for copies of the databases, in the data directory; removed at the end
        self.folder = folder  # of the archive; None if it is not on a local disk
        self.bytes = 0  # of the archive, once it is stored
        self._store = store
        self._name = place.rpartition("/")[2]
        self._keys = keys

    @contextmanager
    def writing(self, bytes_expected: int) -> Iterator[Writable]:
        """Open the archive. It appears under its name once the block succeeds."""
        with self._store.writing(self._name, bytes_expected) as file:
            counting = _CountingWriter(file)
            if self._keys is None:
                yield counting
            else:
                with encrypted(counting, self._keys) as sealed:
                    yield sealed
        self._check_stored(counting.bytes)
        self.bytes = counting.bytes

    def _check_stored(self, bytes_sent: int) -> None:
        found = next((each.bytes for each in self._store.list() if each.name == self._name), None)
        if found != bytes_sent:
            with suppress(BackupStoreError, OSError):  # It must not pass for the newest backup.
                self._store.delete(self._name)
            raise BackupStoreError(
                f"{self.place} held {found or 0} of {bytes_sent} bytes after it was written, and was removed: "
                "check the store"
            )


class _CountingWriter:
    def __init__(self, file: Writable) -> None:
        self.bytes = 0
        self._file = file

    def write(self, content: bytes, /) -> int:
        self._file.write(content)
        self.bytes += len(content)
        return len(content)
