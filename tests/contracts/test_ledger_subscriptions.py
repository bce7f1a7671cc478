"""What every ledger promises about subscriptions."""

from itertools import permutations

import pytest
from msgspec.structs import replace

from mauve.stores.ledger import Entry, SubscriptionVersion
from mauve.stores.ledger.schema import subscription_versions, subscriptions
from support.ledger_entries import AMOUNT_MAX, NOW, ODD_IDS, PERIOD, a_version, mrr_of, rows_of


class TestSubscriptions:
    VERSIONS = (a_version(1, mrr=1), a_version(2, mrr=2), a_version(3, mrr=4), a_version(4, mrr=8))

    @pytest.mark.parametrize("order", list(permutations(range(4))))
    def test_the_last_version_wins_in_any_order_of_arrival(self, writer, reader, ledger_database, order):
        versions = [replace(self.VERSIONS[place], project=f"proj_{how}") for how in range(2) for place in order]
        writer.record([Entry(subscriptions=versions[:4])])
        for version in versions[4:]:
            writer.record([Entry(subscriptions=[version])])
        assert [mrr_of(reader, "proj_0"), mrr_of(reader, "proj_1")] == [[("eur", 8)]] * 2
        kept = sorted(row.at for row in rows_of(ledger_database, subscription_versions))
        assert kept == sorted(version.at for version in versions)

    @pytest.mark.parametrize("how", ["in one entry", "in one group", "in two transactions"])
    def test_at_equal_times_the_last_recorded_wins(self, writer, reader, how):
        one, two = a_version(mrr=5), a_version(mrr=3, currency="usd")
        if how == "in one entry":
            writer.record([Entry(subscriptions=[one, two])])
        elif how == "in one group":
            writer.record([Entry(subscriptions=[one]), Entry(subscriptions=[two])])
        else:
            writer.record([Entry(subscriptions=[one])])
            writer.record([Entry(subscriptions=[two])])
        assert mrr_of(reader, "proj_1") == [("usd", 3)]

    def test_only_active_subscriptions_count(self, writer, reader):
        states = ["active", "trialing", "Active", "active ", "", "active\0"]
        versions = [a_version(id=f"sub_{state}", status=state, mrr=10) for state in states]
        writer.record([Entry(subscriptions=versions)])
        assert mrr_of(reader, "proj_1") == [("eur", 10)]
        writer.record([Entry(subscriptions=[a_version(2, id="sub_active", status="canceled")])])
        assert mrr_of(reader, "proj_1") == []

    def test_sums_of_any_size_are_exact_by_currency_and_project(self, writer, reader):
        versions = [a_version(id=str(number), mrr=AMOUNT_MAX) for number in range(2000)]
        others = [a_version(id="usd", currency="usd", mrr=0), a_version(project="proj_2", mrr=3)]
        writer.record([Entry(subscriptions=[*versions, *others])])
        assert mrr_of(reader, "proj_1") == [("eur", AMOUNT_MAX * 2000), ("usd", 0)]
        assert mrr_of(reader, "proj_2") == [("eur", 3)]
        assert mrr_of(reader, "proj_3") == []

    def test_unusual_and_very_long_ids_are_distinguished_and_returned_unchanged(self, writer, reader, ledger_database):
        ids = [*ODD_IDS, "", "x" * 100_000, "x" * 100_000 + "y"]
        writer.record([Entry(subscriptions=[a_version(id=id_, status="active", mrr=1) for id_ in ids])])
        assert mrr_of(reader, "proj_1") == [("eur", len(ids))]
        assert sorted(row.id for row in rows_of(ledger_database, subscriptions)) == sorted(ids)
        assert sorted(row.id for row in rows_of(ledger_database, subscription_versions)) == sorted(ids)

    def test_the_current_row_is_the_whole_version(self, writer, ledger_database):
        first = a_version(-(10**17), status="a\0b", mrr=AMOUNT_MAX, payload=b"\0\xff")
        for version in (first, a_version(10**17, status="past_due", mrr=0, currency="jpy", received_at=NOW + 1)):
            writer.record([Entry(subscriptions=[version])])
            (row,) = rows_of(ledger_database, subscriptions)
            stored = row._asdict()
            assert len(stored.pop("key")) == 32
            assert SubscriptionVersion(**stored) == version

    def test_a_subscription_is_not_an_event(self, writer, loader):
        writer.record([Entry(subscriptions=[a_version()])])
        assert (loader.usage(PERIOD), loader.first_seen()) == ({}, {})


class TestRanks:
    """Versions with their own order among those of the same time."""

    VERSIONS = (
        a_version(5, rank=b"\x02", mrr=1),
        a_version(5, rank=b"\x02\x00", mrr=2),
        a_version(5, rank=b"\xff", mrr=4),
        a_version(4, rank=b"\xff\xff", mrr=8),
    )

    @pytest.mark.parametrize("order", list(permutations(range(4))))
    def test_the_highest_rank_at_the_last_time_wins_in_any_order_of_arrival(self, writer, reader, order):
        versions = [replace(self.VERSIONS[place], project=f"proj_{how}") for how in range(2) for place in order]
        writer.record([Entry(subscriptions=versions[:4])])
        for version in versions[4:]:
            writer.record([Entry(subscriptions=[version])])
        assert [mrr_of(reader, "proj_0"), mrr_of(reader, "proj_1")] == [[("eur", 4)]] * 2

    def test_a_repeated_version_is_recorded_once(self, writer, ledger_database):
        first = a_version(5, rank=b"r", received_at=NOW)
        again = replace(first, received_at=NOW + 1)
        writer.record([Entry(subscriptions=[first, again]), Entry(subscriptions=[again])])
        writer.record([Entry(subscriptions=[again])])
        assert [row.received_at for row in rows_of(ledger_database, subscription_versions)] == [NOW]
        assert [row.received_at for row in rows_of(ledger_database, subscriptions)] == [NOW]

    def test_any_rank_is_above_no_rank(self, writer, reader):
        for versions in permutations([a_version(5, mrr=1), a_version(5, mrr=2, rank=b"\0")]):
            writer.record([Entry(subscriptions=versions)])
            assert mrr_of(reader, "proj_1") == [("eur", 2)]
