"""What every reader of current subscriptions promises."""

import pytest

from mauve.stores.ledger import Entry
from mauve.stores.sql.ledger.subscriptions import SqlSubscriptionReader
from mauve.stores.subscriptions import ID_CHARACTERS_SHOWN
from support.ledger_entries import a_version


@pytest.fixture
def subscriptions(ledger_database):
    return SqlSubscriptionReader(ledger_database)


def test_only_the_current_version_is_shown(writer, subscriptions):
    writer.record([Entry(subscriptions=[a_version(id="s", at=2, status="canceled", mrr=7), a_version(id="s", at=1)])])
    (found,) = subscriptions.page("proj_1", b"", 10)
    assert (found.id, found.at, found.status, found.mrr, found.is_counted) == ("s", 2, "canceled", 7, False)


def test_pages_contain_every_subscription_of_the_project_once(writer, subscriptions):
    writer.record([Entry(subscriptions=[a_version(id=f"s{number}") for number in range(7)])])
    writer.record([Entry(subscriptions=[a_version(id="other", project="proj_other")])])
    pages, after = [], b""
    while found := subscriptions.page("proj_1", after, 3):
        pages.append([each.id for each in found])
        after = found[-1].key
    assert [len(each) for each in pages] == [3, 3, 1]
    assert sorted(id_ for page in pages for id_ in page) == [f"s{number}" for number in range(7)]


def test_counts_are_by_status_and_currency_most_frequent_first(writer, subscriptions):
    made = [
        a_version(id="a"),
        a_version(id="b"),
        a_version(id="c", status="trialing"),
        a_version(id="d", currency="usd"),
    ]
    writer.record([Entry(subscriptions=made)])
    found = [(each.status, each.currency, each.count) for each in subscriptions.counts("proj_1", 10)]
    assert found == [("active", "eur", 2), ("active", "usd", 1), ("trialing", "eur", 1)]
    assert len(subscriptions.counts("proj_1", 1)) == 1


@pytest.mark.parametrize("letter", ["i", "\0", "\\", "\N{FAMILY}"])
def test_a_long_id_is_truncated(writer, subscriptions, letter):
    ids = [letter * (ID_CHARACTERS_SHOWN + more) for more in (0, 1, 100_000)]
    writer.record([Entry(subscriptions=[a_version(id=each) for each in ids])])
    shown = [each.id for each in subscriptions.page("proj_1", b"", 10)]
    assert sorted(shown) == [ids[0], ids[0] + "…", ids[0] + "…"]
