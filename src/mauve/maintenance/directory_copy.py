"""Copy a data directory that no process uses: before an upgrade, and on the way back.

Files that are never changed in place become hard links, which take no space until the original replaces them.
Databases are copied by their engine, other files of the service byte by byte, and nothing else. The copy is a data
directory itself.
"""

import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, auto
from pathlib import Path, PurePath
from typing import Final, NamedTuple

import msgspec

from mauve.maintenance.backup import CATALOG, LEDGER, LOG, Progress, Snapshot
from mauve.maintenance.disk_space import bytes_in, check_free_space, files_in, format_bytes, sync_folder
from mauve.maintenance.errors import MaintenanceRefusedError
from mauve.maintenance.restore import SYSTEM_NAMES, drafts_for, move_into_place, refuse_used_directory
from mauve.stores.data_directory import write_private_file

COPIES: Final = "before-upgrades"
_NOTE: Final = "copy.json"
_DRAFT: Final = "unfinished"
_DATABASES: Final = frozenset({CATALOG, LEDGER})
_PRIVATE_FILE: Final = 0o600
_PRIVATE_DIRECTORY: Final = 0o700


@dataclass(frozen=True, slots=True)
class CopyRules:
    """What the engines promise about their files."""

    is_immutable: Callable[[PurePath], bool]  # given a file's path in the directory
    snapshot: Callable[[Path], Snapshot]  # of a database
    names: frozenset[str]  # what the service cannot create again; others, such as backups, are not copied


class CopyNote(msgspec.Struct, frozen=True):
    """Describes a complete copy."""

    mauve: str  # the release that wrote the data
    created_at: int  # epoch ms
    state: str  # a digest that changes when the data does
    content: dict[str, str] = {}  # a digest of names and sizes for each file and folder right in the copy


_note: Final = msgspec.json.Decoder(CopyNote)


class DirectoryCopy(NamedTuple):
    folder: Path
    copied_bytes: int  # without hard links
    linked_bytes: int


class _Kind(Enum):
    FOLDER = auto()
    SYMLINK = auto()
    DATABASE = auto()
    LINK = auto()
    FILE = auto()


class _Entry(NamedTuple):
    kind: _Kind
    source: Path
    place: PurePath  # in the directory
    size: int


def copy_before_upgrade(
    data: Path, rules: CopyRules, progress: Progress, *, release: str, now_ms: int, keep: int
) -> DirectoryCopy:
    """Return a copy of the directory as it is now: a new one, or the one made by an earlier attempt.

    It appears under its name only when it is complete. Older ones than the newest `keep` are removed.
    """
    copies = data / COPIES
    copies.mkdir(mode=_PRIVATE_DIRECTORY, exist_ok=True)
    shutil.rmtree(copies / _DRAFT, ignore_errors=True)  # left over from an attempt that was killed
    state = _state_of(data)
    for folder in reversed(_complete_copies(copies)):
        if _is_copy_of(state, folder, rules):
            return DirectoryCopy(folder, 0, 0)
    try:
        copy = _new_copy(data, copies, rules, CopyNote(release, now_ms, state), progress)
    except BaseException:
        shutil.rmtree(copies / _DRAFT, ignore_errors=True)
        with suppress(OSError):  # It holds earlier copies.
            copies.rmdir()
        raise
    older = [folder for folder in _complete_copies(copies) if folder != copy.folder]  # even if the clock was set back
    for old in older[: max(0, len(older) + 1 - keep)]:
        shutil.rmtree(old)
    return copy


def is_copy(folder: Path) -> bool:
    return (folder / _NOTE).is_file()


def read_note(folder: Path) -> CopyNote:
    """Return the description of a copy; refuse a folder that is none."""
    try:
        return _note.decode((folder / _NOTE).read_bytes())
    except (FileNotFoundError, NotADirectoryError, msgspec.MsgspecError, UnicodeDecodeError):
        raise MaintenanceRefusedError(
            f"{folder} is not a complete copy of a data directory: name a backup file, or a folder in {COPIES}"
        ) from None


