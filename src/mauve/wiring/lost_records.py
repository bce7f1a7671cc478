"""Wires the handling of records that are missing from the log after a restore but not loaded."""

import structlog

from mauve.core.clock import SystemClock
from mauve.core.times import DAY_MS
from mauve.maintenance.errors import MaintenanceRefusedError
from mauve.stores.ledger import LoadStep
from mauve.stores.ledger.loading import LoadLedger
from mauve.stores.log import LogReader
from mauve.stores.warehouse.server.server import ServerAddress
from mauve.stores.warehouse.server.warehouse import recount_ids

ID_DAYS = 9  # how long ids are kept

log = structlog.get_logger()


def settle_lost_records(ledger: LoadLedger, reader: LogReader, address: ServerAddress, *, gives_up: bool) -> int:
    """Refuse if the log begins after the positions, unless `gives_up`; return the number of messages given up.

    Giving up moves the positions to the log's first record and drops an unfinished range, but not its stored rows. Ids
    are rebuilt from stored rows, because a lost event that is sent again must count.
    """
    positions = ledger.positions()
    lost = reader.lost_after(positions)
    messages = sum(each.messages for each in lost.values())
    if not lost:
        return 0
    if not gives_up:
        raise MaintenanceRefusedError(
            f"the log no longer holds {messages} message{'s' if messages > 1 else ''} of events that the backup lacks: "
            "restore a newer backup, or older streams with 'nats stream restore', "
            "or continue without them with 'mauve restore --servers --without-lost'"
        )
    recount_ids(address, SystemClock().now_ms() - ID_DAYS * DAY_MS)
    before = {stream: positions.get(stream, 0) for stream in lost}
    after = {stream: each.through for stream, each in lost.items()}
    ledger.finish(LoadStep(after, positions_before=before))
    log.error("log_records_given_up", messages=messages, streams=sorted(lost))
    return messages
