"""Find a backup in a store, open it, and remove old ones."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Final, Literal, NamedTuple

import structlog

from mauve.core.secret import Secret
from mauve.core.times import DAY_MS
from mauve.maintenance.archive import Source, read_header
from mauve.maintenance.backup_names import backups_in, created_at_of, names_to_remove, owner_of, says_encrypted
from mauve.maintenance.encryption import DecryptedSource, backup_keys, is_encrypted
from mauve.maintenance.errors import MaintenanceRefusedError
from mauve.stores.backups import BackupStore, BackupStoreError

_UNFINISHED_MS_MAX: Final = DAY_MS  # Younger ones may still be in progress; no backup takes this long.

log = structlog.get_logger()


class Created(NamedTuple):
    at: int | None  # epoch ms; None: unknown without the master key
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


def created_in(store: BackupStore, name: str, master_keys: Secret | None) -> Created | None:
    """Return when a backup was made, from its name or content; None if it is not a backup."""
    if (named_at := created_at_of(name)) is not None:
        return Created(named_at, is_encrypted=says_encrypted(name))
    source = StoredSource(store, name)
    is_secret = is_encrypted(source)
    try:
        opened = readable(source, master_keys, must_be_encrypted=False)
        return Created(read_header(opened).created_at, is_encrypted=is_secret)
    except (MaintenanceRefusedError, OSError):
        return Created(None, is_encrypted=True) if is_secret else None


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
