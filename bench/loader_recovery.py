"""`python -m bench.loader_recovery 1 100`: recovery of the loader at 1 and 100 million events; prints JSON.

It is a separate process: the embedded engine opens only one path per process, and the process must not start others.
"""

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

from mauve.core.batch import packed_header
from mauve.core.clock import SystemClock
from mauve.core.times import DAY_MS
from mauve.load.loader import DayCloser, Loader
from mauve.stores import StoreUnavailableError
from mauve.stores.ledger import LoadStep
from mauve.stores.ledger.closed_days import ClosedDays
from mauve.stores.ledger.loading import LoadLedger
from mauve.stores.log.files.reader import SegmentLogReader
from mauve.stores.log.files.segments import NUMBER_GAP
from mauve.stores.log.files.writer import SegmentLogWriter
from mauve.stores.sql.database import Database, sqlite_url
from mauve.stores.sql.migrate import LEDGER, migrate
from mauve.stores.warehouse import STREAM_SHIFT, first_seq
from mauve.stores.warehouse.chdb import ChdbConnection
from mauve.stores.warehouse.warehouse import ChdbWarehouse

STREAMS = 4
BATCH = 500
BATCHES = 25  # of each stream in the step that is interrupted: 50,000 events in all
DAYS = 365
INSERT_ROWS = 1_000_000
ROUNDS = 5
# Rows of one large app are stored in order of arrival; those of small ones are not, but are grouped by month.
APPS = {
    "large apps": "if(number % 100 < 28, 'proj_busy', concat('proj_', toString(number % 50)))",
    "small apps": "concat('proj_', toString(cityHash64(number) % 10000))",
}
_EVENTS = f"""
INSERT INTO mauve.events (project, name, received_at, occurred_at, claimed_at, user, id, props, seq, day, counted)
SELECT {{project}}, concat('event_', toString(cityHash64(number, 'name') % 20)),
    toInt64({{first_ms}}) + intDiv(number * {DAYS * DAY_MS}, {{total}}) AS moment, moment, '',
    concat('user_', toString(cityHash64(number) % 2000000)), '', '',
    bitShiftLeft(toUInt64(intDiv(number, {BATCH}) % {STREAMS}), {STREAM_SHIFT})
        + toUInt64(intDiv(number, {BATCH})) * {first_seq(0, 1)} + number % {BATCH},
    toDate(toUInt16(intDiv(moment, {DAY_MS}))), 1
FROM numbers({{start}}, {{count}})
"""


class Interrupted(LoadLedger):
    """A ledger that goes down before a step is finished."""

    def finish(self, step: LoadStep) -> None:  # noqa: ARG002 - it goes down before
        raise StoreUnavailableError("down")


def main() -> None:
    found = {}
    for size in map(int, sys.argv[1:]):
        for apps, project in APPS.items():
            with tempfile.TemporaryDirectory() as folder:
                found[f"{size} million events, {apps}"] = _measured(Path(folder), size * 1_000_000, project)
    json.dump(found, sys.stdout)


def _measured(folder: Path, total: int, project: str) -> dict[str, float]:
    url = sqlite_url(folder / "ledger.db")
    with closing(ChdbConnection(folder / "warehouse")) as connection, closing(Database(url, 30.0)) as database:
        migrate(database, LEDGER)
        warehouse, ledger = ChdbWarehouse(connection), LoadLedger(database)
        _fill(connection, total, project)
        positions = dict.fromkeys(range(STREAMS), NUMBER_GAP - 1)
        ledger.finish(LoadStep(positions))
        clock, days, log = SystemClock(), DayCloser(ClosedDays(database), warehouse), folder / "log"
        named: dict[str, list[float]] = {"look": [], "scan": [], "recovery": []}
        for _ in range(ROUNDS):
            asyncio.run(_append(log))
            with suppress(StoreUnavailableError):
                Loader(SegmentLogReader(log), Interrupted(database), warehouse, clock, days).load_next_range()
            received_from = clock.now_ms() - 60_000
            for name, moment in (("look", received_from), ("scan", 0)):
                began = time.perf_counter()
                warehouse.stored_after(ledger.positions(), moment)
                named[name].append(time.perf_counter() - began)
            began = time.perf_counter()
            if Loader(SegmentLogReader(log), ledger, warehouse, clock, days).load_next_range() != STREAMS * BATCHES:
                raise RuntimeError("the interrupted step was not repeated")
            named["recovery"].append(time.perf_counter() - began)
    return {name: statistics.median(times) * 1000 for name, times in named.items()}


def _fill(connection: ChdbConnection, total: int, project: str) -> None:
    first_ms = time.time_ns() // 1_000_000 - DAYS * DAY_MS
    for start in range(0, total, INSERT_ROWS):
        facts = {"project": project, "first_ms": first_ms, "total": total, "start": start, "count": INSERT_ROWS}
        connection.run(_EVENTS.format(**facts))
    while connection.read("SELECT count() FROM system.merges", {}) != [[0]]:
        time.sleep(1)


async def _append(log: Path) -> None:
    for stream in range(STREAMS):
        writer = SegmentLogWriter(log, stream)
        for payload in _batches():
            await writer.append([payload])
        await writer.close()


def _batches() -> Iterator[bytes]:
    for _ in range(BATCHES):
        now_us = time.time_ns() // 1000
        items = [{"name": "event_1", "user": "ann", "id": f"{now_us}-{number}"} for number in range(BATCH)]
        yield packed_header("proj_busy", "org_1", now_us // 1000, now_us, BATCH) + json.dumps(items).encode()


if __name__ == "__main__":
    main()
