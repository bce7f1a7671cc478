"""Open a file to import: plain or compressed with gzip, within bounds, and know how far it was read."""

import codecs
import csv
import gzip
import hashlib
import io
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from mauve.maintenance.errors import MaintenanceRefusedError

LINE_BYTES_MAX: Final = 4 * 1024 * 1024
DOCUMENT_BYTES_MAX: Final = 64 * 1024 * 1024
_GZIP: Final = b"\x1f\x8b"
_COLUMNS_SHOWN_MAX: Final = 20
_COLUMNS_CHARACTERS_MAX: Final = 500
_PIECE_BYTES: Final = 1024 * 1024

Advance = Callable[[int], None]
"""Called with the number of bytes read since the last call."""


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class _Counted(io.RawIOBase):
    """A file that reports every read."""

    def __init__(self, path: Path, file: BinaryIO, advance: Advance) -> None:
        self.path = path
        self._file = file
        self._advance = advance

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # a bytes-like object
        count = self._file.readinto(buffer)  # type: ignore[attr-defined]  # every binary file has it
        self._advance(count)
        return int(count)


@contextmanager
def opened(path: Path, advance: Advance = lambda _count: None) -> Iterator[io.BufferedReader]:
    """Open a file for reading once, from the start, or after the mark that some programs write first."""
    with path.open("rb", buffering=0) as file:
        is_compressed = file.read(2) == _GZIP
        file.seek(0)
        raw: io.RawIOBase = _Counted(path, file, advance)
        counted = io.BufferedReader(raw, _PIECE_BYTES)
        if not is_compressed:
            skip_mark(counted)  # type: ignore[arg-type]  # of any stream
            yield counted  # type: ignore[misc]  # of any stream
            return
        try:
            with gzip.GzipFile(fileobj=counted) as stream:
                unpacked = io.BufferedReader(stream, _PIECE_BYTES)
                skip_mark(unpacked)  # type: ignore[arg-type]  # of any stream
                yield unpacked  # type: ignore[misc]  # of any stream
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise MaintenanceRefusedError(f"{path.name} is not a whole gzip file ({error}): make it again") from None


def skip_mark(file: io.BufferedReader) -> None:
    """Skip the byte order mark of UTF-8, and refuse UTF-16."""
    head = file.peek(3)[:3]
    if head == codecs.BOM_UTF8:
        file.read(len(head))
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise MaintenanceRefusedError("the file is UTF-16: convert it, for example with iconv -f UTF-16 -t UTF-8")


def lines_of(file: io.BufferedReader) -> Iterator[bytes]:
    """Yield every line, without its end. One that is too long is cut, so that it is not a valid row."""
    while line := file.readline(LINE_BYTES_MAX):
        yield line.rstrip(b"\r\n")
        while not line.endswith(b"\n") and (line := file.readline(LINE_BYTES_MAX)):
            pass


def csv_rows(file: io.BufferedReader, needed: Sequence[str]) -> Iterator[dict[str, str] | None]:
    """Yield the rows of a CSV file with a header, by column. A row is empty, or None if it does not fit the header."""
    csv.field_size_limit(LINE_BYTES_MAX)
    row_bytes = 0

    def lines() -> Iterator[str]:
        """Yield the lines as text. A row may take several, within bounds."""
        nonlocal row_bytes
        while line := file.readline(LINE_BYTES_MAX - row_bytes + 1):
            row_bytes += len(line)
            if row_bytes > LINE_BYTES_MAX:
                raise csv.Error(f"a row has more than {LINE_BYTES_MAX} bytes")
            yield line.decode()

    rows, count = csv.reader(lines(), strict=True), 0
    try:
        header = next(rows, [])
        if not header:
            raise MaintenanceRefusedError("the file has no header: its first line names the columns")
        _check_header(header, needed)
        for count, cells in enumerate(rows, 1):  # noqa: B007 - where an error is
            row_bytes = 0
            is_whole = not cells or len(cells) == len(header)
            yield dict(zip(header, cells, strict=bool(cells))) if is_whole else None
    except UnicodeDecodeError:
        raise MaintenanceRefusedError(
            f"the file is not UTF-8 after row {count}: convert it, for example with iconv"
        ) from None
    except csv.Error as error:
        raise MaintenanceRefusedError(
            f"the file is not CSV as RFC 4180 describes it after row {count} ({error}): check its quotes"
        ) from None


def _check_header(header: Sequence[str], needed: Sequence[str]) -> None:
    for name in needed:
        if name not in header:
            found = ", ".join(map(repr, header[:_COLUMNS_SHOWN_MAX]))[:_COLUMNS_CHARACTERS_MAX]
            raise MaintenanceRefusedError(
                f"the file has no column {name!r} but {found or 'none'}: check --format and --map, and use commas"
            )
        if header.count(name) > 1:
            raise MaintenanceRefusedError(f"the file has several columns {name!r}: rename all but one")
