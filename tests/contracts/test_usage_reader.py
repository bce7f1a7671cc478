"""What every ledger promises about the usage it has counted."""

import threading

import pytest

from mauve.core.accepted import OrgPeriod
from mauve.core.batch import packed_header
from mauve.stores.ledger import Entry, LoadStep
from mauve.stores.ledger.loading import LoadLedger
from mauve.stores.ledger.usage import UsageReader
from mauve.stores.log import MIXED_STREAM
from support.ledger_entries import NOW, PERIOD, a_payment, record_payments

ORG = "org_1"


@pytest.fixture
def usage(ledger_database):
    return UsageReader(ledger_database)


def events_of(org_id, count):
    return packed_header("proj_1", org_id, NOW, NOW * 1000, count) + b'{"name": "a"}' * 200


def test_a_new_ledger_has_counted_nothing(usage):
    assert usage.counted(PERIOD, {ORG}, 0) == (PERIOD, {}, {}, [], 0)
    assert usage.events(OrgPeriod(ORG, PERIOD)) == 0


def test_payments_and_loaded_events_of_the_given_organizations_are_counted_by_period(usage, writer, loader):
    record_payments(writer, a_payment())
    counts = {(ORG, PERIOD): 500, ("org_2", PERIOD): 7, ("org_3", PERIOD): 1, (ORG, "2027-02"): 9}
    loader.finish(LoadStep({0: 5, 1: 6}, counts))
    counted = usage.counted(PERIOD, {ORG, "org_2", "org_9"}, 0)
    assert (counted.events, counted.positions) == ({ORG: 501, "org_2": 7}, {0: 5, 1: 6})
    assert usage.events(OrgPeriod(ORG, "2027-02")) == 9


def test_thousands_of_organizations_are_read_at_once(usage, loader):
    everyone = {f"org_{number}": number + 1 for number in range(2_000)}
    loader.finish(LoadStep({}, {(org_id, PERIOD): events for org_id, events in everyone.items()}))
    assert usage.counted(PERIOD, everyone.keys(), 0).events == everyone


def test_events_sent_with_payments_are_pending_until_their_position_is_passed(usage, writer, loader):
    writer.record([Entry(events=events_of(ORG, 3)), Entry(events=events_of("org_2", 4)), Entry(events=b"damaged")])
    writer.record([Entry(events=events_of(ORG, 5))])
    org_period = OrgPeriod(ORG, PERIOD)
    numbers = [record.number for record in loader.read_events(0, 10**6)]
    counted = usage.counted(PERIOD, {ORG}, 0)
    assert counted.mixed == [(numbers[0], org_period, 3), (numbers[3], org_period, 5)]
    assert counted.mixed_through == numbers[3]
    assert usage.counted(PERIOD, {ORG}, numbers[1]).mixed == [(numbers[3], org_period, 5)]
    assert usage.counted(PERIOD, {ORG}, counted.mixed_through).mixed == []
    loader.finish(LoadStep({MIXED_STREAM: numbers[2]}))
    assert usage.counted(PERIOD, {ORG}, 0).mixed == [(numbers[3], org_period, 5)]


def test_counts_and_positions_are_read_in_one_transaction(usage, open_ledger):
    def finish():
        own = LoadLedger(open_ledger())
        for number in range(1, 60):
            own.finish(LoadStep({1: number}, {(ORG, PERIOD): 1}, positions_before={1: number - 1}))

    loading = threading.Thread(target=finish)
    loading.start()
    seen = set()
    while loading.is_alive() or len(seen) < 1:
        counted = usage.counted(PERIOD, {ORG}, 0)
        seen.add((counted.events.get(ORG, 0), counted.positions.get(1, 0)))
    loading.join()
    assert all(events == position for events, position in seen), seen
