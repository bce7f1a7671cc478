"""Counting a stream again: what a process that died had accepted, and what came before there was a cap."""

from collections.abc import Iterator
from typing import Final

from mauve.core.accepted import AcceptedCounts, OrgPeriod
from mauve.core.batch import HEADER_BYTES_MAX, MalformedBatchError, unpacked
from mauve.core.window import period_of
from mauve.stores.log import LogRecord, StreamReader

# So much at once: whoever counts again must look at the other processes in between.
RECORDS_AT_ONCE: Final = 20_000
BYTES_AT_ONCE: Final = 64 * 2**20


class Recount:
    """Of some organizations, up to a number of the stream."""

    def __init__(self, org_ids: frozenset[str], through: int) -> None:
        self.org_ids = org_ids
        self.through = through
        self.found = AcceptedCounts()
        self.is_done = False
        self._records: Iterator[LogRecord] | None = None

    def go_on(self, stream: StreamReader, position: int) -> None:
        """Count some more of what stands behind the position."""
        self._records = self._records or stream.records(position, self.through)
        size = 0
        for _ in range(RECORDS_AT_ONCE):
            record = next(self._records, None)
            if record is None:
                self.is_done = True
                return
            self._count(record)
            size += len(record.payload)
            if size > BYTES_AT_ONCE:
                return

    def _count(self, record: LogRecord) -> None:
        try:
            batch = unpacked(record.payload[:HEADER_BYTES_MAX])
        except MalformedBatchError:
            return  # The loader will not count it either.
        if batch.org_id in self.org_ids:
            self.found.add(OrgPeriod(batch.org_id, period_of(batch.received_at)), record.number, batch.event_count)
