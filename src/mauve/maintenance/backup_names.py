"""The names of backups in a store, and which of them to keep."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from mauve.stores.backups import NAME_PREFIX, StoredBackup

_ENCRYPTED: Final = ".age"
_OWNER_CHARACTERS: Final = 8
_OWNER: Final = rf"(?:-([0-9a-f]{{{_OWNER_CHARACTERS}}}))?"
_NAME: Final = re.compile(rf"{NAME_PREFIX}(\d{{8}}T\d{{9}})Z{_OWNER}\.mauve({re.escape(_ENCRYPTED)})?", re.ASCII)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


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
