"""The read meter loses its file or finds it damaged: reads continue.

Proves: expendable.
"""

import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress

import pytest
import structlog

from mauve.core.times import DAY_MS
from mauve.stores import StoreUnavailableError
from mauve.stores.limits.read_meter import ReadCost, ReadLimits
from mauve.stores.limits.read_meter_file import SqliteReadMeter

NOW = 1_800_000_000_000
LIMITS = ReadLimits(1000, 1000, 1000)


@pytest.fixture
def meter(tmp_path):
    with closing(SqliteReadMeter(tmp_path / "meter.db")) as opened:
        yield opened


def taken(meter, limit, times=10):
    return sum(meter.take("org_1", ReadCost(), ReadLimits(limit, 0, 0), NOW) is None for _ in range(times))


def overwrite(path):
    """Overwrite bytes in the existing file, as a broken disk would."""
    with path.open("r+b") as file:
        size = max(path.stat().st_size, 8192)
        file.write(b"damaged " * (size // 8))


@pytest.mark.parametrize("content", [b"", b"not a database " * 1000, b"SQLite format 3\0" + bytes(5000)])
def test_a_file_that_is_not_a_database_is_recreated(tmp_path, content):
    (tmp_path / "meter.db").write_bytes(content)
    with closing(SqliteReadMeter(tmp_path / "meter.db")) as meter:
        with suppress(StoreUnavailableError):  # It may notice the damage first.
            meter.take("org_1", ReadCost(), LIMITS, NOW)
        assert taken(meter, 5) in {4, 5}


def test_two_processes_that_find_damage_end_up_with_one_file(tmp_path, meter):
    with closing(SqliteReadMeter(tmp_path / "meter.db")) as other:
        assert (taken(meter, 5, 1), taken(other, 5, 1)) == (1, 1)
        for path in tmp_path.glob("meter.db*"):
            overwrite(path)
        for each in (meter, other, meter, other):
            with suppress(StoreUnavailableError):
                each.take("org_2", ReadCost(), LIMITS, NOW)
        assert taken(meter, 5, 3) + taken(other, 5, 3) == 5, "they count together"


def test_a_damaged_meter_starts_counting_again(tmp_path, meter):
    assert taken(meter, 5) == 5
    meter.close()
    overwrite(tmp_path / "meter.db")
    with pytest.raises(StoreUnavailableError):
        meter.take("org_1", ReadCost(), LIMITS, NOW)
    assert taken(meter, 5) == 5


def test_a_meter_that_cannot_count_raises_and_logs_once(tmp_path):
    meter = SqliteReadMeter(tmp_path / "later" / "meter.db")
    with structlog.testing.capture_logs() as logged, closing(meter):
        for _ in range(5):
            with pytest.raises(StoreUnavailableError):
                meter.take("org_1", ReadCost(), LIMITS, NOW)
        (tmp_path / "later").mkdir()
        assert meter.take("org_1", ReadCost(), LIMITS, NOW) is None
    assert [line["event"] for line in logged] == ["file_unusable"]
    assert logged[0]["file"] == "meter.db"


SPENDS_AND_IS_KILLED = f"""
import os, signal, sys
from pathlib import Path
from mauve.stores.limits.read_meter_file import SqliteReadMeter
from mauve.stores.limits.read_meter import ReadCost, ReadLimits
meter = SqliteReadMeter(Path(sys.argv[1]))
for _ in range(7):
    meter.take("org_1", ReadCost(queries=1), ReadLimits(1000, 1000, 1000), {NOW})
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_counts_of_a_killed_process_are_kept(tmp_path, meter):
    done = subprocess.run([sys.executable, "-c", SPENDS_AND_IS_KILLED, str(tmp_path / "meter.db")], check=False)
    assert done.returncode == -signal.SIGKILL
    assert taken(meter, 10) == 3
    assert meter.take("org_1", ReadCost(queries=1), ReadLimits(1000, 7, 0), NOW) is not None


def test_old_minutes_and_periods_are_deleted(tmp_path, meter):
    day = DAY_MS
    for number in range(400):
        meter.take(f"org_{number % 50}", ReadCost(queries=1), LIMITS, NOW + number * day)
    with closing(sqlite3.connect(tmp_path / "meter.db")) as file:
        reads, periods = (file.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("reads", "spent"))
    assert reads == 1
    assert periods <= 50 * 3
