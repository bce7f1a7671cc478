"""What every reader of payments promises."""

from datetime import date
from functools import partial

import pytest

from mauve.core.window import Window
from mauve.stores.ledger import Entry
from mauve.stores.ledger.maintenance import LedgerMaintenance
from mauve.stores.ledger.payment_list import PaymentFilter, PaymentPosition, PaymentReader
from support.ledger_entries import NOW, ODD_IDS, a_payment, a_version
from support.query_plans import sqlite_plans

DAY_MS = 86_400_000
TODAY = Window(date(2027, 1, 15), date(2027, 1, 15))
WEEK = Window(date(2027, 1, 9), date(2027, 1, 15))


@pytest.fixture
def payments(ledger_database):
    return PaymentReader(ledger_database)


def ids_of(found):
    return [each.id for each in found]


def test_the_latest_come_first_and_the_window_is_of_utc_days(writer, payments):
    start_of_day = NOW - NOW % DAY_MS
    moments = {
        "before": start_of_day - 1,
        "first": start_of_day,
        "last": start_of_day + DAY_MS - 1,
        "after": start_of_day + DAY_MS,
    }
    recorded = [a_payment(id_, occurred_at=at, received_at=NOW) for id_, at in moments.items()]
    writer.record([Entry([*recorded, a_payment("other", project="proj_2")])])
    assert ids_of(payments.page("proj_1", PaymentFilter(TODAY), None, 10)) == ["last", "first"]
    assert ids_of(payments.page("proj_1", PaymentFilter(WEEK), None, 10)) == ["last", "first", "before"]


def test_a_payment_is_shown_as_it_was_recorded(writer, payments):
    flagged = b'{"type":"invoice.paid","flags":["fee_unknown"],"description":"x"}'
    writer.record(
        [
            Entry([a_payment("b", amount=5, currency="jpy", earned=False, user=None, occurred_at=NOW)]),
            Entry(
                [a_payment("a", source="biller_a", payload=flagged), a_payment("c", source="biller_b", payload=b"[")]
            ),
        ]
    )
    c, b, a = payments.page("proj_1", PaymentFilter(TODAY), None, 10)
    assert (b.amount, b.currency, b.earned, b.user, b.source, b.flags) == (5, "jpy", False, None, "api", ())
    assert (a.amount, a.currency, a.earned, a.user, a.source, a.flags) == (
        *(1999, "eur", True, "cus_1", "biller_a"),
        ("fee_unknown",),
    )
    assert c.flags == (), "an unreadable payload says nothing"


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({"currency": "usd"}, ["usd"]),
        ({"source": "biller_b"}, ["polar"]),
        ({"user": "ann"}, ["polar", "ann"]),
        ({"user": "ann", "source": "api"}, ["ann"]),
        ({"id": "usd"}, ["usd"]),
        ({"id": "us"}, []),
        ({"user": "nn"}, []),
    ],
)
def test_filters_are_exact_and_combine(writer, payments, chosen, expected):
    made = [
        a_payment("usd", currency="usd"),
        a_payment("ann", user="ann"),
        a_payment("polar", user="ann", source="biller_b"),
    ]
    writer.record([Entry(made)])
    assert ids_of(payments.page("proj_1", PaymentFilter(TODAY, **chosen), None, 10)) == expected


@pytest.mark.parametrize("chosen", [{}, {"user": "cus_1"}, {"currency": "eur"}, {"source": "api"}])
def test_pages_contain_every_payment_once_even_at_equal_times(writer, payments, chosen):
    made = [a_payment(f"p{number}", occurred_at=NOW - number // 5) for number in range(23)]
    writer.record([Entry([*made, *[a_payment(id_) for id_ in ODD_IDS]])])
    seen, after = [], None
    while found := payments.page("proj_1", PaymentFilter(WEEK, **chosen), after, 4):
        seen += found
        after = PaymentPosition(found[-1].occurred_at, found[-1].id)
    assert sorted(ids_of(seen)) == sorted([*(each.id for each in made), *ODD_IDS])
    assert [each.occurred_at for each in seen] == sorted((each.occurred_at for each in seen), reverse=True)


def test_a_position_after_the_window_starts_at_its_end(writer, payments):
    writer.record([Entry([a_payment("p")])])
    after = PaymentPosition(NOW + 400 * DAY_MS, "p")
    assert ids_of(payments.page("proj_1", PaymentFilter(TODAY), after, 4)) == ["p"]


def test_an_erased_person_is_not_found(writer, payments, ledger_database):
    writer.record([Entry([a_payment("p", user="ann", source="biller_a", payload=b'{"flags":["fee_unknown"]}')])])
    LedgerMaintenance(ledger_database, longest_read_s=10).erase_user("proj_1", "ann")
    assert payments.page("proj_1", PaymentFilter(TODAY, user="ann"), None, 10) == []
    (kept,) = payments.page("proj_1", PaymentFilter(TODAY), None, 10)
    assert (kept.user, kept.flags, kept.amount) == (None, (), 1999)


@pytest.mark.parametrize("ledger_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("chosen", "index"),
    [({}, "ix_payments_list"), ({"source": "api"}, "ix_payments_list"), ({"user": "ann"}, "ix_payments_user")],
)
def test_sqlite_reads_a_page_in_the_order_of_an_index(payments, ledger_database, chosen, index):
    for after in (None, PaymentPosition(NOW, "p")):
        wanted = PaymentFilter(TODAY, **chosen)
        (plan,) = sqlite_plans(ledger_database, partial(payments.page, "proj_1", wanted, after, 10))
        assert index in plan
        assert "TEMP B-TREE" not in plan, "nothing is sorted"
        if after is not None:
            assert "(occurred_at,id)<(?,?)" in plan, "earlier pages are skipped, not read"


def test_the_longest_texts_that_are_accepted_fit_every_index(writer, payments):
    longest = "".join(chr(0x1F300 + number) for number in range(256))  # four bytes each
    version = a_version(id=longest, status=longest[:200], customer=longest[:255], plan=longest[:128])
    writer.record([Entry([a_payment(longest, user=longest)], subscriptions=[version])])
    assert ids_of(payments.page("proj_1", PaymentFilter(TODAY, user=longest), None, 10)) == [longest]


def test_payments_are_found_by_their_ids(writer, payments):
    writer.record([Entry([*map(a_payment, ["a", "b", *ODD_IDS]), a_payment("c", project="proj_2")])])
    assert set(ids_of(payments.with_ids("proj_1", ["a", "c", "d", *ODD_IDS]))) == {"a", *ODD_IDS}
    assert payments.with_ids("proj_1", []) == []
