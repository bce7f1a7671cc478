"""`python -m bench.read_misses 1 20`: uncached reads at 1 and 20 million events; prints JSON.

It is a separate process: the embedded engine opens only one path per process, and the process must not start others.
"""

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import date
from pathlib import Path

from mauve.core.times import DAY_MS
from mauve.core.window import Window
from mauve.load.loader import DayCloser
from mauve.metrics.questions import QuestionBatch, body_of
from mauve.metrics.registry import METRICS
from mauve.query import ReadStores
from mauve.query.read import rows_by_project
from mauve.stores.ledger import Entry, Payment, SubscriptionVersion
from mauve.stores.ledger.closed_days import ClosedDays, ClosedDaysReader
from mauve.stores.ledger.reader import LedgerReader
from mauve.stores.ledger.writer import LedgerWriter
from mauve.stores.sql.database import Database, sqlite_url
from mauve.stores.sql.migrate import LEDGER, migrate
from mauve.stores.warehouse.chdb import ChdbConnection
from mauve.stores.warehouse.warehouse import ChdbWarehouse
from mauve.stores.warehouse.warehouse_reader import WarehouseReader

PROJECT = "proj_busy"  # has 28 % of the events; 50 others share the rest
DAYS = 60
FIRST_DAY_NUMBER = 20_454  # 2026-01-01
WINDOW = Window(date(2026, 1, 31), date(2026, 3, 1))  # the last 30 of them
NOW_MS = (FIRST_DAY_NUMBER + DAYS) * DAY_MS - 1
INSERT_ROWS = 500_000
SUBSCRIPTIONS = 10_000
ROUNDS = 9

# Events are in time order, the same number each day. Two percent are repeats.
_EVENTS = """
INSERT INTO mauve.events (project, name, received_at, occurred_at, claimed_at, user, id, props, seq, day, counted)
SELECT
    if(number % 100 < 28, '{project}', concat('proj_', toString(number % 50))),
    if(number % 97 = 0, 'user_signup', concat('event_', toString(cityHash64(number, 'name') % 40))),
    toInt64({first_ms}) + intDiv(number * {span_ms}, {total}) AS moment, moment, '',
    concat('user_', toString(cityHash64(number) % 2000000)), '', '{{"path":"/articles/17","plan":"pro"}}',
    number, toDate(toUInt16(intDiv(moment, {day_ms}))), number % 50 != 0
FROM numbers({start}, {count})
"""
_SKETCHES = """
INSERT INTO mauve.actives (project, kind, day, users)
SELECT project, if(name = 'user_signup', 'signup', 'active') AS kind, day, uniqCombined64State(17)(user)
FROM mauve.events WHERE seq >= {start} AND seq < {start} + {count} AND counted GROUP BY project, kind, day
"""
_ERROR = """
SELECT sqrt(avg(pow(estimate / {users} - 1, 2))) * 100 FROM
(SELECT uniqCombined64(17)(concat('user_', toString(number))) AS estimate
 FROM numbers({users} * {rounds}) GROUP BY intDiv(number, {users}))
"""


def main() -> None:
    millions = [int(argument) for argument in sys.argv[1:]]
    with tempfile.TemporaryDirectory() as folder, closing(ChdbConnection(Path(folder) / "warehouse")) as connection:
        warehouse = ChdbWarehouse(connection)
        database = _ledger(Path(folder))
        misses = {}
        reader = WarehouseReader(lambda: ChdbConnection(Path(folder) / "warehouse"))
        for size in millions:
            began = time.perf_counter()
            _fill(connection, size * 1_000_000)
            _close_days(ClosedDays(database), warehouse)
            print(f"{size} million events after {time.perf_counter() - began:.0f} s", file=sys.stderr)
            stores = ReadStores(reader, LedgerReader(database), ClosedDaysReader(database))
            misses[size] = dict(_medians_ms(stores))
        reader.close()
        json.dump({"misses_ms": misses, "errors_percent": dict(_errors(connection))}, sys.stdout)


def _fill(connection: ChdbConnection, total: int) -> None:
    """Replace all events, in as many inserts as a loader would need."""
    for table in ("events", "actives"):
        connection.run(f"TRUNCATE TABLE mauve.{table}")
    for start in range(0, total, INSERT_ROWS):
        facts = {
            "project": PROJECT,
            "first_ms": FIRST_DAY_NUMBER * DAY_MS,
            "span_ms": DAYS * DAY_MS,
            "day_ms": DAY_MS,
            "total": total,
            "start": start,
            "count": INSERT_ROWS,
        }
        connection.run(_EVENTS.format(**facts))
        connection.run(_SKETCHES.format(**facts))
    # In a table that grew day by day, the sketches of all days but the last would be merged already.
    connection.run("OPTIMIZE TABLE mauve.actives FINAL")
    while connection.read("SELECT count() FROM system.merges", {}) != [[0]]:
        time.sleep(1)


def _close_days(closed: ClosedDays, warehouse: ChdbWarehouse) -> None:
    """Close past days, as the loader does."""
    closed.reopen(date.fromordinal(WINDOW.first.toordinal() - DAYS))
    days = DayCloser(closed, warehouse)
    while days.close_next_days(WINDOW.last):
        pass


def _medians_ms(stores: ReadStores) -> Iterator[tuple[str, float]]:
    for metric in METRICS.values():
        batch = QuestionBatch((PROJECT,), metric, WINDOW, "event_7")
        (question,) = batch.questions
        times = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            for _, rows in rows_by_project(batch, stores, NOW_MS):
                body_of(question, rows)
            times.append((time.perf_counter() - began) * 1000)
        yield metric.name, statistics.median(times)


def _errors(connection: ChdbConnection) -> Iterator[tuple[int, float]]:
    """Yield the error of distinct counts in percent: the root mean square over disjoint sets of users."""
    for users, rounds in (
        (10, 50),
        (100, 50),
        (1_000, 50),
        (10_000, 50),
        (100_000, 30),
        (1_000_000, 10),
        (10_000_000, 4),
    ):
        ((error,),) = connection.read(_ERROR.format(users=users, rounds=rounds), {})
        yield users, error


def _ledger(folder: Path) -> Database:
    database = Database(sqlite_url(folder / "ledger.db"), busy_timeout_s=5)
    migrate(database, LEDGER)
    writer = LedgerWriter(database)
    writer.record([Entry(payments=[_payment(number) for number in range(DAYS * 100)])])
    writer.record([Entry(subscriptions=[_version(number) for number in range(SUBSCRIPTIONS)])])
    return database


def _payment(number: int) -> Payment:
    moment = (FIRST_DAY_NUMBER + number % DAYS) * DAY_MS
    currency = ("eur", "usd", "gbp")[number % 3]
    return Payment(
        org_id="org_1",
        project=PROJECT,
        id=str(number),
        digest=b"",
        claimed_at=None,
        amount=1999,
        currency=currency,
        earned=number % 10 > 0,
        user=None,
        occurred_at=moment,
        received_at=moment,
        payload=b"",
    )


def _version(number: int) -> SubscriptionVersion:
    at = (FIRST_DAY_NUMBER + number % DAYS) * DAY_MS * 1000
    status = "canceled" if number % 4 == 0 else "active"
    return SubscriptionVersion(PROJECT, f"sub_{number // 2}", at, at // 1000, status, 1999, "eur", b"{}" * 100)


if __name__ == "__main__":
    main()
