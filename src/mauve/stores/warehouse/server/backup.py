"""Reconcile a restored warehouse on a server with the ledger."""

from contextlib import closing
from typing import Final

from mauve.core.times import DAY_MS
from mauve.stores.warehouse import first_seq, last_numbers
from mauve.stores.warehouse.schema import IS_IMPORTED
from mauve.stores.warehouse.server.server import NOT_RECOGNIZED, ServerAddress, open_for_maintenance

_ID_HASH: Final = "sipHash128(project, '/', id)"


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
    """Rebuild the ids counted since then from the stored events, except those of imports.

    The tables of a backup are not one snapshot. An id without its event would make the event a repeat of itself when it
    is loaded again. Safe to repeat; no event may be loaded until it has finished.
    """
    with closing(open_for_maintenance(address)) as connection:
        connection.run(f"ALTER TABLE seen DELETE WHERE received_at >= {since_ms} SETTINGS mutations_sync = 2")
        connection.run_with(
            f"""
            INSERT INTO seen (id_hash, received_at, received_day)
            SELECT {_ID_HASH}, received_at, toDate(toUInt16(intDiv(received_at, {DAY_MS}))) FROM events
            WHERE received_at >= {since_ms} AND counted AND id != '' AND NOT {IS_IMPORTED}
            """,
            NOT_RECOGNIZED,  # If this is repeated, the same rows must be stored again.
        )
