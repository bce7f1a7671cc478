"""Maintenance of the stores: freeze for a backup, erase a person, anonymize old events, delete a project.

Only the last of these changes a metric: with the others, counts, sketches and money stay the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Frozen:
    """The warehouse at one point in time, as immutable files."""

    folders: Mapping[str, Path]  # of each table, with one folder for each part
    events: int  # the number of event rows in them


class WarehouseMaintenance(Protocol):
    """Works in the process of the loader and the readers, at the same time.

    - `freeze` includes every row committed before, and releases what was frozen earlier.
    - Anonymized rows count as before; they keep their project, name, day and `seq`.
    - Repeating a call is harmless: the second one finds nothing to do.
    """

    def freeze(self) -> Frozen: ...

    def thaw(self) -> None: ...

    def adopt(self, frozen: Frozen) -> None:
        """Move frozen parts into this warehouse, which must be empty. Raise if rows are missing afterwards."""
        ...

    def erase_user(self, project: str, user: str) -> int:
        """Anonymize a person's events, durably; return how many."""
        ...

    def anonymize_raw_before(self, day: date) -> int:
        """Anonymize the events of days before this one, durably; return how many."""
        ...

    def delete_project(self, project: str) -> int:
        """Delete a project's events and user counts, durably; return how many events."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ChangedEntries:
    """How many entries of the ledger were erased or deleted; totals and notes are not counted."""

    payments: int
    subscription_versions: int
    dead_letters: int


class LogMaintenance(Protocol):
    """Works on trimmed data; records that are not loaded yet are never touched."""

    def erase_damaged(self, text: str) -> int:
        """Delete quarantined records that hold the text, a user or a project; return how many."""
        ...

    def blank_loaded(self) -> bool:
        """Overwrite loaded records in the files of streams without a writer; return whether that was all of them."""
        ...
