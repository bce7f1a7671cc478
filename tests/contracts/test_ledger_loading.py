"""What every ledger promises to the loader.

Proves: two-loaders, failover.
"""

import threading

import pytest
import sqlalchemy as sa

from mauve.stores.ledger import (
    LOG_LOST,
    DeadLetter,
    Entry,
    Intent,
    LeaseLostError,
    LoadStep,
    StepOutdatedError,
    Turn,
    intent_from,
)
from mauve.stores.ledger.loading import LeaseStore, LoadLedger
from mauve.stores.ledger.schema import load_lease
from mauve.stores.ledger.writer import LedgerWriter
from mauve.stores.log import LogRecord
from support.ledger_entries import NOW, PERIOD, a_payment, everything_in, record_payments


class TestEventsOfMixedBatches:
    def record(self, writer, *records):
        writer.record([Entry(events=record) for record in records])

    def test_records_are_read_in_order_with_increasing_numbers(self, writer, loader):
        assert loader.read_events(0, 100) == []
        self.record(writer, b"one", b"\0two")
        self.record(writer, b"three")
        found = loader.read_events(0, 100)
        assert [payload for _, payload in found] == [b"one", b"\0two", b"three"]
        numbers = [number for number, _ in found]
        assert 0 < numbers[0] < numbers[1] < numbers[2]
        assert loader.read_events(numbers[1], 100) == found[2:]
        assert loader.read_events(numbers[2], 100) == []
        assert all(isinstance(record, LogRecord) for record in found)

    def test_an_entry_without_events_adds_none(self, writer, loader):
        writer.record([Entry([a_payment()]), Entry(events=b"")])
        assert [payload for _, payload in loader.read_events(0, 100)] == [b""]

    @pytest.mark.parametrize(("bytes_max", "count"), [(0, 1), (9, 1), (10, 1), (19, 1), (20, 2), (25, 2), (1000, 40)])
    def test_at_least_one_record_is_returned_and_otherwise_no_more_bytes_than_requested(
        self, writer, loader, bytes_max, count
    ):
        self.record(writer, *[b"0123456789"] * 40)
        assert len(loader.read_events(0, bytes_max)) == count

    def test_a_number_is_never_reused(self, writer, loader, open_ledger):
        self.record(writer, b"1", b"2", b"3")
        last = loader.read_events(0, 100)[-1].number
        loader.trim_events(last)
        assert loader.read_events(0, 100) == []
        self.record(LedgerWriter(open_ledger()), b"4")
        (record,) = loader.read_events(0, 100)
        assert record.number > last

    def test_the_records_that_wait_are_measured(self, writer, loader):
        assert loader.waiting_bytes(0) == 0
        self.record(writer, b"1", b"22", b"333")
        numbers = [number for number, _ in loader.read_events(0, 100)]
        assert [loader.waiting_bytes(after) for after in (0, *numbers)] == [6, 5, 3, 0]

    def test_trimming_deletes_records_up_to_and_including_the_number(self, writer, loader):
        self.record(writer, b"1", b"2", b"3")
        numbers = [number for number, _ in loader.read_events(0, 100)]
        loader.trim_events(numbers[1])
        loader.trim_events(numbers[0])
        assert [payload for _, payload in loader.read_events(0, 100)] == [b"3"]


