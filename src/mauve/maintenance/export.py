"""Export all rows of a project, or those of one person: to standard output, a file, or a folder of Parquet files.

A file or folder gets its final name only when it is complete.
"""

import gzip
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa

from mauve.maintenance import Progress
from mauve.maintenance.disk_space import sync_folder, sync_tree
from mauve.maintenance.errors import MaintenanceFailedError, MaintenanceRefusedError
from mauve.maintenance.export_lines import SCHEMAS, event_table, json_lines, payment_table, subscription_table
from mauve.stores.export import Chosen, EventExport, EventExtent
from mauve.stores.ledger.export import LedgerExport

_LEVEL: Final = 6  # the default of the gzip program
_SUFFIX: Final = ".partial"  # until complete; `tempfile` makes it readable only by the owner

ExportOutput = Callable[[str, pa.Table], object]  # adds rows of a kind


@contextmanager
def open_output(path: Path, *, as_parquet: bool, may_replace: bool) -> Iterator[ExportOutput]:
    """Refuse an unusable path before anything is read. The output gets its name if the block succeeds."""
    _check(path, may_replace=may_replace)
    kind: Callable[..., AbstractContextManager[ExportOutput]] = _parquet_folder if as_parquet else _json_lines_file
    try:
        with kind(path, may_replace=may_replace) as output:
            yield output
    except OSError as error:  # Only from writing: reading raises other errors.
        raise not_written(path, error) from error


def not_written(path: object, error: OSError) -> MaintenanceFailedError:
    reason = error.strerror or str(error)
    return MaintenanceFailedError(
        f"{path} could not be written ({reason}): check its permissions and the free space, and export again"
    )


def json_output(write: Callable[[bytes], object]) -> ExportOutput:
    """Write one JSON object per line."""
    return lambda kind, rows: write(json_lines(kind, rows))


@contextmanager
def _json_lines_file(path: Path, *, may_replace: bool) -> Iterator[ExportOutput]:
    """Write a file, compressed if its name ends in .gz."""
    if os.path.lexists(path) and (path.is_symlink() or not path.is_file()):
        raise MaintenanceRefusedError(f"{path} is not a regular file: choose another name, or use standard output")
    descriptor, name = tempfile.mkstemp(_SUFFIX, f".{path.name}.", path.absolute().parent)
    draft = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if path.suffix == ".gz":
                with gzip.GzipFile(filename="", mode="wb", compresslevel=_LEVEL, fileobj=file) as compressed:
                    yield json_output(compressed.write)
            else:
                yield json_output(file.write)
            file.flush()
            os.fsync(file.fileno())
        _put_in_place(draft, path, may_replace=may_replace)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def _parquet_folder(path: Path, *, may_replace: bool) -> Iterator[ExportOutput]:
    """Write a folder with a file for each kind of row, even if there are no rows. Every page is a row group."""
    from pyarrow import parquet  # noqa: PLC0415 - slow to import

    if os.path.lexists(path) and not _is_replaceable(path):
        raise MaintenanceRefusedError(f"{path} is not the folder of an earlier export: name a new folder")
    draft = Path(tempfile.mkdtemp(_SUFFIX, f".{path.name}.", path.absolute().parent))
    try:
        with ExitStack() as opened:
            writers = {
                kind: opened.enter_context(parquet.ParquetWriter(draft / _file_of(kind), schema, compression="zstd"))
                for kind, schema in SCHEMAS.items()
            }
            yield lambda kind, rows: writers[kind].write_table(rows)
        sync_tree(draft)
        _put_in_place(draft, path, may_replace=may_replace)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _is_replaceable(path: Path) -> bool:
    """Return whether it is a folder that contains only an export."""
    files = set(map(_file_of, SCHEMAS))
    return path.is_dir() and not path.is_symlink() and files.issuperset(each.name for each in path.iterdir())


def _file_of(kind: str) -> str:
    return f"{kind}s.parquet"


def _check(path: Path, *, may_replace: bool) -> None:
    if not path.absolute().parent.is_dir():
        raise MaintenanceRefusedError(f"there is no directory {path.parent}: create it, or choose another place")
    if os.path.lexists(path) and not may_replace:
        raise MaintenanceRefusedError(f"{path} already exists: choose another name, or replace it with --force")


def _put_in_place(draft: Path, path: Path, *, may_replace: bool) -> None:
    _check(path, may_replace=may_replace)  # It may have appeared during the export.
    if path.is_dir():
        earlier = draft.with_suffix(".earlier")
        path.rename(earlier)
        draft.rename(path)
        shutil.rmtree(earlier)
    else:
        draft.replace(path)
    sync_folder(path.absolute().parent)


class Exported(msgspec.Struct, frozen=True):
    events: int
    payments: int
    subscription_versions: int


def export(
    chosen: Chosen, events: EventExport, ledger: LedgerExport, output: ExportOutput, progress: Progress
) -> Exported:
    """Write every selected row once, one page at a time to limit memory."""

    def add(kind: str, tables: Iterable[pa.Table]) -> int:
        count = 0
        for table in tables:
            output(kind, table)
            progress.add(table.num_rows)
            count += table.num_rows
        return count

    progress.begin("loading queued events", 0)
    extent = events.extent(chosen)
    progress.begin("exporting events", extent.events)
    event_count = add("event", _event_tables(chosen, events, extent))
    if event_count < extent.events:
        deleted = "some were deleted or erased in between; export again"
        raise MaintenanceFailedError(f"only {event_count} of {extent.events} events are left: {deleted}")
    progress.begin("exporting payments", 0)
    payment_count = add("payment", map(payment_table, ledger.payments(chosen)))
    progress.begin("exporting subscriptions", 0)
    version_count = add("subscription", map(subscription_table, ledger.versions(chosen)))
    return Exported(event_count, payment_count, version_count)


def _event_tables(chosen: Chosen, events: EventExport, extent: EventExtent) -> Iterator[pa.Table]:
    for day, _ in extent.days:
        after, is_last = 0, False
        while not is_last:
            page = events.page(chosen, extent.ends, day, after)
            after, is_last = page.last, page.is_last
            if page.rows:
                yield event_table(page)
