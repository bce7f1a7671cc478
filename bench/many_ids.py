"""Fills a new warehouse with ids as weeks of use leave them: `python -m bench.many_ids FOLDER COUNT`."""

import sys
import time
from pathlib import Path

from mauve.stores.clickhouse.connection import ChdbConnection
from mauve.stores.clickhouse.schema import DURABILITY, TABLES

DAYS = 7
IDS_AT_ONCE = 1_000_000
DAY_MS = 86_400_000


def main() -> None:
    folder, count = Path(sys.argv[1]), int(sys.argv[2])
    connection = ChdbConnection(folder)
    for statement in (*TABLES, *DURABILITY):
        connection.run(statement)
    today = time.time_ns() // 1_000_000 // DAY_MS
    for begin in range(0, count, IDS_AT_ONCE):
        day = today - DAYS + 1 + begin * DAYS // count
        connection.run(
            "INSERT INTO mauve.seen (id_hash, received_at, received_day) "
            f"SELECT sipHash128('proj_', '/', toString(number)), {day * DAY_MS} + intDiv(number - {begin}, 100), "
            f"toDate(toUInt16({day})) FROM numbers({begin}, {min(IDS_AT_ONCE, count - begin)})"
        )
    connection.close()


if __name__ == "__main__":
    main()
