"""What every reader of current subscriptions promises."""

from dataclasses import replace
from functools import partial
from itertools import product

import pytest

from mauve.stores.ledger import Entry
from mauve.stores.ledger.maintenance import LedgerMaintenance
from mauve.stores.ledger.schema import subscription_versions
from mauve.stores.ledger.subscription_list import (
    ID_CHARACTERS_SHOWN,
    SubscriptionOrder,
    SubscriptionQuery,
    SubscriptionReader,
    position_of,
)
from support.ledger_entries import a_version, rows_of
from support.query_plans import sqlite_plans

ALL = SubscriptionQuery()


@pytest.fixture
def subscriptions(ledger_database):
    return SubscriptionReader(ledger_database)


def test_only_the_current_version_is_shown(writer, subscriptions):
    writer.record([Entry(subscriptions=[a_version(id="s", at=2, status="canceled", mrr=7), a_version(id="s", at=1)])])
    (found,) = subscriptions.page("proj_1", ALL, 10)
    assert (found.id, found.at, found.status, found.mrr, found.is_counted) == ("s", 2, "canceled", 7, False)


ORDERS = {
    SubscriptionOrder.UPDATED: lambda each: (-each.at,),
    SubscriptionOrder.MRR: lambda each: (each.currency != "usd", -each.mrr),
    SubscriptionOrder.STATUS: lambda each: (each.status, each.at),
}


@pytest.mark.parametrize("order", SubscriptionOrder)
@pytest.mark.parametrize("status", [None, "active"])
def test_pages_contain_every_subscription_of_the_project_once_in_order(writer, subscriptions, order, status):
    made = [
        a_version(number % 7, id=f"s{number}", mrr=number % 5, status=state, currency=currency)
        for number, (state, currency) in enumerate(
            product(["active", "trialing", "a\\b\0", ""], ["eur", "usd"] * 3), start=1
        )
    ]
    writer.record([Entry(subscriptions=made)])
    writer.record([Entry(subscriptions=[a_version(id="other", project="proj_other")])])
    seen, query = [], SubscriptionQuery(order, status=status)
    while found := subscriptions.page("proj_1", query, 3):
        seen += found
        query = replace(query, after=position_of(found[-1], order))
    wanted = [each.id for each in made if status in {None, each.status}]
    assert sorted(each.id for each in seen) == sorted(wanted)
    assert [ORDERS[order](each) for each in seen] == sorted(map(ORDERS[order], seen))


def test_a_subscription_is_found_by_its_whole_id_or_its_customer(writer, subscriptions):
    long = "i" * 100_000
    made = [
        a_version(2, id="one", customer="ann"),
        a_version(1, id="two", customer="ann", plan="Pro"),
        a_version(id="three", customer="one"),
        a_version(id=long),
    ]
    writer.record([Entry(subscriptions=made)])

    def named(text):
        return [each.id for each in subscriptions.page("proj_1", SubscriptionQuery(named=text), 10)]

    assert named("ann") == ["one", "two"]
    assert named("one") == ["one", "three"]
    assert (len(named(long)), named("on"), named("")) == (1, [], [])
    two = subscriptions.page("proj_1", SubscriptionQuery(named="two"), 10)[0]
    assert (two.customer, two.plan) == ("ann", "Pro")


def test_a_later_version_replaces_customer_and_plan(writer, subscriptions):
    writer.record([Entry(subscriptions=[a_version(1, customer="ann", plan="Basic")])])
    writer.record([Entry(subscriptions=[a_version(2, customer="bob", plan="Pro"), a_version(0, customer="eve")])])
    (found,) = subscriptions.page("proj_1", ALL, 10)
    assert (found.customer, found.plan) == ("bob", "Pro")