class TestLoadSteps:
    def test_a_new_ledger_has_no_positions(self, loader):
        assert loader.positions() == {}
        assert loader.usage(PERIOD) == {}
        assert loader.first_seen() == {}
        assert loader.dead_letter_count() == 0

    def test_an_empty_step_is_allowed(self, loader, ledger_database):
        before = everything_in(ledger_database)
        loader.finish(LoadStep({}))
        assert everything_in(ledger_database) == before

    def test_positions_advance_from_the_start_of_a_step(self, loader):
        loader.finish(LoadStep({0: 5, 255: 2**46 - 1}))
        loader.finish(LoadStep({0: 6, 1: 3}, positions_before={0: 5, 1: 0}))
        assert loader.positions() == {0: 6, 1: 3, 255: 2**46 - 1}

    @pytest.mark.parametrize("before", [{}, {0: 5, 1: 2}], ids=["the first step", "a later step"])
    def test_a_step_finished_twice_is_counted_once(self, loader, ledger_database, before):
        if before:
            loader.finish(LoadStep(before))
        letters = [DeadLetter(0, 7, "why", b"", NOW)]
        step = LoadStep({0: 7, 1: 4}, {("org_1", PERIOD): 500}, {"proj_1": 5}, letters, positions_before=before)
        loader.finish(step)
        once = everything_in(ledger_database)
        with pytest.raises(StepOutdatedError):
            loader.finish(step)
        assert everything_in(ledger_database) == once
        assert loader.usage(PERIOD) == {"org_1": 500}

    @pytest.mark.parametrize("before", [{0: 4, 1: 2}, {0: 5}, {0: 5, 1: 3}, {0: 6, 1: 2}])
    def test_a_step_that_began_at_other_positions_changes_nothing(self, loader, ledger_database, before):
        loader.finish(LoadStep({0: 5, 1: 2}))
        untouched = everything_in(ledger_database)
        with pytest.raises(StepOutdatedError):
            loader.finish(LoadStep({0: 9, 1: 9}, {("org_1", PERIOD): 1}, positions_before=before))
        assert everything_in(ledger_database) == untouched

    def test_counts_are_added_to_those_of_payments(self, writer, loader):
        record_payments(writer, a_payment())
        loader.finish(LoadStep({}, {("org_1", PERIOD): 2**40, ("org_2", PERIOD): 1, ("org_1", "2027-02"): 5}))
        loader.finish(LoadStep({}, {("org_1", PERIOD): 2}))
        assert loader.usage(PERIOD) == {"org_1": 2**40 + 3, "org_2": 1}
        assert loader.usage("2027-02") == {"org_1": 5}

    def test_concurrent_steps_and_payments_are_all_counted(self, open_ledger, loader):
        def finish():
            own = LoadLedger(open_ledger())
            for _ in range(20):
                own.finish(LoadStep({}, {("org_1", PERIOD): 2, ("org_2", PERIOD): 1}))

        def record():
            own = LedgerWriter(open_ledger())
            for number in range(20):
                record_payments(own, a_payment(f"inv_{number}"))

        threads = [threading.Thread(target=work) for work in (finish, finish, record)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert loader.usage(PERIOD) == {"org_1": 100, "org_2": 40}

    def test_dead_letters_are_kept_with_the_reason(self, loader):
        letters = [DeadLetter(3, 7, "why\0so", b"\0\xff", NOW), DeadLetter(3, 7, "another item", b"", NOW)]
        loader.finish(LoadStep({3: 7}, dead_letters=letters))
        loader.finish(LoadStep({}, dead_letters=letters[:1]))
        assert loader.dead_letter_count() == 3

    def test_the_loss_of_a_log_is_counted_apart_from_records(self, loader):
        letters = [DeadLetter(3, 7, "why", b"", NOW), DeadLetter(1, 9, LOG_LOST, b"", NOW)]
        loader.finish(LoadStep({3: 7}, dead_letters=letters))
        assert loader.log_losses() == [(1, NOW)]


TTL_S = 600.0  # longer than any test takes


@pytest.fixture
def lease(ledger_database):
    return LeaseStore(ledger_database)


@pytest.fixture
def shift_expiry(ledger_database):
    """Move the end of the lease, as if time had passed or the database's clock had been set back."""

    def shift(seconds):
        with ledger_database.writing() as tx:
            tx.execute(sa.update(load_lease).values(expires_at=load_lease.c.expires_at + int(seconds * 1000)))

    return shift


class TestLease:
    def test_one_holder_has_it_until_it_expires_by_the_clock_of_the_database(self, lease, shift_expiry):
        assert lease.acquire("a", TTL_S) == Turn("a", 1)
        assert lease.acquire("b", TTL_S) is None
        shift_expiry(1 - TTL_S)
        assert lease.renew(Turn("a", 1), TTL_S)
        assert lease.acquire("b", TTL_S) is None, "it was renewed"
        shift_expiry(-TTL_S)
        assert lease.acquire("b", TTL_S) == Turn("b", 2)
        assert lease.acquire("a", TTL_S) is None

    def test_a_short_lease_expires_without_help(self, lease):
        assert lease.acquire("a", 0) == Turn("a", 1)
        assert lease.acquire("b", 0) == Turn("b", 2)

    def test_a_holder_that_was_restarted_gets_it_at_once_with_a_new_epoch(self, lease):
        assert [lease.acquire("a", TTL_S).epoch for _ in range(3)] == [1, 2, 3]

    def test_a_released_lease_is_free_at_once(self, lease):
        lease.release(lease.acquire("a", TTL_S))
        assert not lease.renew(Turn("a", 1), TTL_S)
        assert lease.acquire("b", TTL_S) == Turn("b", 2)

    def test_a_turn_that_is_over_neither_renews_nor_releases_the_next(self, lease, shift_expiry):
        lease.acquire("a", TTL_S)
        shift_expiry(-TTL_S)
        lease.acquire("b", TTL_S)
        assert not lease.renew(Turn("a", 1), TTL_S)
        lease.release(Turn("a", 1))
        assert lease.acquire("a", TTL_S) is None
        assert lease.renew(Turn("b", 2), TTL_S)

    def test_a_turn_of_another_holder_with_the_same_epoch_neither_renews_nor_releases(self, lease):
        """A failover that loses the last commit grants an epoch again."""
        lease.acquire("b", TTL_S)
        lost = Turn("a", 1)
        assert not lease.renew(lost, TTL_S)
        lease.release(lost)
        assert lease.acquire("a", TTL_S) is None
        assert lease.renew(Turn("b", 1), TTL_S)

    def test_an_expired_lease_is_renewed_if_no_other_holder_has_come(self, lease, shift_expiry):
        lease.acquire("a", TTL_S)
        shift_expiry(-2 * TTL_S)
        assert lease.renew(Turn("a", 1), TTL_S)
        assert lease.acquire("b", TTL_S) is None

    def test_a_clock_that_was_set_back_does_not_prolong_it(self, lease, shift_expiry):
        lease.acquire("a", TTL_S)
        shift_expiry(7200)
        assert lease.acquire("b", TTL_S) == Turn("b", 2)

    def test_of_many_that_ask_at_once_exactly_one_gets_it(self, open_ledger):
        stores = [LeaseStore(open_ledger()) for _ in range(4)]
        barrier, won = threading.Barrier(len(stores)), []

        def ask(holder, store):
            barrier.wait()
            won.append(store.acquire(holder, TTL_S))

        threads = [threading.Thread(target=ask, args=(str(holder), store)) for holder, store in enumerate(stores)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [turn.epoch for turn in won if turn is not None] == [1]


class TestIntent:
    RANGE = Intent({0: 5, 255: 0}, {0: 9, 255: 3})

    @pytest.fixture(autouse=True)
    def start(self, loader):
        loader.finish(LoadStep({0: 5}))

    def finished(self, **changes):
        return LoadStep(
            {0: 9, 255: 3}, {("org_1", PERIOD): 4}, positions_before={0: 5, 255: 0}, **{"turn": Turn("a", 1), **changes}
        )

    def test_its_name_is_the_range(self):
        assert self.RANGE.name == "0:5-9,255:0-3"
        assert Intent({255: 0, 0: 5}, {255: 3, 0: 9}).name == self.RANGE.name, "in any order"
        assert intent_from(self.RANGE.name) == self.RANGE

    def test_it_lasts_until_the_step_is_finished(self, loader, lease, open_ledger):
        assert loader.intent() is None
        loader.intend(self.RANGE, lease.acquire("a", TTL_S))
        assert LoadLedger(open_ledger()).intent() == self.RANGE
        lease.release(Turn("a", 1))
        assert lease.acquire("b", TTL_S) == Turn("b", 2)
        assert loader.intent() == self.RANGE, "the next loader finds it"
        loader.finish(self.finished(turn=Turn("b", 2)))
        assert loader.intent() is None
        assert loader.positions() == {0: 9, 255: 3}

    def test_the_last_one_replaces_those_before(self, loader, lease):
        turn = lease.acquire("a", TTL_S)
        loader.intend(self.RANGE, turn)
        half = Intent({0: 5}, {0: 7})
        loader.intend(half, turn)
        assert loader.intent() == half

    def test_a_turn_that_is_over_neither_intends_nor_finishes(self, loader, lease, ledger_database):
        lease.acquire("a", TTL_S)
        loader.intend(self.RANGE, Turn("a", 1))
        lease.acquire("a", TTL_S)
        before = everything_in(ledger_database)
        with pytest.raises(LeaseLostError):
            loader.intend(Intent({0: 5}, {0: 6}), Turn("a", 1))
        with pytest.raises(LeaseLostError):
            loader.finish(self.finished())
        assert everything_in(ledger_database) == before
        assert loader.usage(PERIOD) == {}
        assert loader.intent() == self.RANGE

    def test_a_turn_of_another_holder_with_the_same_epoch_neither_intends_nor_finishes(
        self, loader, lease, ledger_database
    ):
        """A failover that loses the last commit grants an epoch again: only one of two loaders may commit."""
        kept = lease.acquire("b", TTL_S)
        before = everything_in(ledger_database)
        for commit in (lambda: loader.intend(self.RANGE, Turn("a", 1)), lambda: loader.finish(self.finished())):
            with pytest.raises(LeaseLostError):
                commit()
        assert everything_in(ledger_database) == before
        loader.intend(self.RANGE, kept)
        loader.finish(self.finished(turn=kept))
        assert loader.usage(PERIOD) == {"org_1": 4}

    @pytest.mark.parametrize("before", [{0: 4}, {0: 0}, {0: 5, 1: 1}])
    def test_it_begins_at_the_positions(self, loader, lease, before):
        turn = lease.acquire("a", TTL_S)
        with pytest.raises(StepOutdatedError):
            loader.intend(Intent(before, dict.fromkeys(before, 9)), turn)
        assert loader.intent() is None

    def test_a_refused_step_leaves_it(self, loader, lease):
        loader.intend(self.RANGE, lease.acquire("a", TTL_S))
        with pytest.raises(StepOutdatedError):
            loader.finish(LoadStep({0: 9}, positions_before={0: 4}, turn=Turn("a", 1)))
        assert loader.intent() == self.RANGE


class TestFirstSeen:
    def test_the_first_event_of_a_project_is_recorded(self, loader):
        loader.finish(LoadStep({}, first_seen_by_project={"proj_1": 5, "proj_2": 6}))
        loader.finish(LoadStep({}, first_seen_by_project={"proj_1": 7, "proj_3": 8}))
        assert loader.first_seen() == {"proj_1": 5, "proj_2": 6, "proj_3": 8}

    def test_an_acknowledged_first_event_is_not_reported_again(self, writer, loader):
        loader.finish(LoadStep({}, first_seen_by_project={"proj_1": 5, "proj_2": 6}))
        loader.acknowledge_first_seen({"proj_1": 5, "proj_missing": 5})
        loader.acknowledge_first_seen({})
        assert loader.first_seen() == {"proj_2": 6}
        loader.finish(LoadStep({}, first_seen_by_project={"proj_1": 9}))
        record_payments(writer, a_payment())
        assert loader.first_seen() == {"proj_2": 6}

    def test_the_earliest_event_counts_in_any_order(self, writer, loader):
        record_payments(writer, a_payment(received_at=50))
        loader.finish(LoadStep({}, first_seen_by_project={"proj_1": 40}))
        assert loader.first_seen() == {"proj_1": 40}
        loader.acknowledge_first_seen({"proj_1": 40})
        record_payments(writer, a_payment("inv_2", received_at=30), a_payment("inv_3", received_at=35))
        assert loader.first_seen() == {"proj_1": 30}, "for the catalog to take over again"
        loader.finish(LoadStep({}, first_seen_by_project={"proj_1": 20}))
        loader.acknowledge_first_seen({"proj_1": 30})
        assert loader.first_seen() == {"proj_1": 20}, "the catalog has not heard of this one"

    def test_many_are_acknowledged_at_once(self, loader):
        moments = {f"proj_{number}": number for number in range(2000)}
        loader.finish(LoadStep({}, first_seen_by_project=moments))
        assert loader.first_seen() == moments
        loader.acknowledge_first_seen(moments)
        assert loader.first_seen() == {}


def test_the_first_position_requests_the_row_count_that_some_drivers_omit(loader):
    asked = []

    def note(_connection, _cursor, statement, _parameters, context, _many):
        if statement.startswith("INSERT INTO load_positions"):
            asked.append(context.execution_options.get("preserve_rowcount"))

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        loader.finish(LoadStep({1: 5}, {}))
        with pytest.raises(StepOutdatedError):
            loader.finish(LoadStep({1: 5}, {}))
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)
    assert asked == [True, True]
