"""`python -m bench.mrr_reads`: uncached reads of the MRR history with very many versions; prints JSON.

It is a separate process, so that its memory is that of the reads alone.
"""

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from pathlib import Path

from mauve.core.problems import Problem
from mauve.core.window import Window
from mauve.logs import configure_logs
from mauve.metrics.questions import Question, QuestionBatch, body_of
from mauve.metrics.registry import METRICS
from mauve.query import ReadStores
from mauve.query.read import rows_by_project
from mauve.stores.ledger import Entry, SubscriptionVersion
from mauve.stores.ledger.closed_days import ClosedDaysReader
from mauve.stores.ledger.reader import LedgerReader
from mauve.stores.ledger.writer import LedgerWriter
from mauve.stores.sql.database import Database, sqlite_url
from mauve.stores.sql.migrate import LEDGER, migrate
from mauve.stores.warehouse import Connection
from mauve.stores.warehouse.warehouse_reader import WarehouseReader

PROJECT = "proj_busy"
VERSIONS = 1_000_000
TODAY = date(2026, 11, 15)
NOW_MS = int(datetime(2026, 11, 15, 12, tzinfo=UTC).timestamp() * 1000)
YEARS = 10
WINDOWS = {
    "30 days": Window(TODAY - timedelta(days=29), TODAY),
    f"{YEARS} years": Window(TODAY - timedelta(days=365 * YEARS), TODAY),
    "all of time": Window(date.min, TODAY),  # refused: more rows than an answer may have
}
ROUNDS = 9
VERSIONS_AT_ONCE = 10_000
CURRENCIES = ("eur", "usd", "gbp", "chf", "jpy")
STEP_US = YEARS * 365 * 86_400_000_000 // VERSIONS
ANCIENT_US = -62_135_596_800_000_000  # as old as a version can be: all of time has more rows than an answer may have


def versions() -> Iterator[SubscriptionVersion]:
    """Yield versions in order: five of each subscription, in five currencies, spread over all years."""
    for currency in CURRENCIES:
        yield version(f"ancient_{currency}", ANCIENT_US, "active", 1, currency)
    for n in range(VERSIONS):
        status = "canceled" if n % 6 == 0 else "active"
        at = NOW_MS * 1000 - (VERSIONS - n) * STEP_US
        yield version(f"sub_{n % (VERSIONS // 5)}", at, status, 1999 + n % 500, CURRENCIES[n % 5])


def version(id_: str, at: int, status: str, mrr: int, currency: str) -> SubscriptionVersion:
    return SubscriptionVersion(PROJECT, id_, at, NOW_MS, status, mrr, currency, b"{}")


def main() -> None:
    configure_logs("console")  # on standard error
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(Database(sqlite_url(Path(folder) / "ledger.db"), busy_timeout_s=5)) as database,
    ):
        migrate(database, LEDGER)
        began = time.perf_counter()
        _fill(database)
        built_s = time.perf_counter() - began
        warehouse = WarehouseReader(_never)
        stores = ReadStores(warehouse, LedgerReader(database), ClosedDaysReader(database))
        _read(stores, WINDOWS["30 days"])
        rest_mb = _reset_peak()
        medians = dict(_medians_ms(stores))
        json.dump({"misses_ms": medians, "peak_mb": _peak_mb() - rest_mb, "built_s": built_s}, sys.stdout)
        warehouse.close()


def _never() -> Connection:
    raise AssertionError("nothing is read from the warehouse")


def _fill(database: Database) -> None:
    writer, found = LedgerWriter(database), versions()
    while some := list(islice(found, VERSIONS_AT_ONCE)):
        writer.record([Entry(subscriptions=some)])


def _medians_ms(stores: ReadStores) -> Iterator[tuple[str, float]]:
    for name, window in WINDOWS.items():
        times = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            with suppress(Problem):
                _read(stores, window)
            times.append((time.perf_counter() - began) * 1000)
        yield name, statistics.median(times)


def _read(stores: ReadStores, window: Window) -> None:
    metric = METRICS["mrr_history"]
    with closing(rows_by_project(QuestionBatch((PROJECT,), metric, window), stores, NOW_MS)) as found:
        for project, rows in found:
            body_of(Question(project, metric, window), rows)


def _reset_peak() -> float:
    """Reset the recorded peak, and return the memory in use."""
    Path("/proc/self/clear_refs").write_text("5")
    return _memory_mb("VmRSS")


def _peak_mb() -> float:
    return _memory_mb("VmHWM")


def _memory_mb(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024


if __name__ == "__main__":
    main()