def restore_copy(
    folder: Path, data: Path, rules: CopyRules, check_tables: Callable[[Path], None], progress: Progress
) -> CopyNote:
    """Create a data directory from a copy, completely or not at all. The copy stays as it is."""
    note = read_note(folder)
    _check_content(folder, note, rules)
    data = data.resolve()
    refuse_used_directory(data)
    data.parent.mkdir(mode=_PRIVATE_DIRECTORY, parents=True, exist_ok=True)
    with drafts_for(data) as drafts:
        to_copy, _ = _sizes(folder, drafts, rules)
        check_free_space(drafts, to_copy)
        progress.begin("copying", to_copy)
        _copy_into(folder, drafts, rules, progress.add)
        check_tables(drafts)
        move_into_place(drafts, data)
    return note


def _new_copy(data: Path, copies: Path, rules: CopyRules, note: CopyNote, progress: Progress) -> DirectoryCopy:
    draft = copies / _DRAFT
    draft.mkdir(mode=_PRIVATE_DIRECTORY)
    to_copy, linked = _sizes(data, draft, rules)
    _check_space(copies, to_copy + bytes_in(data / LEDGER))  # The migration may write the ledger once more.
    progress.begin("copying", to_copy)
    _copy_into(data, draft, rules, progress.add)
    note = msgspec.structs.replace(note, content=_content_of(draft, rules.names, rules))
    write_private_file(draft / _NOTE, msgspec.json.encode(note) + b"\n")
    moment = datetime.fromtimestamp(note.created_at / 1000, UTC).strftime("%Y-%m-%dT%H%M%S.%fZ")
    folder = copies / moment
    draft.rename(folder)
    sync_folder(copies)
    sync_folder(data)
    return DirectoryCopy(folder, to_copy, linked)


