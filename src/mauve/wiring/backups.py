"""Wires the destinations of backups: a file, a directory, or a bucket."""

import re
from pathlib import Path
from typing import Final

import msgspec

from mauve.config import BackupSettings, Settings
from mauve.control import ControlParts
from mauve.maintenance.backup_schedule import BackupState
from mauve.maintenance.encryption import BackupKeys
from mauve.maintenance.errors import MaintenanceRefusedError
from mauve.maintenance.stored_backups import BackupTarget, StoredSource, backup_name, created_at_of, newest_in
from mauve.stores.backups import BackupStore
from mauve.stores.backups.disk import FolderBackupStore
from mauve.wiring.databases import stored_identity
from mauve.wiring.paths import backup_drafts_path

_STATE_FACT: Final = "backup_state"
_state: Final = msgspec.json.Decoder(BackupState)
_NO_IDENTITY: Final = "0" * 8  # of data that no service has used yet
_BUCKET: Final = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(/.*)?", re.ASCII)


def is_bucket(place: str) -> bool:
    return place.startswith("s3:")


def open_backup_store(settings: BackupSettings, place: str) -> BackupStore:
    """Open a bucket, or a directory, which must exist."""
    if is_bucket(place):
        return _open_bucket(settings, place)
    if not Path(place).is_dir():
        raise MaintenanceRefusedError(f"there is no directory {place}: create it, or choose another place")
    return FolderBackupStore(Path(place))


def target_in(
    settings: Settings, place: str, store: BackupStore, now_ms: int, keys: BackupKeys | None
) -> tuple[str, BackupTarget]:
    """Return the name of a new backup in a store, and where to write it."""
    name = backup_name(now_ms, stored_identity(settings) or _NO_IDENTITY, is_encrypted=keys is not None)
    if is_bucket(place):
        address = f"{place.rstrip('/')}/{name}"
        return name, BackupTarget(store, address, backup_drafts_path(settings.data), folder=None, keys=keys)
    return name, file_target(settings, Path(place) / name, keys)


def file_target(settings: Settings, file: Path, keys: BackupKeys | None = None) -> BackupTarget:
    """Return the target for a file. The copies of the databases stay in the data directory: they are not encrypted."""
    drafts = backup_drafts_path(settings.data)
    return BackupTarget(FolderBackupStore(file.parent), str(file), drafts, folder=file.parent, keys=keys)


def stored_source(settings: BackupSettings, place: str) -> StoredSource:
    """Return the backup at an address, or the newest one under it."""
    parent, _, name = place.rpartition("/")
    if parent and created_at_of(name) is not None:
        return StoredSource(open_backup_store(settings, parent), name)
    return newest_in(open_backup_store(settings, place))


def backup_state(parts: ControlParts) -> BackupState:
    """Return the state of the service's own backups."""
    text = parts.catalog.installation.get(_STATE_FACT)
    return BackupState() if text is None else _state.decode(text)


def save_backup_state(parts: ControlParts, state: BackupState) -> None:
    parts.catalog.installation.put(_STATE_FACT, msgspec.json.encode(state).decode())


def _open_bucket(settings: BackupSettings, url: str) -> BackupStore:
    match = _BUCKET.fullmatch(url)
    if match is None:
        raise MaintenanceRefusedError("the address of a bucket must have the form s3://BUCKET/PREFIX")
    try:
        from mauve.stores.backups.s3 import Bucket, S3BackupStore  # noqa: PLC0415 - large, rarely needed
    except ModuleNotFoundError:
        raise MaintenanceRefusedError("s3:// needs the package boto3: install mauve[s3]") from None
    prefix = (match[2] or "").strip("/")
    return S3BackupStore(
        Bucket(
            match[1],
            f"{prefix}/" if prefix else "",
            settings.endpoint,
            settings.region,
            settings.access_key_id,
            settings.secret_access_key,
        )
    )
