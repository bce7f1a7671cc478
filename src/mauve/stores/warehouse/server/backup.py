"""Back up the warehouse on a server with its own statement, and bring a restored one in line with the ledger."""

import time
from collections.abc import Callable
from contextlib import closing
from typing import Final

from mauve.core.times import DAY_MS
from mauve.stores.warehouse import WarehouseUnavailableError, first_seq, last_numbers
from mauve.stores.warehouse.schema import IS_IMPORTED
from mauve.stores.warehouse.server.server import NOT_RECOGNIZED, ServerAddress, open_for_maintenance

POLL_EVERY_S: Final = 1.0
_BACKUP_S_MAX: Final = 24 * 3600.0
_REASON_CHARACTERS_MAX: Final = 150
_CREATED: Final = "BACKUP_CREATED"
_CREATING: Final = "CREATING_BACKUP"
_STATUS: Final = "SELECT status, error FROM system.backups WHERE id = {id:String}"
_ID_HASH: Final = "sipHash128(project, '/', id)"


def copy_database(
    address: ServerAddress,
    destination: str,
    check: Callable[[], None] = lambda: None,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Run BACKUP, and wait until it is complete. ClickHouse lists the parts first and copies them then.

    Call `check` while waiting, which raises if the copy has become useless.
    """
    with closing(open_for_maintenance(address)) as connection:
        ((backup_id, status),) = connection.read(
            f"BACKUP DATABASE `{address.database}`{address.layout.on_cluster} TO {destination} ASYNC", {}
        )
        gives_up_at = time.monotonic() + _BACKUP_S_MAX
        while status == _CREATING and time.monotonic() < gives_up_at:
            sleep(POLL_EVERY_S)
            check()
            ((status, _),) = connection.read(_STATUS, {"id": backup_id})
        if status != _CREATED:
            ((_, error),) = connection.read(_STATUS, {"id": backup_id})
            reason = str(error)[:_REASON_CHARACTERS_MAX] or "it gave no reason"
            raise WarehouseUnavailableError(
                f"ClickHouse's BACKUP ended as {status}: {reason}; "
                "choose a destination that it allows (backups.allowed_disk) and can write to with --warehouse-to"
            )


def last_stored_numbers(address: ServerAddress) -> dict[int, int]:
    """Return the number of the last record of each stream that has rows."""
    with closing(open_for_maintenance(address)) as connection:
        rows = connection.rows(f"SELECT max(seq) FROM events GROUP BY intDiv(seq, {first_seq(1, 0)})")
    return last_numbers(last for (last,) in rows)


def last_received_at(address: ServerAddress, stream: int) -> int | None:
    """Return when the last stored record of a stream was received, in epoch ms; None if it has no rows."""
    seqs = f"seq >= {first_seq(stream, 0)} AND seq < {first_seq(stream + 1, 0)}"
    with closing(open_for_maintenance(address)) as connection:
        ((count, last),) = connection.rows(f"SELECT count(), max(received_at) FROM events WHERE {seqs}")
    return last if count else None


def recount_ids(address: ServerAddress, since_ms: int) -> None:
    """Derive the ids counted since then from the stored events again, without those of imports.

    The tables of a backup are not of one moment. An id without its event would make that event a repeat of itself when
    it is loaded again. Repeating this is harmless; until it has finished, no event may be loaded.
    """
    with closing(open_for_maintenance(address)) as connection:
        connection.run(f"ALTER TABLE seen DELETE WHERE received_at >= {since_ms} SETTINGS mutations_sync = 2")
        connection.run_with(
            f"""
            INSERT INTO seen (id_hash, received_at, received_day)
            SELECT {_ID_HASH}, received_at, toDate(toUInt16(intDiv(received_at, {DAY_MS}))) FROM events
            WHERE received_at >= {since_ms} AND counted AND id != '' AND NOT {IS_IMPORTED}
            """,
            NOT_RECOGNIZED,  # Repeated after the deletion, the same rows have to be stored again.
        )
