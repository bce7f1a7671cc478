"""What the loader's runner reports about its engines."""

from unittest.mock import MagicMock

import pytest
from prometheus_client import CollectorRegistry

from mauve.load.runner import LoadMetrics, LoadRunner
from mauve.stores.warehouse import WarehouseUnavailableError


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
