"""Imports of history: what was imported from which file, and the rows of it in the warehouse and the ledger.

A row of the warehouse is identified by the import's number and its own number in the file, both of which its `seq`
holds. So storing a row again changes nothing, and an import can be undone without a list of its rows.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

import msgspec

from mauve.stores.ledger import Payment, SubscriptionVersion
from mauve.stores.log import STREAM_MAX
from mauve.stores.warehouse import EventRows, first_seq

IMPORT_STREAM: Final = (
    STREAM_MAX - 2
)  # No worker and no demo uses it, so the loader never looks for these rows in a log.
_ROW_BITS: Final = 36
ROWS_MAX: Final = 2**_ROW_BITS
IMPORTS_MAX: Final = 2 ** (56 - _ROW_BITS) - 1
SOURCE_PREFIX: Final = "import-"
# Below the rank of every delivery of the same moment: a biller knows better than a file.
_RANK: Final = b"\0\0\0" + SOURCE_PREFIX.encode()


def seq_of(number: int, row: int) -> int:
    return first_seq(IMPORT_STREAM, 0) + (number << _ROW_BITS) + row


def source_of(number: int) -> str:
    """Return the source of an import's rows, which is also the import's name: `import-3`."""
    return f"{SOURCE_PREFIX}{number}"


def number_in(name: str) -> int | None:
    digits = name.removeprefix(SOURCE_PREFIX)
    return int(digits) if digits.isdecimal() and len(digits) < 10 else None  # noqa: PLR2004 - more than any number


def rank_of(number: int, row: int, place: int) -> bytes:
    """Return the rank of a subscription version: its import, its row, and its place among the versions of that row."""
    return rank_prefix(number) + b"%012d.%d" % (row, place)


def rank_prefix(number: int) -> bytes:
    return _RANK + b"%07d:" % number


def source_in_rank(rank: bytes) -> str | None:
    """Return the source of an imported subscription version; None if it was not imported."""
    if not rank.startswith(_RANK):
        return None
    return source_of(int(rank.removeprefix(_RANK).partition(b":")[0]))


class ImportState(StrEnum):
    RUNNING = "running"  # or interrupted: the same command continues it
    DONE = "done"
    UNDOING = "undoing"  # or interrupted: the same command continues it
    UNDONE = "undone"


class ImportCounts(msgspec.Struct, frozen=True):
    """What became of the rows of a file, or of a part of it."""

    events: int = 0
    repeats: int = 0  # events whose id was known: stored, but not counted
    payments: int = 0
    payments_known: int = 0  # their id was recorded before: nothing changes
    subscriptions: int = 0  # versions
    figures: int = 0  # daily figures of another tool
    skipped: int = 0  # rows that hold nothing to import
    bad: int = 0  # rows that cannot be read

    def plus(self, other: "ImportCounts") -> "ImportCounts":
        mine, theirs = msgspec.structs.astuple(self), msgspec.structs.astuple(other)
        return ImportCounts(*(one + another for one, another in zip(mine, theirs, strict=True)))


class NewImport(msgspec.Struct, frozen=True):
    project: str
    format: str
    file: str  # its name, without folders
    digest: str  # SHA-256 of the file, in hexadecimal
    options: str  # how it is read, as text: an import continues only with the same ones
    first_day: str  # YYYY-MM-DD
    last_day: str
    is_approximate: bool  # MRR is reconstructed
    who: str  # the login of the operator
    began_at: int  # epoch ms


class Import(NewImport, frozen=True):
    number: int = 0
    state: ImportState = ImportState.RUNNING
    rows: int = 0  # read and stored so far
    counts: ImportCounts = ImportCounts()
    ended_at: int | None = None

    @property
    def name(self) -> str:
        return source_of(self.number)


class Figure(NamedTuple):
    """A daily figure of another tool, which enters no metric of ours."""

    day: str  # YYYY-MM-DD
    name: str
    value: int


class ImportChunk(msgspec.Struct, frozen=True):
    """Consecutive rows of a file: what the ledger records of them in one transaction."""

    first_row: int
    end_row: int
    counts: ImportCounts
    payments: Sequence[Payment] = ()
    subscriptions: Sequence[SubscriptionVersion] = ()
    figures: Sequence[Figure] = ()


class ImportOutdatedError(Exception):
    """The import is no longer where this process has left it: it was undone or deleted, or another process runs it."""


class StoredRows(msgspec.Struct, frozen=True):
    counted: int
    repeats: int


class ImportWarehouse(Protocol):
    """The warehouse's side of imports.

    - When `store` returns, the rows are durable. Of rows that are stored already, the earlier decision stands.
    - An event counts unless one with the same project and id counts already, however long ago, and has kept its id.
    - `undo` removes the rows, and the users that no other source has on a day. Repeating it removes the rest.
    """

    def store(self, number: int, rows: EventRows) -> StoredRows: ...

    def row_count(self, project: str, number: int) -> int: ...

    def undo(self, project: str, number: int) -> int: ...
