"""Backups in a store: name them, write and verify one, find and open one, and remove old ones."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Final, Literal

import msgspec
import structlog

from mauve.core.secret import Secret
from mauve.core.times import DAY_MS
from mauve.maintenance.archive import Source, read_header
from mauve.maintenance.encryption import BackupKeys, DecryptedSource, backup_keys, encrypted, is_encrypted
from mauve.maintenance.errors import MaintenanceRefusedError
from mauve.stores.backups import NAME_PREFIX, BackupStore, BackupStoreError, StoredBackup, Writable

_ENCRYPTED: Final = ".age"
_OWNER_CHARACTERS: Final = 8
_OWNER: Final = rf"(?:-([0-9a-f]{{{_OWNER_CHARACTERS}}}))?"
_NAME: Final = re.compile(rf"{NAME_PREFIX}(\d{{8}}T\d{{9}})Z{_OWNER}\.mauve({re.escape(_ENCRYPTED)})?", re.ASCII)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UNFINISHED_MS_MAX: Final = DAY_MS  # Younger ones may still be in progress; no backup takes this long.

log = structlog.get_logger()


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


def backup_name(created_at: int, identity: str, *, is_encrypted: bool) -> str:
    """Return a name with the time and the installation, such as mauve-20261116T020000000Z-1a2b3c4d.mauve."""
    moment = _EPOCH + timedelta(milliseconds=created_at)
    text = f"{moment:%Y%m%dT%H%M%S}{moment.microsecond // 1000:03}"
    return f"{NAME_PREFIX}{text}Z-{identity[:_OWNER_CHARACTERS]}.mauve{_ENCRYPTED if is_encrypted else ''}"


def created_at_of(name: str) -> int | None:
    """Return the creation time in a backup's name, in epoch ms; None if it is not such a name."""
    match = _NAME.fullmatch(name)
    try:
        moment = None if match is None else datetime.strptime(match[1] + "000+0000", "%Y%m%dT%H%M%S%f%z")
    except ValueError:  # such as a 31st of June
        return None
    return None if moment is None else (moment - _EPOCH) // timedelta(milliseconds=1)


def owner_of(name: str) -> str:
    """Return the identity prefix of the installation in a backup's name; empty if there is none."""
    match = _NAME.fullmatch(name)
    return "" if match is None else match[2] or ""


def says_encrypted(name: str) -> bool:
    return name.endswith(_ENCRYPTED)


def backups_in(stored: Sequence[StoredBackup]) -> list[StoredBackup]:
    """Return the files named like backups, newest first."""
    found = [each for each in stored if created_at_of(each.name) is not None]
    return sorted(found, key=lambda each: each.name, reverse=True)


def names_to_remove(stored: Sequence[StoredBackup], newest: str, keep: int) -> list[str]:
    """Return the backups beyond the number to keep, all older than `newest`, which is known to be complete.

    Ignore backups of other installations in the same place.
    """
    own = [each.name for each in backups_in(stored) if owner_of(each.name) == owner_of(newest)]
    older = [name for name in own if name < newest]
    return older[max(0, keep - 1) :]


class ListedBackup(msgspec.Struct, frozen=True):
    name: str
    created_at: int | None  # epoch ms; None: encrypted, so unknown without its master key
    bytes: int
    is_encrypted: bool


class StoredSource:
    def __init__(self, store: BackupStore, name: str) -> None:
        self.name = name
        self._store = store

    def __str__(self) -> str:
        return f"{str(self._store).rstrip('/')}/{self.name}"

    @property
    def named_at(self) -> int | None:
        return created_at_of(self.name)

    @contextmanager
    def open(self, mode: Literal["rb"]) -> Iterator[IO[bytes]]:  # noqa: ARG002 - the signature of `Path.open`
        with self._store.reading(self.name) as file:
            yield file


def backups_listed(store: BackupStore, master_keys: Secret | None) -> list[ListedBackup]:
    """Return the backups, newest first, with the time in their name or content."""
    found = [listed for each in store.list() if (listed := _listed(store, each, master_keys)) is not None]
    return sorted(found, key=lambda each: (each.created_at or 0, each.name), reverse=True)


def _listed(store: BackupStore, stored: StoredBackup, master_keys: Secret | None) -> ListedBackup | None:
    """Describe a backup; return None if it is not one."""
    name, size = stored.name, stored.bytes
    if (named_at := created_at_of(name)) is not None:
        return ListedBackup(name, named_at, size, says_encrypted(name))
    source = StoredSource(store, name)
    is_secret = is_encrypted(source)
    try:
        opened = readable(source, master_keys, must_be_encrypted=False)
        return ListedBackup(name, read_header(opened).created_at, size, is_secret)
    except (MaintenanceRefusedError, OSError):
        return ListedBackup(name, None, size, is_encrypted=True) if is_secret else None


def newest_in(store: BackupStore) -> StoredSource:
    found = backups_in(store.list())
    if not found:
        raise MaintenanceRefusedError(f"there is no backup in {store}: check the address, and 'mauve backup list'")
    if len({owner_of(each.name) for each in found} - {""}) > 1:
        advice = f"name one of them, such as {StoredSource(store, found[0].name)}; 'mauve backup list' shows all"
        raise MaintenanceRefusedError(f"{store} holds backups of several installations: {advice}")
    return StoredSource(store, found[0].name)


def readable(source: Source, master_keys: Secret | None, *, must_be_encrypted: bool) -> Source:
    """Return the backup for unpacking, decrypted if necessary."""
    if is_encrypted(source):
        if master_keys is None:
            advice = "set MAUVE_MASTER_KEY or MAUVE_MASTER_KEY_FILE to the key that the service had"
            raise MaintenanceRefusedError(f"{source} is encrypted with the master key: {advice}")
        return DecryptedSource(source, backup_keys(master_keys))
    if must_be_encrypted or says_encrypted(str(source)):
        advice = "use another copy; if it is yours, name it without .age and unset MAUVE_BACKUP_ENCRYPT"
        raise MaintenanceRefusedError(f"{source} is not encrypted, and should be: {advice}")
    return source


def tidy_up(store: BackupStore, newest: str, keep: int | None, now_ms: int) -> None:
    """Remove all but the `keep` latest backups, and leftovers of killed writers. The newest is known to be complete.

    Only log a failure: the new backup is complete, and the next one tries again.
    """
    try:
        for name in names_to_remove(store.list(), newest, keep) if keep else ():
            store.delete(name)
        store.sweep(now_ms - _UNFINISHED_MS_MAX)
    except (BackupStoreError, OSError) as error:
        advice = "allow the credentials to delete objects, and to list and abort multipart uploads"
        log.warning("old_backups_not_removed", reason=str(error), advice=advice)
