"""What the loader's runner does besides loading, and what it reports."""

from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from prometheus_client import CollectorRegistry

from mauve.load import runner as runner_module
from mauve.load.runner import LoadMetrics, LoadRunner
from mauve.stores.warehouse import WarehouseUnavailableError
from support.clocks import Ticks


def test_the_runner_reports_when_the_warehouse_fails_and_recovers():
    parts = MagicMock()
    parts.clock.now_ms.return_value = 0
    parts.loader.load_next_range.side_effect = [0, WarehouseUnavailableError("down"), 0]
    runner = LoadRunner(lambda: parts, LoadMetrics(CollectorRegistry()))
    assert runner.has_warehouse
    runner.step()
    assert runner.has_warehouse
    with pytest.raises(WarehouseUnavailableError):
        runner.step()
    assert not runner.has_warehouse
    runner.step()
    assert runner.has_warehouse


def test_a_warehouse_that_cannot_be_opened_is_reported():
    opening = MagicMock(side_effect=WarehouseUnavailableError("damaged"))
    runner = LoadRunner(opening, LoadMetrics(CollectorRegistry()))
    with pytest.raises(WarehouseUnavailableError):
        runner.step()
    assert not runner.has_warehouse


def test_under_steady_load_first_events_are_reported_before_the_log_is_ever_empty(monkeypatch):
    ticks = Ticks()
    monkeypatch.setattr(runner_module, "time", SimpleNamespace(monotonic=ticks, sleep=None))
    parts = MagicMock()
    parts.clock.now_ms.return_value = 0
    parts.loader.has_reached_end = True
    parts.ledger.first_seen.side_effect = [{"proj_1": 5}] + [{}] * 9
    runner = LoadRunner(lambda: parts, LoadMetrics(CollectorRegistry()))

    def load_next_range():
        ticks.now_s += 0.4
        if ticks.now_s > 1_004:
            runner.stop()
        return 1

    parts.loader.load_next_range.side_effect = load_next_range
    runner.step()
    parts.note_first_event.assert_called_once_with("proj_1", 5)
    assert 3 <= parts.days.close_next_days.call_count <= 6, "about once a second, and at the end"
