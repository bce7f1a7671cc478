"""Export all rows of a project, or those of one person: events, payments and subscription versions."""

from collections.abc import Iterator

import msgspec
import pyarrow as pa

from mauve.maintenance.backup import Progress
from mauve.maintenance.errors import MaintenanceFailedError
from mauve.maintenance.export_lines import event_table
from mauve.maintenance.export_output import ExportOutput
from mauve.stores.export import Chosen, EventExport, EventExtent
from mauve.stores.ledger.export import LedgerExport


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
