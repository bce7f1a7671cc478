"""The lease of one loader: acquired, renewed by its own thread, lost and released.

Proves: two-loaders.
"""

import threading
from contextlib import closing, nullcontext
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from mauve.load import lease as lease_module
from mauve.load.lease import RENEW_EVERY_S, TRY_EVERY_S, TTL_S, YIELD_S, LoaderLease
from mauve.stores import StoreUnavailableError
from mauve.stores.ledger import Turn
from mauve.wiring import warehouse
from support.clocks import Ticks
from support.service import PATIENCE_S, eventually


class Store:
    """A lease in memory that never expires, and may be taken away."""

    def __init__(self):
        self.holder, self.turn, self.renewals = None, Turn("", 0), 0
        self.failure = None
        self.renewed = threading.Semaphore(0)

    def acquire(self, holder, _ttl_s):
        if self.holder not in {None, holder}:
            return None
        self.holder, self.turn = holder, Turn(holder, self.turn.epoch + 1)
        return self.turn

    def renew(self, turn, _ttl_s):
        self.renewed.release()
        if self.failure:
            raise self.failure
        return turn == self.turn

    def release(self, turn):
        if self.failure:
            raise self.failure
        if turn == self.turn:
            self.holder = None


def lease_of(store, holder="a", renew_every_s=0.001):
    return closing(LoaderLease(store, holder, renew_every_s=renew_every_s))


def test_it_is_acquired_once_and_then_renewed():
    store = Store()
    with lease_of(store) as lease:
        assert lease.turn().epoch == 1
        for _ in range(3):
            assert store.renewed.acquire(timeout=PATIENCE_S)
        assert lease.turn().epoch == 1


def test_a_lost_lease_is_noticed_while_it_is_renewed():
    store = Store()
    with lease_of(store) as lease:
        lease.turn()
        store.acquire("a", 8)
        store.holder = "b"
        eventually(lambda: lease.turn() is None)
        store.holder = None
        assert lease.turn().epoch == 3


def test_it_is_released_when_it_is_closed():
    store = Store()
    with lease_of(store) as one, lease_of(store, "b") as other:
        assert (one.turn(), other.turn()) == (Turn("a", 1), None)
        one.close()
        assert other.turn().epoch == 2
    assert store.holder is None


def test_after_it_was_closed_it_is_not_acquired_again():
    store = Store()
    with lease_of(store) as lease:
        lease.turn()
        lease.close()
        assert (lease.turn(), store.holder) == (None, None)


def test_one_that_gives_way_stays_away_for_some_seconds(monkeypatch):
    ticks, store = Ticks(), Store()
    monkeypatch.setattr(lease_module, "time", SimpleNamespace(monotonic=ticks))
    with lease_of(store, renew_every_s=PATIENCE_S) as lease:
        assert lease.turn().epoch == 1
        lease.give_way()
        ticks.now_s += YIELD_S - 0.1
        assert (lease.turn(), store.holder) == (None, None)
        ticks.now_s += 0.1
        assert lease.turn().epoch == 2


def test_the_only_loader_never_stays_away():
    store = Store()
    with lease_of(store, renew_every_s=None) as lease:
        lease.turn()
        lease.give_way()
        assert lease.turn().epoch == 2


def test_a_lease_that_was_not_acquired_is_not_released():
    store = Store()
    store.acquire("b", 8)
    with lease_of(store) as lease:
        assert lease.turn() is None
    assert store.holder == "b"


def test_after_a_failure_it_is_asked_for_again():
    store = Store()
    with lease_of(store, renew_every_s=None) as lease:
        assert lease.turn().epoch == 1
        lease.lose()
        assert lease.turn().epoch == 2
        lease.lose()
        store.holder = "b"
        assert lease.turn() is None


def test_a_ledger_that_is_away_ends_neither_the_lease_nor_its_thread():
    store = Store()
    with capture_logs() as logs, lease_of(store) as lease:
        lease.turn()
        store.failure = StoreUnavailableError("away")
        eventually(lambda: [line["event"] for line in logs].count("lease_not_renewed") >= 2)
        assert lease.turn().epoch == 1
    assert logs[-1]["event"] == "lease_not_released"


def test_the_intervals_leave_room_for_another_loader_within_ten_seconds_of_a_death():
    """Compare the constants only: two attempts fit, one of which may fail, and the holder may miss two renewals."""
    assert TTL_S + 2 * TRY_EVERY_S < 10
    assert 3 * RENEW_EVERY_S < TTL_S
    assert 2 * TRY_EVERY_S <= 2, "within 2 s of a release, of which one try may fail"
    assert YIELD_S > 2 * TRY_EVERY_S, "every other loader tries meanwhile"


def test_a_transaction_of_the_loader_keeps_its_locks_for_no_longer_than_the_lease_lasts(settings, monkeypatch):
    asked = {}

    def note(_settings, **limits):
        asked.update(limits)
        raise StoreUnavailableError("noted")

    monkeypatch.setattr(warehouse, "open_warehouse", lambda _settings: nullcontext())
    monkeypatch.setattr(warehouse, "open_ledger_database", note)
    with pytest.raises(StoreUnavailableError, match="noted"):
        warehouse.open_load_parts(settings)
    assert asked == {"idle_s": TTL_S}
