"""The read meter keeps the counts of a killed process, and deletes old ones.

Proves: expendable.
"""

import signal
import subprocess
import sys
from contextlib import closing

import pytest
import sqlalchemy as sa

from mauve.core.times import DAY_MS
from mauve.stores.catalog.schema import reads, spent
from mauve.stores.limits.read_meter import ReadCost, ReadLimits, ReadMeter
from mauve.stores.sql.database import Database, sqlite_url
from mauve.stores.sql.migrate import CATALOG, migrate
from support.service import PATIENCE_S

NOW = 1_800_000_000_000
QUERY, LIMITS = ReadCost(queries=1), ReadLimits(1000, 1000, 1000)


@pytest.fixture
def database(tmp_path):
    with closing(Database(sqlite_url(tmp_path / "catalog.db"), PATIENCE_S)) as opened:
        migrate(opened, CATALOG)
        yield opened


SPENDS_AND_IS_KILLED = f"""
import os, signal, sys
from pathlib import Path
from mauve.stores.limits.read_meter import ReadCost, ReadLimits, ReadMeter
from mauve.stores.sql.database import Database, sqlite_url
meter = ReadMeter(Database(sqlite_url(Path(sys.argv[1])), 5.0))
for _ in range(7):
    meter.take("org_1", ReadCost(queries=1), ReadLimits(1000, 1000, 1000), {NOW})
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_counts_of_a_killed_process_are_kept(tmp_path, database):
    done = subprocess.run([sys.executable, "-c", SPENDS_AND_IS_KILLED, str(tmp_path / "catalog.db")], check=False)
    assert done.returncode == -signal.SIGKILL
    meter = ReadMeter(database)
    assert sum(meter.take("org_1", ReadCost(), ReadLimits(10, 0, 0), NOW) is None for _ in range(10)) == 3
    assert meter.take("org_1", QUERY, ReadLimits(1000, 7, 0), NOW) is not None


def test_old_minutes_and_periods_are_deleted(database):
    meter = ReadMeter(database)
    for number in range(400):
        meter.take(f"org_{number % 50}", QUERY, LIMITS, NOW + number * DAY_MS)
    with database.reading() as tx:
        counts = [tx.execute(sa.select(sa.func.count()).select_from(table)).scalar_one() for table in (reads, spent)]
    assert counts[0] == 1
    assert counts[1] <= 50 * 3
