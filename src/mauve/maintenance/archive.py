"""The backup file: a tar archive compressed with Zstandard.

The first member is the header. The last member lists the SHA-256 of all others, to detect damage.
"""

import hashlib
import io
import os
import struct
import tarfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Final, Literal, NamedTuple, Protocol, cast

import msgspec
import zstandard

from mauve.maintenance.errors import MaintenanceRefusedError
from mauve.stores.backups import Writable

FORMAT: Final = 1
_HEADER: Final = "mauve-backup.json"
LIST: Final = "members.json"
_PIECE_BYTES: Final = 2**20
_LIST_BYTES_MAX: Final = 256 * 2**20
_LEVEL: Final = 3
_END_TEXT: Final = b"end of backup\n"
# The file ends with a frame that Zstandard readers skip: if it is missing, the file is truncated.
_END: Final = struct.pack("<II", 0x184D2A50, len(_END_TEXT)) + _END_TEXT
_PRIVATE_FILE: Final = 0o600
_PRIVATE_DIRECTORY: Final = 0o700

OnBytes = Callable[[int], None]  # called with the size of each piece that was copied


class Header(msgspec.Struct, frozen=True):
    format: int
    mauve: str  # the version that created it
    created_at: int  # epoch ms
    bytes: int  # total size of the members
    events: int  # rows in the warehouse
    has_master_key: bool


_header: Final = msgspec.json.Decoder(Header)


class Source(Protocol):
    """A backup to read: a path or similar. `str()` returns its name for messages."""

    def open(self, mode: Literal["rb"]) -> AbstractContextManager[IO[bytes]]: ...


class Member(NamedTuple):
    name: str  # with slashes, on every platform
    path: Path


def write_archive(file: Writable, header: Header, members: Iterable[Member], on_bytes: OnBytes) -> None:
    digests: dict[str, str] = {}
    compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)
    with (
        compressor.stream_writer(cast("IO[bytes]", file), closefd=False) as compressed,
        tarfile.open(fileobj=compressed, mode="w|", bufsize=_PIECE_BYTES) as tar,
    ):
        _add(tar, _HEADER, io.BytesIO(content := msgspec.json.encode(header)), len(content))
        for member in members:
            with member.path.open("rb") as source:
                hashing = _HashingReader(source, on_bytes)
                _add(tar, member.name, hashing, os.fstat(source.fileno()).st_size)
            digests[member.name] = hashing.digest.hexdigest()
        _add(tar, LIST, io.BytesIO(content := msgspec.json.encode(digests)), len(content))
    file.write(_END)


def read_header(source: Source) -> Header:
    """Return the header; refuse a file that is not a backup or has a newer format."""
    with _open_tar(source) as (tar, _):
        return _read_header_from(tar, source)


def unpack_archive(source: Source, target: Path, on_bytes: OnBytes) -> None:
    """Extract every member into the target, and check each digest against the list."""
    with _open_tar(source) as (tar, file):
        _read_header_from(tar, source)
        digests, listed = _unpack_members(tar, target, on_bytes)
        if digests != listed:
            raise tarfile.ReadError("the members do not match their list")
        while file.read(_PIECE_BYTES):  # Truncation of an encrypted file shows only at its end.
            pass


def _unpack_members(tar: tarfile.TarFile, target: Path, on_bytes: OnBytes) -> tuple[dict[str, str], dict[str, str]]:
    """Return the digests of the extracted members, and those in the list."""
    digests: dict[str, str] = {}
    while entry := tar.next():
        source = _content_of(tar, entry)
        if entry.name == LIST:
            return digests, _list.decode(source.read(_LIST_BYTES_MAX))
        digests[entry.name] = _write_new(target / _checked_path(entry.name), source, on_bytes)
    raise tarfile.ReadError("it has no list of its members")


def _write_new(path: Path, source: IO[bytes], on_bytes: OnBytes) -> str:
    path.parent.mkdir(mode=_PRIVATE_DIRECTORY, parents=True, exist_ok=True)
    hashing = _HashingReader(source, on_bytes)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE_FILE)
    with os.fdopen(descriptor, "wb") as file:
        while piece := hashing.read(_PIECE_BYTES):
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    return hashing.digest.hexdigest()


def _add(tar: tarfile.TarFile, name: str, content: "IO[bytes] | _HashingReader", size: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, _PRIVATE_FILE
    tar.addfile(entry, content)


def _check_end(file: IO[bytes]) -> None:
    if file.seek(0, os.SEEK_END) < len(_END):
        raise tarfile.ReadError("it is too short")
    file.seek(-len(_END), os.SEEK_END)
    if file.read() != _END:
        raise tarfile.ReadError("it is truncated, or not a backup")
    file.seek(0)


def _read_header_from(tar: tarfile.TarFile, source: Source) -> Header:
    entry = tar.next()
    if entry is None or entry.name != _HEADER:
        raise tarfile.ReadError("it has no header")
    content = _content_of(tar, entry).read(_PIECE_BYTES)
    version = _format_version.decode(content)
    if version.format > FORMAT:
        raise MaintenanceRefusedError(
            f"{source} was made by mauve {version.mauve}, which is newer: restore it with that release"
        )
    return _header.decode(content)


class _FormatVersion(msgspec.Struct, frozen=True):
    """The header fields common to all formats."""

    format: int
    mauve: str


_list: Final = msgspec.json.Decoder(dict[str, str])
_format_version: Final = msgspec.json.Decoder(_FormatVersion)


def _content_of(tar: tarfile.TarFile, entry: tarfile.TarInfo) -> IO[bytes]:
    content = tar.extractfile(entry) if entry.isreg() else None
    if content is None:
        raise tarfile.ReadError(f"{entry.name} is not a file")
    return content


def _checked_path(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise tarfile.ReadError(f"{name} is outside the directory")
    return path


class _HashingReader:
    """Reads from a file and computes the digest of its content."""

    def __init__(self, source: IO[bytes], on_bytes: OnBytes) -> None:
        self.digest = hashlib.sha256()
        self._source = source
        self._on_bytes = on_bytes

    def read(self, size: int = _PIECE_BYTES) -> bytes:
        piece = self._source.read(size)
        self.digest.update(piece)
        self._on_bytes(len(piece))
        return piece


@contextmanager
def _open_tar(source: Source) -> Iterator[tuple[tarfile.TarFile, IO[bytes]]]:
    """Open a file and the tar in it; report any format error as a damaged backup."""
    try:
        with source.open("rb") as file:
            if file.seekable():
                _check_end(file)
            inflated = zstandard.ZstdDecompressor().stream_reader(file, closefd=False)
            with tarfile.open(fileobj=inflated, mode="r|", bufsize=_PIECE_BYTES) as tar:
                yield tar, file
    except (tarfile.TarError, zstandard.ZstdError, msgspec.MsgspecError, EOFError, UnicodeError) as error:
        reason = " ".join(str(error).split())
        raise MaintenanceRefusedError(f"{source} is not a whole backup ({reason}): use another copy") from error
    except FileNotFoundError:
        raise MaintenanceRefusedError(f"there is no file {source}: check the name") from None
