"""Fill a new warehouse with as many ids as weeks of use would leave: `python -m bench.many_ids FOLDER COUNT`."""

import sys
import time
from pathlib import Path

from mauve.core.times import DAY_MS
from mauve.stores.warehouse.chdb import ChdbConnection
from mauve.stores.warehouse.schema import TABLES

DAYS = 7
# One part per day, as after merging.
ONE_PART = "min_insert_block_size_rows = 100000000, min_insert_block_size_bytes = 0, max_threads = 1"


def main() -> None:
    folder, count = Path(sys.argv[1]), int(sys.argv[2])
    connection = ChdbConnection(folder)
    for statement in TABLES:
        connection.run(statement)
    today = time.time_ns() // 1_000_000 // DAY_MS
    ids_per_day = count // DAYS
    for number in range(DAYS):
        day = today - DAYS + 1 + number
        connection.run(
            "INSERT INTO mauve.seen (id_hash, received_at, received_day) "
            f"SELECT sipHash128('proj_', '/', toString(number)), {day * DAY_MS} + intDiv(number, 100) % {DAY_MS}, "
            f"toDate(toUInt16({day})) FROM numbers({number * ids_per_day}, {ids_per_day}) SETTINGS {ONE_PART}"
        )
    connection.close()


if __name__ == "__main__":
    main()
