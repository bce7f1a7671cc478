"""The warehouse in a separate process, for tests that damage its files: an engine opens one path in each process.

`python -m support.warehouse_program PATH load` loads 160 events in eight parts; `merge` also merges them and returns
when only the merged part is left; `merge SETTING` does so with a changed engine setting; `tell` prints what is stored.
"""

import json
import sys
import time
from pathlib import Path

from mauve.stores.warehouse import EventRows, first_seq
from mauve.stores.warehouse.chdb import ChdbConnection
from mauve.stores.warehouse.warehouse import ChdbWarehouse
from support.service import eventually

LOADS, ROWS = 8, 20
PARTS = "SELECT count() FROM system.parts WHERE database = 'mauve' AND table = 'events'"
BROKEN = "SELECT count() FROM system.projection_parts WHERE table = 'events' AND active AND is_broken"
WITHOUT_SUMS = (
    "SELECT count() FROM system.parts WHERE database = 'mauve' AND table = 'events' AND active AND empty(projections)"
)


def rows_of(number: int) -> EventRows:
    rows, now_ms = EventRows(), time.time_ns() // 1_000_000
    for place in range(ROWS):
        rows.project.append("p")
        rows.name.extend([f"event {place % 3}"])
        rows.received_at.append(now_ms)
        rows.occurred_at.append(now_ms)
        rows.claimed_at.extend([""])
        rows.user.extend([f"u{place}"])
        rows.id.extend([f"{number}-{place}"])
        rows.props.extend_encoded([b"{}"])
        rows.seq.append(first_seq(0, number) + place)
    return rows


def load(connection: ChdbConnection, warehouse: ChdbWarehouse) -> None:
    connection.run("SYSTEM STOP MERGES")
    for number in range(LOADS):
        warehouse.stage(rows_of(number))
        warehouse.commit((), ())


def merge(connection: ChdbConnection, warehouse: ChdbWarehouse, setting: str) -> None:
    """Merge, and have the sources removed within seconds instead of half a minute."""
    quick = "cleanup_delay_period = 1, cleanup_delay_period_random_add = 0, max_cleanup_delay_period = 1"
    connection.run(f"ALTER TABLE mauve.events MODIFY SETTING {quick}{setting}")
    connection.run("DETACH TABLE mauve.events")
    connection.run("ATTACH TABLE mauve.events")
    load(connection, warehouse)
    connection.run("SYSTEM START MERGES")
    connection.run("OPTIMIZE TABLE mauve.events FINAL")
    eventually(lambda: connection.rows(PARTS) == [(1,)])


def tell(connection: ChdbConnection) -> None:
    def count(sql: str) -> int:
        return connection.rows(sql)[0][0]

    eventually(lambda: count("SELECT count() FROM system.mutations WHERE NOT is_done") == 0)
    figures = {
        "from_sums": count("SELECT sum(counted) FROM mauve.events"),
        "from_rows": count("SELECT sum(counted) FROM mauve.events SETTINGS optimize_use_projections = 0"),
        "ids": count("SELECT uniqExact(id_hash) FROM mauve.seen"),
        "users": count("SELECT toInt64(uniqCombined64Merge(17)(users)) FROM mauve.actives"),
        "parts_without_sums": count(BROKEN) + count(WITHOUT_SUMS),
    }
    sys.stdout.write(f"{json.dumps(figures)}\n")


def main(path: Path, order: str, setting: str = "") -> None:
    connection = ChdbConnection(path)
    warehouse = ChdbWarehouse(connection)
    if order == "load":
        load(connection, warehouse)
    elif order == "merge":
        merge(connection, warehouse, setting and f", {setting}")
        sys.stdout.write("merged\n")
        sys.stdout.flush()
        time.sleep(600)  # until it is killed
    else:
        tell(connection)
    connection.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
