"""The read cache and the read meter lose their files or find them damaged: reads continue.

Proves: expendable.
"""

import signal
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
import structlog

from mauve.config import settings_from
from mauve.core.times import DAY_MS
from mauve.stores import StoreUnavailableError
from mauve.stores.limits.read_meter import ReadCost, ReadLimits
from mauve.stores.limits.read_meter_file import SqliteReadMeter
from mauve.stores.localdisk.read_cache import CacheBounds, SqliteReadCache
from mauve.stores.read_cache import CachedAnswer
from mauve.wiring.query import forget_answers
from support.clocks import Ticks
from support.service import PATIENCE_S, eventually

NOW = 1_800_000_000_000
LIMITS = ReadLimits(1000, 1000, 1000)
ANSWER = CachedAnswer(b"an answer", NOW)
ONLY_THE_FILE = CacheBounds(recent_bytes_max=0)  # nothing is found in memory


@pytest.fixture
def cache(tmp_path):
    with closing(SqliteReadCache(tmp_path / "cache.db", ONLY_THE_FILE)) as opened:
        yield opened


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


def keep_and_find_again(cache):
    """Return whether the cache works; only the first call may notice damage."""
    cache.find("a")
    cache.keep("a", ANSWER)
    return cache.keep("a", ANSWER) and cache.find("a") == ANSWER


@pytest.mark.parametrize("content", [b"", b"not a database " * 1000, b"SQLite format 3\0" + bytes(5000)])
def test_a_cache_file_that_is_not_a_database_is_recreated(tmp_path, content):
    (tmp_path / "cache.db").write_bytes(content)
    with closing(SqliteReadCache(tmp_path / "cache.db", ONLY_THE_FILE)) as cache:
        assert cache.find("a") is None
        assert keep_and_find_again(cache)


def test_a_cache_of_another_release_is_recreated(tmp_path):
    with closing(sqlite3.connect(tmp_path / "cache.db")) as other:
        other.execute("CREATE TABLE answers (question TEXT PRIMARY KEY, answer TEXT)")
    with closing(SqliteReadCache(tmp_path / "cache.db", ONLY_THE_FILE)) as cache:
        assert keep_and_find_again(cache)


def test_a_cache_damaged_while_it_is_open_is_recreated(tmp_path, cache):
    for number in range(500):
        cache.keep(str(number), CachedAnswer(b"%d" % number, NOW))
    for name in ("cache.db", "cache.db-wal"):
        overwrite(tmp_path / name)
    for number in range(500):
        assert cache.find(str(number)) in {None, CachedAnswer(b"%d" % number, NOW)}
    assert keep_and_find_again(cache)


def test_a_cache_whose_file_is_removed_continues_with_a_new_shared_one(tmp_path, cache):
    cache.keep("a", ANSWER)
    for path in tmp_path.glob("cache.db*"):
        path.unlink()
    assert cache.find("a") is None
    assert keep_and_find_again(cache)
    with closing(SqliteReadCache(tmp_path / "cache.db", ONLY_THE_FILE)) as other:
        assert other.find("a") == ANSWER


def test_two_processes_that_find_damage_end_up_with_one_file(tmp_path, cache):
    with closing(SqliteReadCache(tmp_path / "cache.db", ONLY_THE_FILE)) as other:
        assert keep_and_find_again(cache)
        assert keep_and_find_again(other)
        for name in ("cache.db", "cache.db-wal"):
            overwrite(tmp_path / name)
        for each in (cache, other, cache, other):
            keep_and_find_again(each)
        other.keep("b", CachedAnswer(b"shared", NOW))
        assert cache.find("b") == CachedAnswer(b"shared", NOW)


def test_an_answer_changed_on_disk_is_not_served(tmp_path, cache):
    cache.keep("a", ANSWER)
    with closing(sqlite3.connect(tmp_path / "cache.db")) as other:
        other.execute("UPDATE answers SET value = CAST('another!!' AS BLOB)")
        other.commit()
    assert cache.find("a") is None
    assert keep_and_find_again(cache)


