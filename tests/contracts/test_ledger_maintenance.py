"""What every ledger promises about maintenance: a person is erased, the money stays."""

import json
import sqlite3
from datetime import date

import pytest

from mauve.core.batch import packed_header
from mauve.core.events import Activity
from mauve.maintenance.delete_app import delete_projects
from mauve.stores.ingest_stats import IngestStats
from mauve.stores.ledger import DeadLetter, Entry, LoadStep
from mauve.stores.ledger import schema as ledger_schema
from mauve.stores.ledger.closed_days import DayUsers, SqlClosedDays
from mauve.stores.ledger.maintenance import LedgerMaintenance
from mauve.stores.maintenance import ChangedEntries
from support.ledger_entries import ACCEPTED, CONFLICT, DUPLICATE, ODD_IDS, a_payment, a_version, mrr_of, rows_of, totals
from support.mrr_model import history_of

NOTHING = ChangedEntries(0, 0, 0)


@pytest.fixture
def maintenance(ledger_database):
    return LedgerMaintenance(ledger_database, longest_read_s=10)


def test_payments_lose_the_person_and_keep_the_money(writer, reader, maintenance, ledger_database):
    payments = [a_payment("p1", user="ann", payload=b'{"user":"ann"}'), a_payment("p2", user="bob"), a_payment("p3")]
    writer.record([Entry([*payments, a_payment("p1", project="proj_2", user="ann")])])
    before = totals(reader)
    assert maintenance.erase_user("proj_1", "ann") == ChangedEntries(1, 0, 0)
    kept = {(row.project, row.id): (row.user, row.payload) for row in rows_of(ledger_database, ledger_schema.payments)}
    assert kept["proj_1", "p1"] == (None, b"{}")
    assert kept["proj_1", "p2"] == ("bob", b'{"name": "payment"}')
    assert kept["proj_2", "p1"][0] == "ann", "another project is another matter"
    assert totals(reader) == before
    assert maintenance.erase_user("proj_1", "ann") == NOTHING


def test_a_project_is_deleted_from_every_table_and_others_stay(writer, reader, maintenance, ledger_database):
    for project in ("proj_1", "proj_2"):
        many = [a_payment(f"p{number}", project=project) for number in range(1_201)]
        stats = IngestStats("2026-11-15", 5, {(project, "accepted"): 1})
        writer.record([Entry(many, subscriptions=[a_version(1, project=project)], ingest_stats=stats)])
    before = totals(reader, "proj_2"), mrr_of(reader, "proj_2")
    assert maintenance.delete_project("proj_1") == ChangedEntries(1_201, 1, 0)
    tables = [table for table in ledger_schema.metadata.sorted_tables if "project" in table.c]
    left = {row.project for table in tables for row in rows_of(ledger_database, table)}
    assert left == {"proj_2"}
    assert (totals(reader, "proj_2"), mrr_of(reader, "proj_2")) == before
    assert maintenance.delete_project("proj_1") == ChangedEntries(0, 0, 0)


def test_a_day_closed_by_a_step_that_began_before_the_deletion_leaves_no_users(maintenance, ledger_database):
    closed, users_read = SqlClosedDays(ledger_database), []

    class Warehouse:
        def delete_project(self, project):
            users_read.append(DayUsers(project, Activity.ACTIVE, "2026-11-02", 5))  # read just before
            return 1

    class Log:
        def erase_damaged(self, _text):
            return 0

        def blank_loaded(self):
            return True

    def load_pending():  # waits for the step in progress
        if users_read:
            closed.close(date(2026, 11, 2), [users_read.pop()])

    delete_projects(["proj_1"], load_pending=load_pending, warehouse=Warehouse(), ledger=maintenance, log=Log())
    assert closed.through() == date(2026, 11, 2)
    assert rows_of(ledger_database, ledger_schema.day_users) == []


def test_dead_letters_of_a_deleted_project_are_deleted(loader, maintenance, ledger_database):
    def letter(number, project):
        return DeadLetter(0, number, "unreadable", packed_header(project, "org_1", 1, 1, 1) + b"[]", 1)

    loader.finish(LoadStep({}, dead_letters=[letter(1, "proj_1"), letter(2, "proj_2")]))
    assert maintenance.delete_project("proj_1").dead_letters == 1
    assert [row.number for row in rows_of(ledger_database, ledger_schema.dead_letters)] == [2]


def test_a_repeated_payment_of_an_erased_person_changes_nothing(writer, reader, maintenance):
    payment = a_payment("p1", user="ann", digest=b"of ann", claimed_at=5)
    assert writer.record([Entry([payment])]) == [[ACCEPTED]]
    before = totals(reader)
    maintenance.erase_user("proj_1", "ann")
    assert writer.record([Entry([payment])]) == [[DUPLICATE]]
    assert writer.record([Entry([a_payment("p1", user="ann", digest=b"other", claimed_at=5)])]) == [[CONFLICT]]
    assert writer.record([Entry([a_payment("p1", user="ann", digest=b"of ann", claimed_at=6)])]) == [[CONFLICT]]
    assert totals(reader) == before


