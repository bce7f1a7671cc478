"""What token buckets promise, in the memory of one process and shared by many."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from mauve.overload.token_bucket import TokenBuckets
from mauve.stores.limits.token_buckets import SqlTokenBuckets
from mauve.stores.sql.database import Database, machine_time
from mauve.stores.sql.migrate import CATALOG
from support.service import PATIENCE_S

NOW = 1_794_700_000_000
SQL_ENGINES = ("sqlite", pytest.param("postgresql", marks=pytest.mark.servers))


@pytest.fixture(params=("memory", *SQL_ENGINES))
def new_buckets(request: pytest.FixtureRequest, new_sql_database: Callable, tmp_path: Path) -> Iterator[Callable]:
    with ExitStack() as opened:
        if request.param == "memory":
            yield lambda _kind, per_second, burst: TokenBuckets(per_second, burst)
        else:
            url = new_sql_database(request.param, CATALOG, tmp_path)

            def open_database():
                return opened.enter_context(closing(Database(url, PATIENCE_S, time_of=machine_time)))

            yield lambda *given: SqlTokenBuckets(open_database(), *given)


def test_a_bucket_gives_its_burst_and_then_its_rate(new_buckets):
    buckets = new_buckets("kind", 0.5, 3)
    assert [buckets.seconds_to_wait("ann", NOW) for _ in range(4)] == [0, 0, 0, 2]
    assert buckets.seconds_to_wait("ann", NOW + 1_000) == 1
    assert buckets.seconds_to_wait("ann", NOW + 2_000) == 0
    assert buckets.seconds_to_wait("ann", NOW + 2_000) == 2


def test_each_key_has_its_own_bucket_whatever_it_contains(new_buckets):
    buckets = new_buckets("kind", 1, 1)
    for key in ("ann", "ANN", "a%", "a_", "a\0b", "a\\0b", "é", ""):
        assert [buckets.seconds_to_wait(key, NOW) for _ in range(2)] == [0, 1], key


def test_a_clock_set_back_neither_fills_nor_empties_a_bucket(new_buckets):
    buckets = new_buckets("kind", 1, 1)
    assert buckets.seconds_to_wait("ann", NOW) == 0
    assert buckets.seconds_to_wait("ann", NOW - 3_600_000) == 1
    assert buckets.seconds_to_wait("ann", NOW - 3_600_000 + 1_000) == 0


@pytest.mark.parametrize("new_buckets", SQL_ENGINES, indirect=True)
def test_machines_share_a_bucket_and_kinds_do_not(new_buckets):
    here, there, other_kind = new_buckets("pair", 0.001, 20), new_buckets("pair", 0.001, 20), new_buckets("x", 1, 1)
    with ThreadPoolExecutor(4) as threads:
        waits = list(threads.map(lambda number: (here, there)[number % 2].seconds_to_wait("ann", NOW), range(40)))
    assert waits.count(0) == 20
    assert other_kind.seconds_to_wait("ann", NOW) == 0


@pytest.mark.parametrize("new_buckets", SQL_ENGINES, indirect=True)
def test_full_buckets_are_deleted(new_buckets):
    buckets = new_buckets("pair", 1, 10)
    for number in range(50):
        buckets.seconds_to_wait(f"key {number}", NOW)
    buckets.seconds_to_wait("later", NOW + 70_000)
    with buckets._database.reading() as tx:  # noqa: SLF001 - no reader asks for this
        assert tx.exec_driver_sql("SELECT count(*) FROM buckets").scalar() == 1
