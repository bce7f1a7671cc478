"""What is done to a store beside writing and reading it: frozen for a backup, rid of a person, rid of what is old.

Nothing here moves a figure: counts, sketches and money are the same before and after.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Frozen:
    """The warehouse at one moment, as files that nothing changes any more."""

    folders: Mapping[str, Path]  # of each table; one folder in it for each part
    events: int  # how many rows of events there are in them


class WarehouseMaintenance(Protocol):
    """Works beside the loader and the readers, in their process.

    - `freeze` holds every row that was committed before. What was frozen earlier is let go of.
    - Rows that are made anonymous count as before; they keep their project, name, day and `seq`.
    - What is asked for twice is done once: the second time there is nothing left to do.
    """

    def freeze(self) -> Frozen: ...

    def thaw(self) -> None:
        """Let go of what is frozen."""
        ...

    def adopt(self, frozen: Frozen) -> None:
        """Take frozen parts into this warehouse, which is empty; they are moved. Raise if rows are missing then."""
        ...

    def erase_user(self, project: str, user: str) -> int:
        """Make a person's events anonymous, durably; return how many."""
        ...

    def anonymize_raw_before(self, day: date) -> int:
        """Make the events of the days before this one anonymous, durably; return how many."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ErasedEntries:
    """How many entries of the ledger were rid of a person."""

    payments: int
    subscription_versions: int
    dead_letters: int


class LedgerMaintenance(Protocol):
    """Works beside those who record and load.

    - A payment keeps its id, digest, times and money: when it comes again it is a duplicate, as before.
    - A version of a subscription keeps its id and all that MRR is made of.
    """

    def erase_user(self, project: str, user: str) -> ErasedEntries: ...

    def empty_journal(self) -> bool:
        """Leave no copy of what was changed beside the ledger; False if somebody reads it for too long."""
        ...

    def close(self) -> None: ...


class LogMaintenance(Protocol):
    """Works on what the log has let go of; no record that waits to be loaded is touched."""

    def erase_damaged(self, user: str) -> int:
        """Delete the damaged records that were set aside and hold the name; return how many."""
        ...

    def blank_loaded(self) -> bool:
        """Overwrite what loaded records have left in the files of streams without a writer; tell if that was all."""
        ...
