"""When raw events are made anonymous."""

from contextlib import nullcontext
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mauve.maintenance.retention import Forgotten, Retention, first_day_kept
from mauve.stores.warehouse import WarehouseUnavailableError
from support.clocks import ManualClock

DAY_MS = 86_400_000
NOON = 1_800_014_400_000  # 2027-01-15 12:00 UTC


@given(now=st.datetimes(datetime(1990, 1, 1), datetime(2100, 1, 1)), days=st.integers(1, 5_000))  # noqa: DTZ001 - UTC below
def test_today_and_the_given_days_before_it_are_kept(now, days):
    moment = now.replace(tzinfo=UTC)
    assert first_day_kept(int(moment.timestamp() * 1000), days) == moment.date() - timedelta(days=days)


def test_a_retention_longer_than_history_keeps_everything():
    assert first_day_kept(NOON, 36_500) == date(1970, 1, 1)


class Warehouse:
    """Records which days it is asked to forget, and may be down."""

    def __init__(self):
        self.forgotten, self.is_down = [], False

    def anonymize_raw_before(self, day):
        if self.is_down:
            raise WarehouseUnavailableError("down")
        self.forgotten.append(day)
        return 7


@pytest.fixture
def warehouse():
    return Warehouse()


@pytest.fixture
def recorded():
    return []


@pytest.fixture
def clock():
    return ManualClock(NOON)


def retention(days, warehouse, clock, recorded):
    return Retention(days, lambda: nullcontext(warehouse), clock, recorded.append)


def test_it_runs_at_the_start_and_once_a_day(warehouse, clock, recorded):
    job = retention(30, warehouse, clock, recorded)
    for _ in range(49):  # every hour for two days
        job.forget_if_due()
        clock.advance(3_600_000)
    assert warehouse.forgotten == [date(2026, 12, 16), date(2026, 12, 17), date(2026, 12, 18)]
    assert recorded[0] == Forgotten("2026-12-16", 7, NOON)


def test_with_zero_days_nothing_is_ever_forgotten(warehouse, clock, recorded):
    retention(0, warehouse, clock, recorded).forget_if_due()
    assert (warehouse.forgotten, recorded) == ([], [])


def test_a_failed_run_is_retried_at_the_next_check(warehouse, clock, recorded):
    job = retention(1, warehouse, clock, recorded)
    warehouse.is_down = True
    with pytest.raises(WarehouseUnavailableError):
        job.forget_if_due()
    warehouse.is_down = False
    job.forget_if_due()
    assert len(recorded) == 1


def test_machines_that_share_a_warehouse_forget_once_a_day_together(warehouse, clock, recorded):
    def machine():
        return Retention(
            90, lambda: nullcontext(warehouse), clock, recorded.append, lambda: recorded[-1] if recorded else None
        )

    one, other = machine(), machine()
    for _ in range(2):
        one.forget_if_due()
        other.forget_if_due()
        clock.advance(DAY_MS)
    assert len(warehouse.forgotten) == len(recorded) == 2
    machine().forget_if_due()
    assert len(warehouse.forgotten) == 3
