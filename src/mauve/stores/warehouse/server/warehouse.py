"""The loader's side of the warehouse on a server, where a commit may arrive twice or late.

A loader that was paused for minutes, or a statement whose answer was lost, may try to insert rows that another loader
has already stored. Two measures prevent that: for hours, the server recognizes repeated inserts of a range by a token;
and by its own clock, it refuses rows that were staged more than a few minutes ago.
"""

import hashlib
from contextlib import closing
from typing import Final

from mauve.core.times import DAY_MS
from mauve.stores.warehouse import EventRows, first_seq, last_numbers
from mauve.stores.warehouse.schema import IS_IMPORTED, KEPT_TABLES
from mauve.stores.warehouse.server.server import (
    LATE_ROWS,
    NOT_RECOGNIZED,
    ServerAddress,
    ServerConnection,
    SettingValues,
    open_for_maintenance,
)
from mauve.stores.warehouse.warehouse import ID_HASH, ClickHouseWarehouse

COMMIT_S_MAX: Final = 600
"""How long after staging a commit is accepted."""

SYNC_REPLICA: Final = "SYSTEM SYNC REPLICA {table} LIGHTWEIGHT"
"""Waits for the inserts of other replicas. Without LIGHTWEIGHT, it would also wait for queued merges and mutations."""

# Newer servers have other names for the same settings; settings that a server does not support are omitted.
_RECOGNIZED: Final[SettingValues] = {
    "insert_deduplicate": 1,
    "deduplicate_insert": "enable",
    "deduplicate_insert_select": "enable_when_possible",
}
_UNLIMITED: Final = 10**15
# A token identifies one block per partition: further blocks would be treated as repeats. A range fits into memory.
_ONE_BLOCK: Final[SettingValues] = {
    "max_insert_threads": 1,
    "min_insert_block_size_rows": _UNLIMITED,
    "min_insert_block_size_bytes": _UNLIMITED,
    "max_insert_block_size": _UNLIMITED,
    "max_execution_time": 15,
}


class ServerWarehouse(ClickHouseWarehouse):
    _connection: ServerConnection

    def __init__(self, connection: ServerConnection, *, is_replicated: bool = False) -> None:
        super().__init__(connection)
        self._is_replicated = is_replicated
        self._commit_until_s = 0
        self._content = ""

    def _stage_rows(self, rows: EventRows) -> None:
        self._has_staging = False  # An idle session expires.
        super()._stage_rows(rows)
        ((now_s,),) = self._connection.rows("SELECT toUnixTimestamp(now())")
        self._commit_until_s = now_s + COMMIT_S_MAX
        # A recreated log repeats the names of ranges, but not the times of receipt.
        self._content = hashlib.blake2b(rows.received_at.tobytes() + rows.seq.tobytes(), digest_size=16).hexdigest()

    def forget_ids(self) -> None:
        self._sync_replica()
        self._seen.forget()

    def _sync_replica(self) -> None:
        if self._is_replicated:
            for table in KEPT_TABLES:
                self._connection.run(SYNC_REPLICA.format(table=table))

    def _condition(self, repeats: int, stored: int) -> str:
        is_in_time = f"throwIf(toUnixTimestamp(now()) > {self._commit_until_s}, '{LATE_ROWS}') = 0"
        return f"{super()._condition(repeats, stored)} AND {is_in_time}"

    def _store(self, table: str, sql: str, range_name: str) -> None:
        token = f"{table}/{range_name}/{self._content}"
        recognized = {**_RECOGNIZED, "insert_deduplication_token": token} if range_name else NOT_RECOGNIZED
        self._connection.run_with(sql, {**_ONE_BLOCK, **recognized})


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
            SELECT {ID_HASH}, received_at, toDate(toUInt16(intDiv(received_at, {DAY_MS}))) FROM events
            WHERE received_at >= {since_ms} AND counted AND id != '' AND NOT {IS_IMPORTED}
            """,
            NOT_RECOGNIZED,  # If this is repeated, the same rows must be stored again.
        )
