"""What the loader's runner does besides loading, and what it reports.

Proves: loader-unreachable, readiness.
"""

import asyncio
import gc
import os
import signal
import sys
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from prometheus_client import CollectorRegistry

from mauve.load import runner as runner_module
from mauve.load.runner import LoadMetrics, LoadRunner
from mauve.server import child
from mauve.server.child_protocol import Ready
from mauve.stores import StoreUnavailableError
from mauve.stores.log import LogRecord
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


def test_every_range_and_follow_up_is_work_of_its_own_and_none_is_left_after_a_failure():
    parts, works = MagicMock(), []
    parts.clock.now_ms.return_value = 0
    runner = LoadRunner(lambda: parts, LoadMetrics(CollectorRegistry()))
    ranges = iter([1, 1, 0, WarehouseUnavailableError("down")])

    def load_next_range():
        works.append(runner.work())
        if isinstance(found := next(ranges), Exception):
            raise found
        return found

    parts.loader.load_next_range.side_effect = load_next_range
    parts.days.close_next_days.side_effect = lambda _: works.append(runner.work())
    runner.step()
    assert runner.work() is None
    with pytest.raises(WarehouseUnavailableError):
        runner.step()
    assert runner.work() is None
    assert None not in works
    assert len(set(works)) == len(works) >= 5


def test_a_loader_that_waits_does_not_ask_the_log_and_reports_no_backlog():
    """A log without a leader answers late: asking it would delay taking over."""
    parts, registry = MagicMock(), CollectorRegistry()
    parts.clock.now_ms.return_value = 0
    parts.ledger.waiting_bytes.return_value = 0
    parts.source.backlog_bytes.return_value = 5_000
    parts.loader.load_next_range.return_value = 0
    parts.lease.is_yielding = False
    runner = LoadRunner(lambda: parts, LoadMetrics(registry))
    runner.step()
    assert (runner.status()["backlog_bytes"], registry.get_sample_value("mauve_log_bytes")) == (5_000, 5_000)
    parts.lease.turn.return_value = None
    parts.source.reset_mock()
    runner.step()
    assert (runner.status()["backlog_bytes"], registry.get_sample_value("mauve_log_bytes")) == (0, 0)
    assert parts.source.mock_calls == []


class TestStopping:
    @pytest.fixture
    def parts(self):
        parts = MagicMock()
        parts.clock.now_ms.return_value = 0
        parts.loader.load_next_range.return_value = 0
        return parts

    @pytest.fixture
    def runner(self, parts):
        return LoadRunner(lambda: parts, LoadMetrics(CollectorRegistry()))

    def test_a_stopped_loader_releases_the_lease_with_its_next_step_and_does_nothing_else(self, runner, parts):
        runner.step()
        parts.lease.close.assert_not_called()
        runner.stop()
        parts.reset_mock()
        runner.step()
        assert [each[0] for each in parts.mock_calls] == ["lease.close"]

    @pytest.mark.parametrize("failure", [None, WarehouseUnavailableError("down")])
    def test_a_step_in_progress_releases_the_lease_at_its_end(self, runner, parts, failure):
        def load():
            runner.stop()
            parts.lease.close.assert_not_called()
            if failure:
                raise failure
            return 1

        parts.loader.load_next_range.side_effect = load
        with pytest.raises(WarehouseUnavailableError) if failure else nullcontext():
            runner.step()
        parts.lease.close.assert_called_once_with()

    def test_work_that_needs_the_loader_is_refused(self, runner, parts):
        parts.lease.turn.return_value = None
        parts.source.streams.return_value = []
        parts.ledger.last_event_number.return_value = 5
        parts.ledger.positions.return_value = {}
        parts.ledger.read_events.return_value = [LogRecord(5, b"")]
        runner.stop()
        with pytest.raises(StoreUnavailableError, match="service is stopping"):
            runner.load_pending()


def test_a_stop_ends_loading_before_requests_are_waited_for(monkeypatch):
    """A slow upload must not delay the loader of another machine."""
    happened = []

    class Server:
        async def open(self):
            self.has_stopped = asyncio.Event()
            os.kill(os.getpid(), signal.SIGTERM)

        def stop(self):
            happened.append("no more connections")
            self.has_stopped.set()

        async def closed(self):
            await self.has_stopped.wait()
            happened.append("requests answered")

    (stdin, supervisor), (reports, stdout) = os.pipe(), os.pipe()
    with os.fdopen(stdin) as stdin_file, os.fdopen(stdout, "w") as stdout_file:
        monkeypatch.setattr(sys, "stdin", stdin_file)
        monkeypatch.setattr(sys, "stdout", stdout_file)
        stop_loading = partial(happened.append, "loading stopped")
        thresholds = gc.get_threshold()
        try:
            asyncio.run(child.serve_until_stopped(Server(), Ready(), failure=lambda: None, on_stop=stop_loading))
        finally:  # It tunes the garbage collector for a process that serves.
            gc.unfreeze()
            gc.set_threshold(*thresholds)
    for each in (supervisor, reports):
        os.close(each)
    assert happened == ["loading stopped", "no more connections", "requests answered"]