def test_damaged_totals_do_not_keep_the_cache_empty(tmp_path, cache):
    cache.keep("a", ANSWER)
    with closing(sqlite3.connect(tmp_path / "cache.db")) as other:
        other.execute("UPDATE totals SET bytes = 1000000000000")
        other.commit()
    cache.keep("b", ANSWER)
    cache.keep("c", ANSWER)
    assert cache.find("c") == ANSWER


def test_without_a_file_a_cache_still_keeps_answers_in_memory(tmp_path):
    with closing(SqliteReadCache(tmp_path / "missing" / "cache.db")) as cache:
        assert cache.find("a") is None
        assert cache.keep("a", ANSWER) is True
        assert cache.find("a") == ANSWER


def test_a_cache_that_can_store_nothing_reports_it(tmp_path):
    with closing(SqliteReadCache(tmp_path / "missing" / "cache.db", ONLY_THE_FILE)) as cache:
        assert cache.keep("a", ANSWER) is False


def test_a_cache_locked_by_another_process_does_not_delay_reads(tmp_path, cache):
    cache.keep("a", ANSWER)
    with closing(sqlite3.connect(tmp_path / "cache.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert cache.find("a") == ANSWER
        assert cache.keep("b", ANSWER) is False
        other.execute("ROLLBACK")
    assert cache.keep("b", ANSWER) is True


def test_a_newer_answer_that_could_not_be_written_is_not_followed_by_an_older_one(tmp_path):
    ticks = Ticks()
    path = tmp_path / "cache.db"
    with closing(SqliteReadCache(path, ticks=ticks)) as cache, closing(sqlite3.connect(path)) as other:
        cache.keep("a", ANSWER)
        other.execute("BEGIN IMMEDIATE")
        newer = CachedAnswer(b"newer", NOW + 300_000)
        assert cache.keep("a", newer) is True
        other.execute("ROLLBACK")
        ticks.now_s += 1
        assert cache.find("a") == newer


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


class TestForgetting:
    """The erasure that asks for it has deleted the data already: the cache must not fail it."""

    @pytest.fixture
    def settings(self, tmp_path, cache):
        cache.keep("proj_1/mau/", ANSWER)
        return settings_from({"MAUVE_DATA": str(tmp_path)})

    def test_a_busy_file_is_tried_again(self, settings, cache, tmp_path):
        with closing(sqlite3.connect(tmp_path / "cache.db", isolation_level=None, check_same_thread=False)) as other:
            other.execute("BEGIN IMMEDIATE")
            with structlog.testing.capture_logs() as logs, ThreadPoolExecutor(1) as thread:
                forgotten = thread.submit(forget_answers, settings, ["proj_1"], PATIENCE_S)
                eventually(lambda: logs)  # The first attempt has failed.
                other.execute("ROLLBACK")
                forgotten.result()
        assert [line["event"] for line in logs] == ["file_unusable"]
        assert cache.find("proj_1/mau/") is None

    def test_a_file_that_stays_busy_is_reported(self, settings, tmp_path):
        with closing(sqlite3.connect(tmp_path / "cache.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with structlog.testing.capture_logs() as logs:
                forget_answers(settings, ["proj_1"], patience_s=0)
        assert logs[-1]["event"] == "cached_answers_not_deleted"
        assert str(tmp_path / "cache.db") in logs[-1]["advice"]

    def test_a_file_of_an_earlier_release_gets_the_index(self, settings, cache, tmp_path):
        with closing(sqlite3.connect(tmp_path / "cache.db", isolation_level=None)) as file:
            file.execute("DROP INDEX answers_by_project")
            file.execute("PRAGMA user_version=1")
        forget_answers(settings, ["proj_2"])
        with closing(sqlite3.connect(tmp_path / "cache.db")) as file:
            (plan,) = file.execute("EXPLAIN QUERY PLAN DELETE FROM answers WHERE project = x'00'")
        assert "answers_by_project" in plan[-1]
        assert cache.find("proj_1/mau/") == ANSWER