def test_subscriptions_lose_their_owner_and_keep_their_history(writer, reader, maintenance, ledger_database):
    def versions():
        table = ledger_schema.subscription_versions
        return {row.at: json.loads(row.payload) for row in rows_of(ledger_database, table)}

    sent = [{"user": "ann"}, {"customer": {"id": "ann"}}, {"customer": "bob"}, {"note": "ann"}]
    recorded = [a_version(at, mrr=at, payload=json.dumps(item).encode()) for at, item in enumerate(sent, 1)]
    writer.record(
        [Entry(subscriptions=recorded), Entry(subscriptions=[a_version(9, id="x", payload=b'{"user":"ann"}')])]
    )
    before = mrr_of(reader, "proj_1"), history_of(reader, "proj_1", date(1970, 1, 1), date(1970, 1, 3))
    assert maintenance.erase_user("proj_1", "ann") == ChangedEntries(0, 3, 0)
    assert versions() == {1: {}, 2: {}, 3: {"customer": "bob"}, 4: {"note": "ann"}, 9: {}}
    current = {row.id: row.payload for row in rows_of(ledger_database, ledger_schema.subscriptions)}
    assert current == {"sub_1": b'{"note": "ann"}', "x": b"{}"}
    assert len(before[1]) == 3
    assert (mrr_of(reader, "proj_1"), history_of(reader, "proj_1", date(1970, 1, 1), date(1970, 1, 3))) == before


def test_a_subscription_with_an_id_of_any_length_loses_its_owner(writer, maintenance, ledger_database):
    long = a_version(1, id="i" * 500_000, status="", payload=json.dumps({"user": "ann"}).encode())
    writer.record([Entry(subscriptions=[long])])
    assert maintenance.erase_user("proj_1", "ann") == ChangedEntries(0, 1, 0)
    for table in (ledger_schema.subscriptions, ledger_schema.subscription_versions):
        assert [(row.id, row.payload) for row in rows_of(ledger_database, table)] == [(long.id, b"{}")]


def test_dead_letters_keep_the_events_of_others(loader, maintenance, ledger_database):
    def letter(number, project, items):
        header = packed_header(project, "org_1", 1, 1000, 2)
        return DeadLetter(1, number, "why", header + json.dumps(items).encode(), 5)

    both = [{"name": "view", "user": "ann", "props": {"a": 1}}, {"name": "view", "user": "bob", "id": "1"}]
    letters = [letter(1, "proj_1", both), letter(2, "proj_2", both), DeadLetter(1, 3, "why", b'\xff{"user":"ann"', 5)]
    loader.finish(LoadStep({}, dead_letters=letters))
    assert maintenance.erase_user("proj_1", "ann") == ChangedEntries(0, 0, 2)
    rows = sorted(rows_of(ledger_database, ledger_schema.dead_letters), key=lambda row: row.sequence)
    first, second, third = [row.payload for row in rows]
    assert json.loads(first[first.index(b"[") :]) == [{"name": "view"}, both[1]]
    assert second == letters[1].payload
    assert third == b"", "what cannot be read and holds the name is emptied"
    assert loader.dead_letter_count() == 3
    assert maintenance.erase_user("proj_1", "ann") == NOTHING


@pytest.mark.parametrize("user", [each for each in ODD_IDS if "\0" not in each])
def test_unusual_names_are_found(writer, maintenance, user):
    for ensure_ascii in (True, False):
        payload = json.dumps({"user": user}, ensure_ascii=ensure_ascii).encode()
        writer.record([Entry([a_payment(f"p{ensure_ascii}", user=user, payload=payload)])])
        writer.record([Entry(subscriptions=[a_version(id=f"s{ensure_ascii}", payload=payload)])])
    assert maintenance.erase_user("proj_1", user) == ChangedEntries(2, 2, 0)


def test_many_entries_are_erased_in_many_small_transactions(writer, maintenance, ledger_database):
    writer.record([Entry([a_payment(f"p{number}", user="ann") for number in range(1_000)])])
    assert maintenance.erase_user("proj_1", "ann").payments == 1_000
    assert {row.user for row in rows_of(ledger_database, ledger_schema.payments)} == {None}


@pytest.mark.parametrize("ledger_url", ["sqlite"], indirect=True)
def test_nothing_overwritten_remains_in_the_file(writer, maintenance, ledger_url, ledger_database):
    writer.record([Entry([a_payment("p1", user="zebedee", payload=b'{"user":"zebedee"}')])])
    maintenance.erase_user("proj_1", "zebedee")
    ledger_database.close()
    with sqlite3.connect(ledger_url.database) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    with open(ledger_url.database, "rb") as file:  # noqa: PTH123 - a path from the URL
        assert b"zebedee" not in file.read()
