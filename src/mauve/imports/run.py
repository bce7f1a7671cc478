"""Import one file, exactly once, and undo it.

A file is read twice: first to find every row that cannot be imported, then to store it in chunks. For each chunk the
order is: reopen its days, store its rows in the warehouse, reopen its days again, and record its money together with
the position in the file. After a crash the same command continues with the first chunk that was not recorded; the
warehouse is asked which of its rows it has.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from io import BufferedReader
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from mauve.core.clock import Clock
from mauve.core.window import today_at
from mauve.imports.chunks import Chunk, FileSummary, chunks_of, rows_from, summary_of
from mauve.imports.events import read_events
from mauve.imports.files import digest_of, opened
from mauve.imports.items import Item, Target
from mauve.imports.polar import read_polar
from mauve.imports.stripe import read_stripe
from mauve.imports.tables import checked_map, read_plausible, read_posthog, read_table, read_umami
from mauve.maintenance import Progress
from mauve.maintenance.errors import MaintenanceRefusedError
from mauve.stores.imports import (
    ROWS_MAX,
    Import,
    ImportChunk,
    ImportCounts,
    ImportOutdatedError,
    ImportState,
    ImportWarehouse,
    NewImport,
)
from mauve.stores.ledger.imports import ImportLedger

_LATER_IMPORTS_MAX: Final = 10_000


class Format(NamedTuple):
    """How a format is read."""

    read: Callable[[BufferedReader, Target], Iterator[Item]]
    is_approximate: bool = False


FORMATS: Final[Mapping[str, Format]] = MappingProxyType(
    {
        "events": Format(read_events),
        "csv": Format(read_table),
        "stripe": Format(read_stripe, is_approximate=True),
        "polar": Format(read_polar, is_approximate=True),
        "umami": Format(read_umami),
        "posthog": Format(read_posthog),
        "plausible": Format(read_plausible),
    }
)


@dataclass(frozen=True, slots=True)
class ImportParts:
    ledger: ImportLedger
    warehouse: ImportWarehouse
    clock: Clock
    check: Callable[[], None]  # raises if the app may no longer be written to
    progress: Progress


@dataclass(frozen=True, slots=True)
class Source:
    """A file, and how to read it."""

    path: Path
    format: str
    target: Target
    who: str = ""

    @property
    def options(self) -> str:
        """Return everything that decides what the rows become, as text."""
        target = self.target
        return repr((sorted(target.columns.items()), target.times, sorted(target.renames.items())))

    def check(self) -> None:
        if not self.path.is_file():
            raise MaintenanceRefusedError(f"{self.path} is read several times: save it as a file first")
        if self.format == "csv":
            checked_map(self.target.columns)
        elif self.target.columns:
            raise MaintenanceRefusedError("--map is only for --format csv: leave it out")

    @property
    def size(self) -> int:
        return self.path.stat().st_size

    @property
    def state(self) -> tuple[int, int, int]:
        """Return what differs when the file was changed or replaced."""
        found = self.path.stat()
        return found.st_ino, found.st_size, found.st_mtime_ns

    def check_same(self, seen: tuple[int, int, int], begun: Import | None) -> None:
        """Refuse a file that changes while it is read: what was stored would depend on when that was."""
        if self.state != seen:
            advice = "" if begun is None else f"run 'mauve import undo {begun.name}', and "
            raise MaintenanceRefusedError(
                f"{self.path.name} was changed while it was read: {advice}import it again when it is complete"
            )


def summarize_file(source: Source, progress: Progress) -> FileSummary:
    """Read the whole file, and store nothing."""
    source.check()
    progress.begin(f"checking {source.path.name}", source.size)
    with opened(source.path, progress.add) as file:
        return summary_of(FORMATS[source.format].read(file, source.target))


def import_file(source: Source, parts: ImportParts, bad_max: int) -> Import:
    """Import a file or continue to, and return it."""
    source.check()
    seen = source.state
    digest = digest_of(source.path)
    with _refused_if_outdated():
        found = parts.ledger.find_file(source.target.project, digest)
        if found is None:
            checked = summarize_file(source, parts.progress)
            source.check_same(seen, None)
            found = parts.ledger.begin(_new_import(source, digest, checked, bad_max, parts.clock.now_ms()))
        else:
            found = _continued(found, source, parts)
        parts.progress.begin(f"importing {source.path.name} as {found.name}", source.size)
        # Check and date rows as of the beginning of the import: the result must not depend on when it is resumed.
        target = replace(source.target, number=found.number, now_ms=found.began_at)
        with opened(source.path, parts.progress.add) as file:
            for chunk in chunks_of(FORMATS[source.format].read(file, target), found.rows):
                source.check_same(seen, found)
                _store(chunk, target, parts)
        return parts.ledger.finish(found.number, parts.clock.now_ms())


@contextmanager
def _refused_if_outdated() -> Iterator[None]:
    try:
        yield
    except ImportOutdatedError as error:
        raise MaintenanceRefusedError(str(error)) from error


def check_bad_rows(checked: Iterable[tuple[Path, FileSummary]], bad_max: int) -> None:
    """Raise `BadRowsError` about the first file with more bad rows than are left out."""
    for path, found in checked:
        if found.bad > bad_max:
            raise BadRowsError(path.name, found)


def _new_import(source: Source, digest: str, checked: FileSummary, bad_max: int, now_ms: int) -> NewImport:
    check_bad_rows([(source.path, checked)], bad_max)
    if checked.days is None or checked.rows > ROWS_MAX:
        raise MaintenanceRefusedError(f"{source.path.name} holds nothing to import: check the file and --format")
    first_day, last_day = checked.days
    return NewImport(
        project=source.target.project,
        format=source.format,
        file=source.path.name,
        digest=digest,
        options=source.options,
        first_day=first_day,
        last_day=last_day,
        is_approximate=FORMATS[source.format].is_approximate and checked.subscriptions > 0,
        who=source.who,
        began_at=now_ms,
    )


class BadRowsError(MaintenanceRefusedError):
    """Rows cannot be imported, so nothing was stored."""

    def __init__(self, name: str, checked: FileSummary) -> None:
        # Leaving out every row would import nothing: the file is of another format.
        some = "not every row can be imported: correct the file, or leave out the bad rows with"
        none = "none of its rows can be imported: check --format, and export the file again"
        reason = none if checked.days is None else f"{some} --max-bad {checked.bad}"
        super().__init__(f"nothing of {name} was stored, because {reason}")
        self.summary = checked


def _continued(found: Import, source: Source, parts: ImportParts) -> Import:
    """Return the interrupted import of this file, or refuse to import it twice."""
    if found.state is ImportState.DONE:
        raise MaintenanceRefusedError(
            f"{source.path.name} was imported before, as {found.name}: to import it again, first run "
            f"'mauve import undo {found.name}'"
        )
    if found.state is ImportState.UNDOING:
        raise MaintenanceRefusedError(
            f"{found.name} is being undone: finish that with 'mauve import undo {found.name}'"
        )
    if (found.format, found.options) != (source.format, source.options):
        raise MaintenanceRefusedError(
            f"{found.name} of this file was begun with other options: continue with those, or first run "
            f"'mauve import undo {found.name}'"
        )
    stored = parts.warehouse.row_count(found.project, found.number)
    # A backup may hold an older warehouse than ledger: then every row is looked at again.
    is_short = stored < found.counts.events + found.counts.repeats
    return parts.ledger.restart(found.number) if is_short else found


def _store(chunk: Chunk, target: Target, parts: ImportParts) -> None:
    parts.check()
    counts = chunk.counts
    if chunk.events:
        first_day = today_at(min(event.at for event in chunk.events))
        parts.ledger.reopen_days(first_day)
        for rows in rows_from(chunk, target):
            stored = parts.warehouse.store(target.number, rows)
            counts = counts.plus(ImportCounts(events=stored.counted, repeats=stored.repeats))
        parts.ledger.reopen_days(first_day)  # A count that began before may lack these rows.
    part = ImportChunk(chunk.first_row, chunk.end_row, counts, chunk.payments, chunk.subscriptions, chunk.figures)
    try:
        parts.ledger.commit(target.number, part)
    except ImportOutdatedError:
        found = parts.ledger.find(target.number)
        if found is None or found.state is not ImportState.RUNNING:
            parts.warehouse.undo(target.project, target.number)  # These rows were stored after the others were deleted.
        raise


def undo(number: int, parts: ImportParts) -> Import:
    """Remove everything that an import stored. Repeating it after an interruption removes the rest."""
    ledger, found = parts.ledger, parts.ledger.find(number)
    if found is None:
        raise MaintenanceRefusedError("there is no such import: see 'mauve import list --app APP'")
    if found.state is ImportState.UNDONE:
        return _undo_late_rows(found, parts)
    _refuse_if_needed(found, ledger)
    entries = found.counts.payments + found.counts.subscriptions
    parts.progress.begin(f"undoing {found.name}", entries + 1)
    first_day = date.fromisoformat(found.first_day)
    with _refused_if_outdated():
        ledger.begin_undo(number)
        ledger.reopen_days(first_day)
        parts.warehouse.undo(found.project, number)
        parts.progress.add(1)
        for deleted in ledger.undo_money(number):
            parts.progress.add(deleted)
        ledger.reopen_days(first_day)
        return ledger.finish_undo(number, parts.clock.now_ms())


def _undo_late_rows(found: Import, parts: ImportParts) -> Import:
    """Remove rows that a command stored after they were undone, and was killed before it could remove them itself."""
    if not parts.warehouse.undo(found.project, found.number):
        raise MaintenanceRefusedError(f"{found.name} was undone before: nothing of it is left")
    parts.ledger.reopen_days(date.fromisoformat(found.first_day))
    return found


def _refuse_if_needed(found: Import, ledger: ImportLedger) -> None:
    """Refuse while a later import leaves out rows because this one has them."""
    for later in ledger.latest([found.project], _LATER_IMPORTS_MAX):
        relies = later.counts.repeats + later.counts.payments_known > 0
        if later.number > found.number and later.state is not ImportState.UNDONE and relies:
            raise MaintenanceRefusedError(
                f"{later.name} left out rows that were known, perhaps from {found.name}: undo {later.name} first"
            )
