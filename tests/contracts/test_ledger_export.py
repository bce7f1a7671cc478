"""What every ledger promises to an export.

Proves: export.
"""

from datetime import date, timedelta

import msgspec
import pytest

from mauve.maintenance.export_lines import json_lines, payment_table, subscription_table
from mauve.stores.export import Chosen
from mauve.stores.imports import rank_of
from mauve.stores.ledger import Entry, export
from mauve.stores.ledger.export import LedgerExport
from support.ledger_entries import AMOUNT_MAX, NOW, ODD_IDS, a_payment, a_version
from support.query_plans import sqlite_plans

DAY_MS = 86_400_000
TODAY = date(2027, 1, 15)
EVERYTHING = Chosen("proj_1", date.min, date.max)


@pytest.fixture
def ledger(ledger_database):
    return LedgerExport(ledger_database)


def of_person(user):
    return Chosen("proj_1", date.min, date.max, user)


def flat(pages):
    return [each for page in pages for each in page]


@pytest.mark.parametrize("rows_at_once", [1, 3, 250])
def test_pages_of_any_size_hold_every_entry_once(writer, ledger, monkeypatch, rows_at_once):
    monkeypatch.setattr(export, "ROWS_AT_ONCE", rows_at_once)
    paid = [a_payment(id_, occurred_at=NOW + place // 5) for place, id_ in enumerate(ODD_IDS)]
    versions = [a_version(at=at, id=id_, mrr=at) for id_ in ODD_IDS for at in (3, 1, 2, 1)]
    others = Entry([a_payment(project="proj_2")], [a_version(project="proj_2")])
    writer.record([Entry(paid, versions), others])
    found = flat(ledger.payments(EVERYTHING))
    assert sorted(each.id for each in found) == sorted(ODD_IDS)
    assert [each.at for each in found] == sorted(each.at for each in found)
    found = flat(ledger.versions(EVERYTHING))
    assert sorted((each.id, each.at_us) for each in found) == sorted((each.id, each.at) for each in versions)
    for id_ in ODD_IDS:
        assert [each.at_us for each in found if each.id == id_] == [1, 1, 2, 3], "in order of validity"


def test_what_is_recorded_after_the_first_page_does_not_prolong_the_export(writer, ledger, monkeypatch):
    monkeypatch.setattr(export, "ROWS_AT_ONCE", 1)
    writer.record([Entry([a_payment("a"), a_payment("b")], [a_version(id="a"), a_version(id="b")])])
    paid, versions = ledger.payments(EVERYTHING), ledger.versions(EVERYTHING)
    assert [next(paid)[0].id, next(versions)[0].id in {"a", "b"}] == ["a", True]
    writer.record([Entry([a_payment("later", occurred_at=NOW + 1)], [a_version(id="c"), a_version(id="d")])])
    assert [each.id for each in flat(paid)] == ["b"]
    assert len(flat(versions)) == 1


def test_days_are_those_of_occurrence_in_utc(writer, ledger):
    start = NOW - NOW % DAY_MS
    moments = {"before": start - 1, "first": start, "last": start + DAY_MS - 1, "after": start + DAY_MS}
    paid = [a_payment(id_, occurred_at=at) for id_, at in moments.items()]
    writer.record([Entry(paid, [a_version(id=id_, at=at * 1000 + 999) for id_, at in moments.items()])])
    today = Chosen("proj_1", TODAY, TODAY)
    assert [each.id for each in flat(ledger.payments(today))] == ["first", "last"]
    assert {each.id for each in flat(ledger.versions(today))} == {"first", "last"}
    since = Chosen("proj_1", TODAY + timedelta(days=1), date.max)
    assert [each.id for each in flat(ledger.payments(since))] == ["after"]


def test_a_person_is_found_where_an_erasure_finds_them(writer, ledger):
    named = [b'{"user":"ann"}', b'{"customer_id":"ann"}', b'{"customer": "ann", "x": 1}']
    not_named = [b'{"note":"ann"}', b'{"user":"bob"}', b"{}"]
    versions = [a_version(id=payload.decode(), payload=payload) for payload in named + not_named]
    writer.record(
        [
            Entry(
                [a_payment("p1", user="ann"), a_payment("p2", user="bob"), a_payment("p3", user=None)],
                [*versions, a_version(id="by biller", customer="ann"), a_version(id="other", customer="anna")],
            )
        ]
    )
    assert [each.id for each in flat(ledger.payments(of_person("ann")))] == ["p1"]
    found = {each.id for each in flat(ledger.versions(of_person("ann")))}
    assert found == {*(payload.decode() for payload in named), "by biller"}
    assert flat(ledger.versions(of_person("eve"))) == []


def test_lines_and_tables_hold_the_same_exact_values(writer, ledger):
    claimed_at = 2**62
    paid = a_payment(
        "\0☃", amount=AMOUNT_MAX, earned=False, user="a\n", claimed_at=claimed_at, payload=b'{\n"n": 1e400}', source="x"
    )
    version = a_version(
        at=1_800_000_000_123_456,
        mrr=AMOUNT_MAX,
        customer="c",
        plan="p",
        payload=b"not JSON \xff",
        rank=rank_of(7, 0, 0),
    )
    writer.record([Entry([paid], [version])])
    (payments,), (versions,) = ledger.payments(EVERYTHING), ledger.versions(EVERYTHING)
    assert payment_table(payments).to_pylist() == [
        {
            "id": "\0☃",
            "at": NOW,
            "user": "a\n",
            "amount": AMOUNT_MAX,
            "currency": "eur",
            "earned": False,
            "source": "x",
            "received_at": NOW,
            "claimed_at": str(claimed_at),
            "payload": '{\n"n": 1e400}',
        }
    ]
    line = json_lines("payment", payment_table(payments))
    assert line.endswith(b',"payload":{ "n": 1e400}}\n')
    assert msgspec.json.decode(line.replace(b"1e400", b"1")) == {
        "kind": "payment",
        "name": "payment",
        "user": "a\n",
        "id": "\0☃",
        "at": NOW,
        "props": {"amount": AMOUNT_MAX, "currency": "eur", "earned": False},
        "source": "x",
        "received_at": NOW,
        "claimed_at": str(claimed_at),
        "payload": {"n": 1},
    }
    (row,) = subscription_table(versions).to_pylist()
    line = msgspec.json.decode(json_lines("subscription", subscription_table(versions)))
    assert line == row | {"kind": "subscription", "type": "subscription"}
    assert (row["at"], row["at_us"], row["mrr"]) == (1_800_000_000_123, 1_800_000_000_123_456, AMOUNT_MAX)
    assert (row["customer"], row["plan"], row["payload"]) == ("c", "p", "not JSON �")


def test_an_imported_version_names_its_import(writer, ledger):
    ranks = {"sent": b"", "ranked": b"\0\0\0other", "imported": rank_of(7, 12, 0)}
    writer.record([Entry([], [a_version(id=id_, rank=rank) for id_, rank in ranks.items()])])
    versions = flat(ledger.versions(EVERYTHING))
    assert {each.id: each.source for each in versions} == {"sent": None, "ranked": None, "imported": "import-7"}
    rows = {row["id"]: row["source"] for row in subscription_table(versions).to_pylist()}
    lines = [
        msgspec.json.decode(line) for line in json_lines("subscription", subscription_table(versions)).splitlines()
    ]
    assert rows == {line["id"]: line.get("source") for line in lines}


def test_pages_are_looked_up_in_indexes_on_sqlite(writer, ledger, ledger_database, ledger_url, monkeypatch):
    if ledger_url.get_backend_name() != "sqlite":
        pytest.skip("PostgreSQL chooses a plan by the number of rows")
    monkeypatch.setattr(export, "ROWS_AT_ONCE", 1)
    writer.record([Entry([a_payment("a"), a_payment("b")], [a_version(id="a"), a_version(id="b")])])
    for read, index in (
        (lambda: flat(ledger.payments(EVERYTHING)), "ix_payments_list (project=? AND (occurred_at,id)>(?,?)"),
        (lambda: flat(ledger.payments(of_person("cus_1"))), "ix_payments_user (project=? AND user=? AND (occurred_at,"),
        (lambda: flat(ledger.versions(EVERYTHING)), "ix_subscription_versions_history (project=? AND (key,at,rank)>"),
    ):
        first, *pages = sqlite_plans(ledger_database, read)
        assert "TEMP B-TREE" not in first
        assert pages
        assert [plan for plan in pages if index not in plan or "TEMP B-TREE" in plan] == []