def test_an_erased_customer_is_not_found(writer, subscriptions, ledger_database):
    made = [a_version(at, customer="ann", plan="Pro", payload=b'{"customer":"ann"}') for at in (1, 2)]
    writer.record([Entry(subscriptions=[*made, a_version(id="x", customer="ann"), a_version(id="y", customer="bob")])])
    erased = LedgerMaintenance(ledger_database, longest_read_s=10).erase_user("proj_1", "ann")
    assert erased.subscription_versions == 3
    found = {each.id: each.customer for each in subscriptions.page("proj_1", ALL, 10)}
    assert found == {"sub_1": None, "x": None, "y": "bob"}
    assert subscriptions.page("proj_1", SubscriptionQuery(named="ann"), 10) == []
    assert {row.customer for row in rows_of(ledger_database, subscription_versions)} == {None, "bob"}


def test_a_summary_adds_up(writer, subscriptions):
    made = [a_version(id="a", mrr=5), a_version(id="b", mrr=7), a_version(id="c", status="trialing", mrr=9)]
    writer.record([Entry(subscriptions=[*made, a_version(id="d", mrr=0, currency="usd")])])
    found = subscriptions.summary("proj_1", SubscriptionQuery(status="trialing"), 10, 10)
    assert found.mrr == [("eur", 12), ("usd", 0)]
    assert sum(each.count for each in found.counts) == 4
    assert [each.id for each in found.subscriptions] == ["c"]
    assert subscriptions.summary("proj_2", ALL, 10, 10) == ([], [], [])


@pytest.mark.parametrize("ledger_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("order", SubscriptionOrder)
def test_sqlite_reads_a_page_in_the_order_of_an_index(writer, subscriptions, ledger_database, order):
    writer.record([Entry(subscriptions=[a_version(customer="a"), a_version(id="sub_2", customer="a")])])
    (first,) = subscriptions.page("proj_1", SubscriptionQuery(order), 1)
    query = SubscriptionQuery(order, after=position_of(first, order))
    (plan,) = sqlite_plans(ledger_database, partial(subscriptions.page, "proj_1", query, 10))
    assert f"ix_subscriptions_{order}" in plan
    assert "TEMP B-TREE" not in plan, "nothing is sorted"
    lookup, named = sqlite_plans(ledger_database, partial(subscriptions.page, "proj_1", replace(query, named="a"), 10))
    assert "ix_subscriptions_customer" in lookup
    assert "(project=? AND key=?" in named
    *_, counts, _ = sqlite_plans(ledger_database, partial(subscriptions.summary, "proj_1", query, 10, 10))
    assert "COVERING INDEX ix_subscriptions_status" in counts


def test_counts_are_by_status_and_currency_most_frequent_first(writer, subscriptions):
    made = [
        a_version(id="a"),
        a_version(id="b"),
        a_version(id="c", status="trialing"),
        a_version(id="d", currency="usd"),
    ]
    writer.record([Entry(subscriptions=made)])
    counts = subscriptions.summary("proj_1", ALL, 10, 10).counts
    found = [(each.status, each.currency, each.count) for each in counts]
    assert found == [("active", "eur", 2), ("active", "usd", 1), ("trialing", "eur", 1)]
    assert len(subscriptions.summary("proj_1", ALL, 10, 1).counts) == 1


@pytest.mark.parametrize("letter", ["i", "\0", "\\", "\N{FAMILY}"])
def test_a_long_id_is_truncated(writer, subscriptions, letter):
    ids = [letter * (ID_CHARACTERS_SHOWN + more) for more in (0, 1, 100_000)]
    writer.record([Entry(subscriptions=[a_version(id=each) for each in ids])])
    shown = [each.id for each in subscriptions.page("proj_1", ALL, 10)]
    assert sorted(shown) == [ids[0], ids[0] + "…", ids[0] + "…"]


def test_subscriptions_are_found_by_their_ids(writer, subscriptions):
    writer.record([Entry(subscriptions=[a_version(id="a"), a_version(id="b"), a_version(id="c", project="proj_2")])])
    assert [each.id for each in subscriptions.with_ids("proj_1", ["a", "c", "d"])] == ["a"]
    assert subscriptions.with_ids("proj_1", []) == []