def _check_space(folder: Path, bytes_needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < bytes_needed:
        raise MaintenanceRefusedError(
            f"{folder.parent} has {format_bytes(free)} free, and the copy before the upgrade may need "
            f"{format_bytes(bytes_needed)}: free some space, or run 'mauve backup' with the release before and "
            "upgrade without a copy with MAUVE_UPGRADE_COPIES=0"
        )


def _complete_copies(copies: Path) -> list[Path]:
    """Return the copies, oldest first: their names are times."""
    return sorted(path for path in copies.iterdir() if is_copy(path) and path.name != _DRAFT)


def _is_copy_of(state: str, folder: Path, rules: CopyRules) -> bool:
    """Return whether a folder holds a complete copy of that state."""
    try:
        note = read_note(folder)
        if note.state != state:
            return False
        _check_content(folder, note, rules)
    except MaintenanceRefusedError:
        return False
    return True


def _check_content(folder: Path, note: CopyNote, rules: CopyRules) -> None:
    """Refuse a copy that has lost or gained something, perhaps while it was copied to another disk."""
    expected = note.content.keys() or _DATABASES  # Earlier notes did not list it.
    found = _content_of(folder, expected, rules)
    missing = sorted(expected - found.keys())
    changed = sorted(name for name in found if note.content.get(name, found[name]) != found[name])
    if missing or changed:
        reasons = [f"{', '.join(missing)} missing"] if missing else []
        reasons += [f"{', '.join(changed)} changed"] if changed else []
        raise MaintenanceRefusedError(
            f"{folder} is not the copy that was made ({'; '.join(reasons)}): copy it again from where it was made, "
            "or restore another copy or a backup"
        )


def _content_of(folder: Path, names: AbstractSet[str], rules: CopyRules) -> dict[str, str]:
    """Return a digest of names and sizes for each of the named files and folders."""
    return {path.name: _digest_of(path, rules) for path in sorted(folder.iterdir()) if path.name in names}


def _digest_of(path: Path, rules: CopyRules) -> str:
    digest = hashlib.sha256()
    for entry in _tree(path.resolve(), PurePath(path.name), rules):
        if entry.kind is not _Kind.FOLDER:
            digest.update(os.fsencode(f"{entry.place} {entry.size}\n"))
    return digest.hexdigest()


def _state_of(data: Path) -> str:
    """Return a digest that changes when a database or the log does. Merges in the warehouse change no row."""
    databases = [data / f"{name}{suffix}" for name in sorted(_DATABASES) for suffix in ("", "-wal")]
    digest = hashlib.sha256()
    for path in (*databases, *files_in(data / LOG)):
        with suppress(FileNotFoundError):
            found = path.stat()
            if found.st_size:  # Opening a database creates an empty journal.
                digest.update(f"{path.relative_to(data)} {found.st_size} {found.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _sizes(source: Path, target: Path, rules: CopyRules) -> tuple[int, int]:
    """Return how many bytes have to be copied, and how many are in files that can be linked."""
    copied = linked = 0
    for entry in _entries(source, target, rules):
        if entry.kind is _Kind.LINK:
            linked += entry.size
        else:
            copied += entry.size
    return copied, linked


def _copy_into(source: Path, target: Path, rules: CopyRules, on_bytes: Callable[[int], None]) -> None:
    """Copy the directory, durably."""
    folders = [target]
    for entry in _entries(source, target, rules):
        copy = target / entry.place
        match entry.kind:
            case _Kind.FOLDER:
                copy.mkdir(mode=_PRIVATE_DIRECTORY)
                folders.append(copy)
            case _Kind.SYMLINK:
                copy.symlink_to(entry.source.readlink())
            case _Kind.LINK:
                os.link(entry.source, copy)
            case _Kind.DATABASE:
                with closing(rules.snapshot(entry.source)) as snapshot:
                    snapshot.copy_to(copy, on_bytes)
                copy.chmod(_PRIVATE_FILE)
            case _Kind.FILE:
                _copy_file(entry.source, copy)
                on_bytes(entry.size)
    for folder in folders:
        sync_folder(folder)


def _entries(source: Path, target: Path, rules: CopyRules) -> Iterator[_Entry]:
    """Yield what belongs to the copy, folders before their content."""
    can_link = _can_link(target)
    device = target.stat().st_dev
    for path in sorted(source.iterdir()):
        if path.name in rules.names:
            # A symbolic link right in the directory leads to data on another disk: copy that.
            for entry in _tree(path.resolve(), PurePath(path.name), rules):
                is_linkable = entry.kind is _Kind.LINK and can_link and entry.source.lstat().st_dev == device
                yield entry if entry.kind is not _Kind.LINK or is_linkable else entry._replace(kind=_Kind.FILE)


def _tree(path: Path, place: PurePath, rules: CopyRules) -> Iterator[_Entry]:
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode):
        yield _Entry(_Kind.SYMLINK, path, place, 0)
    elif stat.S_ISDIR(found.st_mode):
        yield _Entry(_Kind.FOLDER, path, place, 0)
        for child in sorted(path.iterdir()):
            if child.name not in SYSTEM_NAMES:  # A store may be a file system of its own.
                yield from _tree(child, place / child.name, rules)
    elif stat.S_ISREG(found.st_mode):
        kind = _Kind.LINK if rules.is_immutable(place) else _Kind.FILE
        yield _Entry(_Kind.DATABASE if str(place) in _DATABASES else kind, path, place, found.st_size)


def _can_link(folder: Path) -> bool:
    """Return whether the file system of a folder has hard links."""
    probe, link = folder / ".probe", folder / ".probe-link"
    try:
        probe.touch(_PRIVATE_FILE)
        os.link(probe, link)
    except OSError:
        return False
    else:
        return True
    finally:
        probe.unlink(missing_ok=True)
        link.unlink(missing_ok=True)


def _copy_file(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)
    target.chmod(_PRIVATE_FILE)
    with target.open("rb") as file:
        os.fsync(file.fileno())
