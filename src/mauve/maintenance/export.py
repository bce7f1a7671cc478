"""Export all rows of a project, or those of one person: to standard output, a file, or a folder of Parquet files.

A file or folder gets its final name only when it is complete.
"""

import gzip
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec
import pyarrow as pa

from mauve.maintenance.backup import Progress
from mauve.maintenance.disk_space import sync_folder, sync_tree
from mauve.maintenance.errors import MaintenanceFailedError, MaintenanceRefusedError
from mauve.maintenance.export_lines import (
    EVENTS,
    PAYMENTS,
    SUBSCRIPTIONS,
    event_lines,
    event_table,
    payment_lines,
    payment_table,
    subscription_lines,
    subscription_table,
)
from mauve.stores.export import Chosen, EventExport, EventExtent, ExportedPayment, ExportedVersion
from mauve.stores.ledger.export import LedgerExport

_LEVEL: Final = 6  # the default of the gzip program
_SUFFIX: Final = ".partial"  # until complete; `tempfile` makes it readable only by the owner
_SCHEMAS: Final = {"events": EVENTS, "payments": PAYMENTS, "subscriptions": SUBSCRIPTIONS}


class ExportOutput(Protocol):
    def add_events(self, events: pa.Table) -> None: ...

    def add_payments(self, payments: Sequence[ExportedPayment]) -> None: ...

    def add_versions(self, versions: Sequence[ExportedVersion]) -> None: ...


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


class JsonLines:
    """One JSON object per line."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write

    def add_events(self, events: pa.Table) -> None:
        self._write(event_lines(events))

    def add_payments(self, payments: Sequence[ExportedPayment]) -> None:
        self._write(payment_lines(payments))

    def add_versions(self, versions: Sequence[ExportedVersion]) -> None:
        self._write(subscription_lines(versions))


@contextmanager
def _json_lines_file(path: Path, *, may_replace: bool) -> Iterator[JsonLines]:
    """Write a file, compressed if its name ends in .gz."""
    if os.path.lexists(path) and (path.is_symlink() or not path.is_file()):
        raise MaintenanceRefusedError(f"{path} is not a regular file: choose another name, or use standard output")
    descriptor, name = tempfile.mkstemp(_SUFFIX, f".{path.name}.", path.absolute().parent)
    draft = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if path.suffix == ".gz":
                with gzip.GzipFile(filename="", mode="wb", compresslevel=_LEVEL, fileobj=file) as compressed:
                    yield JsonLines(compressed.write)
            else:
                yield JsonLines(file.write)
            file.flush()
            os.fsync(file.fileno())
        _put_in_place(draft, path, may_replace=may_replace)
    finally:
        draft.unlink(missing_ok=True)


class ParquetFiles:
    """A file for each kind of row. Every page is a row group."""

    def __init__(self, writers: dict[str, Any]) -> None:
        self._writers = writers

    def add_events(self, events: pa.Table) -> None:
        self._writers["events"].write_table(events)

    def add_payments(self, payments: Sequence[ExportedPayment]) -> None:
        self._writers["payments"].write_table(payment_table(payments))

    def add_versions(self, versions: Sequence[ExportedVersion]) -> None:
        self._writers["subscriptions"].write_table(subscription_table(versions))


@contextmanager
def _parquet_folder(path: Path, *, may_replace: bool) -> Iterator[ParquetFiles]:
    """Write a folder with a file for each kind of row, even if there are no rows."""
    from pyarrow import parquet  # noqa: PLC0415 - slow to import

    if os.path.lexists(path) and not _is_replaceable(path):
        raise MaintenanceRefusedError(f"{path} is not the folder of an earlier export: name a new folder")
    draft = Path(tempfile.mkdtemp(_SUFFIX, f".{path.name}.", path.absolute().parent))
    try:
        with ExitStack() as opened:
            yield ParquetFiles(
                {
                    name: opened.enter_context(
                        parquet.ParquetWriter(draft / f"{name}.parquet", schema, compression="zstd")
                    )
                    for name, schema in _SCHEMAS.items()
                }
            )
        sync_tree(draft)
        _put_in_place(draft, path, may_replace=may_replace)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _is_replaceable(path: Path) -> bool:
    """Return whether it is a folder that contains only an export."""
    files = {f"{name}.parquet" for name in _SCHEMAS}
    return path.is_dir() and not path.is_symlink() and files.issuperset(each.name for each in path.iterdir())


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
    progress.begin("loading queued events", 0)
    extent = events.extent(chosen)
    return Exported(
        events=_export_events(chosen, events, extent, output, progress),
        payments=_export_payments(chosen, ledger, output, progress),
        subscription_versions=_export_versions(chosen, ledger, output, progress),
    )


def _export_events(
    chosen: Chosen, events: EventExport, extent: EventExtent, output: ExportOutput, progress: Progress
) -> int:
    progress.begin("exporting events", extent.events)
    count = 0
    for table in _event_tables(chosen, events, extent):
        output.add_events(table)
        progress.add(table.num_rows)
        count += table.num_rows
    if count < extent.events:
        raise MaintenanceFailedError(
            f"only {count} of {extent.events} events are left: some were deleted or erased in between; export again"
        )
    return count


def _event_tables(chosen: Chosen, events: EventExport, extent: EventExtent) -> Iterator[pa.Table]:
    for day, _ in extent.days:
        after, is_last = 0, False
        while not is_last:
            page = events.page(chosen, extent.ends, day, after)
            after, is_last = page.last, page.is_last
            if page.rows:
                yield event_table(page)


def _export_payments(chosen: Chosen, ledger: LedgerExport, output: ExportOutput, progress: Progress) -> int:
    progress.begin("exporting payments", 0)
    count = 0
    for payments in ledger.payments(chosen):
        output.add_payments(payments)
        count += len(payments)
    return count


def _export_versions(chosen: Chosen, ledger: LedgerExport, output: ExportOutput, progress: Progress) -> int:
    progress.begin("exporting subscriptions", 0)
    count = 0
    for versions in ledger.versions(chosen):
        output.add_versions(versions)
        count += len(versions)
    return count
