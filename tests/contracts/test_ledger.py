"""What every ledger promises about payments."""

import subprocess
import sys
import threading
from collections import Counter
from datetime import date

import pytest

from mauve.core.times import DAY_MS
from mauve.core.window import Window
from mauve.stores import StoreUnavailableError
from mauve.stores.ledger import DeadLetter, Entry, LoadStep, Payment
from mauve.stores.ledger.reader import LedgerReader
from mauve.stores.ledger.schema import payments
from mauve.stores.ledger.writer import LedgerWriter
from mauve.stores.sql.database import Database, sqlite_url
from mauve.stores.sql.migrate import LEDGER, migrate
from support.ledger_entries import (
    ACCEPTED,
    AMOUNT_MAX,
    CONFLICT,
    DUPLICATE,
    NOW,
    ODD_IDS,
    PERIOD,
    TODAY,
    a_payment,
    a_version,
    everything_in,
    record_payments,
    rows_of,
    totals,
)


class TestRevisions:
    def test_every_change_of_a_projects_money_raises_its_revision(self, writer, reader):
        projects = ["proj_1", "proj_2"]
        assert reader.money_revisions(projects) == {}
        writer.record([Entry([a_payment("a"), a_payment("b")])])
        (first,) = reader.money_revisions(projects).values()
        writer.record([Entry(subscriptions=[a_version(NOW * 1000)]), Entry([a_payment(project="proj_2")])])
        found = reader.money_revisions(projects)
        assert found["proj_1"] > first
        assert found.keys() == set(projects)
        assert reader.money_revisions(["proj_2"]) == {"proj_2": found["proj_2"]}

    def test_what_changes_no_money_raises_no_revision(self, writer, reader):
        writer.record([Entry([a_payment()])])
        before = reader.money_revisions(["proj_1"])
        writer.record([Entry([a_payment()]), Entry([a_payment(digest=b"other")]), Entry(events=b"record")])
        assert reader.money_revisions(["proj_1"]) == before


class TestOutcomes:
    @pytest.mark.parametrize(
        ("first", "later", "outcome"),
        [
            ({}, {}, DUPLICATE),
            ({"claimed_at": 1}, {"claimed_at": 1}, DUPLICATE),
            ({"claimed_at": 1}, {"claimed_at": None}, DUPLICATE),
            ({"claimed_at": None}, {"claimed_at": 1}, DUPLICATE),
            ({"claimed_at": 0}, {"claimed_at": None}, DUPLICATE),
            ({"claimed_at": 10**4000}, {"claimed_at": 10**4000}, DUPLICATE),
            ({"claimed_at": -(10**30)}, {"claimed_at": 10**30}, CONFLICT),
            ({"claimed_at": 1}, {"claimed_at": 2}, CONFLICT),
            ({"claimed_at": 0}, {"claimed_at": 1}, CONFLICT),
            ({}, {"digest": b"other"}, CONFLICT),
            ({"claimed_at": 1}, {"claimed_at": 1, "digest": b"other"}, CONFLICT),
            ({"claimed_at": 1}, {"claimed_at": None, "digest": b"other"}, CONFLICT),
            ({"received_at": NOW}, {"received_at": NOW + 1, "occurred_at": NOW + 1, "payload": b"{ }"}, DUPLICATE),
            ({}, {"project": "proj_2", "digest": b"other"}, ACCEPTED),
            ({}, {"id_": "inv_2", "digest": b"other"}, ACCEPTED),
        ],
    )
    @pytest.mark.parametrize("where", ["in one entry", "in one group", "in two transactions"])
    def test_the_first_payment_with_an_id_is_kept(self, writer, first, later, outcome, where):
        one, two = a_payment(**first), a_payment(**later)
        if where == "in one entry":
            found = record_payments(writer, one, two)
        elif where == "in one group":
            found = [outcome for outcomes in writer.record([Entry([one]), Entry([two])]) for outcome in outcomes]
        else:
            found = record_payments(writer, one) + record_payments(writer, two)
        assert found == [ACCEPTED, outcome]

    def test_a_recorded_payment_is_never_amended(self, writer, reader, ledger_database):
        record_payments(writer, a_payment(claimed_at=None))
        assert record_payments(writer, a_payment(claimed_at=1, payload=b"later", user=None)) == [DUPLICATE]
        # The time of the duplicate was not stored: a third time is a duplicate, too.
        assert record_payments(writer, a_payment(claimed_at=2)) == [DUPLICATE]
        assert record_payments(writer, a_payment(digest=b"other", amount=5)) == [CONFLICT]
        (row,) = rows_of(ledger_database, payments)
        assert (row.payload, row.user, row.claimed_at, row.amount) == (b'{"name": "payment"}', "cus_1", None, 1999)
        assert totals(reader) == [(TODAY, "eur", 1999)]

    def test_outcomes_are_in_the_order_of_the_payments_one_list_for_each_entry(self, writer):
        assert writer.record([]) == []
        a, b = a_payment("a"), a_payment("b")
        other_a = a_payment("a", digest=b"other")
        assert writer.record([Entry([a, a]), Entry(), Entry([other_a, b, a])]) == [
            [ACCEPTED, DUPLICATE],
            [],
            [CONFLICT, ACCEPTED, DUPLICATE],
        ]

    @pytest.mark.parametrize("where", ["in one group", "in two transactions"])
    def test_a_part_sent_after_its_payment_changes_nothing(self, writer, reader, where):
        whole = Entry([a_payment("inv_1", amount=500)])
        parts = Entry(
            [
                a_payment("inv_1", amount=50, digest=b"other"),
                a_payment("inv_1:volume", amount=500, earned=False, part_of="inv_1"),
            ]
        )
        recorded = writer.record([whole, parts]) if where == "in one group" else writer.record([whole])
        recorded += [] if where == "in one group" else writer.record([parts])
        assert recorded == [[ACCEPTED], [CONFLICT, CONFLICT]]
        assert totals(reader) == [(TODAY, "eur", 500)]
        assert totals(reader, earned=False) == []

    def test_a_part_is_recorded_with_its_payment_and_kept(self, writer, reader):
        parts = Entry(
            [
                a_payment("inv_1", amount=50),
                a_payment("inv_1:volume", amount=500, earned=False, part_of="inv_1"),
            ]
        )
        assert writer.record([parts, parts]) == [[ACCEPTED, ACCEPTED], [DUPLICATE, DUPLICATE]]
        assert writer.record([parts]) == [[DUPLICATE, DUPLICATE]]
        assert totals(reader, earned=False) == [(TODAY, "eur", 500)]

    def test_a_part_without_its_payment_is_a_conflict(self, writer, reader):
        assert record_payments(writer, a_payment("inv_1:volume", part_of="inv_1")) == [CONFLICT]
        assert totals(reader) == []

    def test_thousands_of_payments_in_many_projects_are_distinguished(self, writer, reader):
        ids = [(f"proj_{number % 37}", f"inv_{number // 37}") for number in range(3000)]
        items = [a_payment(id_, project=project, amount=1) for project, id_ in ids]
        assert set(record_payments(writer, *items[::2])) == {ACCEPTED}
        assert record_payments(writer, *items) == [DUPLICATE, ACCEPTED] * 1500
        assert sum(total for number in range(37) for _, _, total in totals(reader, f"proj_{number}")) == 3000

    def test_unusual_ids_are_distinguished_and_returned_unchanged(self, writer, ledger_database):
        items = [a_payment(id_, user=id_) for id_ in ODD_IDS]
        assert record_payments(writer, *items) == [ACCEPTED] * len(items)
        assert record_payments(writer, *items) == [DUPLICATE] * len(items)
        assert {(row.id, row.user) for row in rows_of(ledger_database, payments)} == {(id_, id_) for id_ in ODD_IDS}

    def test_every_field_of_a_payment_is_stored(self, writer, ledger_database):
        payment = a_payment(
            digest=bytes(range(256)),
            claimed_at=-5,
            amount=AMOUNT_MAX,
            earned=False,
            payload=b"\0\xff",
            source="biller_a",
        )
        record_payments(writer, payment)
        (row,) = rows_of(ledger_database, payments)
        stored = row._asdict()
        assert stored.pop("day") == TODAY
        assert Payment(org_id="org_1", **stored) == payment


class TestWritersAtOnce:
    def test_two_writers_in_threads_accept_each_payment_once(self, open_ledger, reader):
        outcomes = {}

        def record(name, order):
            writer = LedgerWriter(open_ledger())
            items = [a_payment(f"inv_{number}", amount=3) for number in range(500)][::order]
            groups = [items[start : start + 50] for start in range(0, 500, 50)]
            outcomes[name] = [outcome for group in groups for outcome in record_payments(writer, *group)]

        threads = [threading.Thread(target=record, args=args) for args in (("one", 1), ("two", -1))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert Counter(outcomes["one"] + outcomes["two"]) == {ACCEPTED: 500, DUPLICATE: 500}
        assert totals(reader) == [(TODAY, "eur", 1500)]

    def test_two_processes_accept_each_payment_once(self, ledger_database, ledger_url, reader, loader):
        program = """
import sys
import sqlalchemy as sa
from mauve.stores.ledger import Entry, Payment
from mauve.stores.sql.database import Database
from mauve.stores.ledger.writer import LedgerWriter

writer = LedgerWriter(Database(sa.make_url(sys.argv[1]), busy_timeout_s=30))
print("ready", flush=True)
sys.stdin.readline()
for start in range(0, 500, 10):
    items = [
        Payment("org_1", "proj_1", f"inv_{number}", b"", None, 3, "eur", True, None, 1_800_000_000_000,
                1_800_000_000_000, b"")
        for number in range(start, start + 10)
    ]
    (outcomes,) = writer.record([Entry(items, events=b"record")])
    print(*outcomes, flush=True)
writer.close()
"""
        url = ledger_url.render_as_string(hide_password=False)
        command = [sys.executable, "-c", program, url]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, **pipes) as one, subprocess.Popen(command, **pipes) as two:
            for process in (one, two):
                assert process.stdout.readline() == "ready\n"
            for process in (one, two):
                process.stdin.write("go\n")
                process.stdin.flush()
            said = [process.communicate()[0].split() for process in (one, two)]
        assert [len(outcomes) for outcomes in said] == [500, 500]
        assert [sorted(pair) for pair in zip(*said, strict=True)] == [["accepted", "duplicate"]] * 500
        assert totals(reader) == [(TODAY, "eur", 1500)]
        assert loader.usage(PERIOD) == {"org_1": 500}
        assert [number for number, _ in loader.read_events(0, 10**6)] == list(range(1, 101))


class TestMoney:
    def test_a_total_of_any_size_is_exact(self, writer, reader):
        for start in range(0, 5000, 1000):
            numbers = range(start, start + 1000)
            record_payments(writer, *(a_payment(f"inv_{number}", amount=AMOUNT_MAX) for number in numbers))
        assert totals(reader) == [(TODAY, "eur", AMOUNT_MAX * 5000)]

    def test_only_accepted_payments_change_a_total(self, writer, reader):
        record_payments(writer, a_payment(), a_payment(), a_payment(digest=b"other", amount=7))
        assert totals(reader) == [(TODAY, "eur", 1999)]

    def test_totals_are_kept_by_project_day_currency_and_earned(self, writer, reader):
        midnight = NOW - NOW % DAY_MS
        record_payments(
            writer,
            a_payment("1", amount=1, occurred_at=midnight),
            a_payment("2", amount=2, occurred_at=midnight - 1),
            a_payment("3", amount=4, occurred_at=midnight + DAY_MS - 1, currency="usd"),
            a_payment("4", amount=8, earned=False),
            a_payment("5", amount=16, project="proj_2"),
            a_payment("6", amount=32, occurred_at=midnight + DAY_MS),
        )
        assert totals(reader) == [
            ("2027-01-14", "eur", 2),
            (TODAY, "eur", 1),
            (TODAY, "usd", 4),
            ("2027-01-16", "eur", 32),
        ]
        assert totals(reader, earned=False) == [(TODAY, "eur", 8)]
        assert totals(reader, "proj_2") == [(TODAY, "eur", 16)]
        assert totals(reader, "proj_3") == []

    def test_both_days_of_a_range_are_included(self, writer, reader):
        record_payments(writer, *(a_payment(str(day), occurred_at=NOW + day * DAY_MS) for day in range(-2, 3)))
        found = reader.day_totals(["proj_1"], Window(date(2027, 1, 14), date(2027, 1, 16)), earned=True)
        assert [day for _, day, _, _ in found] == ["2027-01-14", "2027-01-15", "2027-01-16"]

    def test_several_projects_are_read_together(self, writer, reader):
        record_payments(writer, *(a_payment(project=f"proj_{number}", amount=number) for number in (3, 1, 2)))
        window = Window(date.min, date.max)
        assert list(reader.day_totals(["proj_3", "proj_1", "proj_9"], window, earned=True)) == [
            ("proj_1", TODAY, "eur", 1),
            ("proj_3", TODAY, "eur", 3),
        ]

    def test_a_payment_of_zero_is_a_payment(self, writer, reader):
        record_payments(writer, a_payment(amount=0))
        assert totals(reader) == [(TODAY, "eur", 0)]


class TestCountsOfPayments:
    def test_an_accepted_payment_is_one_event_in_the_period_of_its_receipt(self, writer, loader):
        in_february = NOW + 20 * DAY_MS
        record_payments(
            writer,
            a_payment("1"),
            a_payment("1"),
            a_payment("1", digest=b"other"),
            a_payment("2", occurred_at=in_february),
            a_payment("3", received_at=in_february),
            a_payment("4", org_id="org_2", project="proj_2"),
        )
        record_payments(writer, a_payment("5"))
        assert loader.usage("2027-01") == {"org_1": 3, "org_2": 1}
        assert loader.usage("2027-02") == {"org_1": 1}
        assert loader.usage("2027-03") == {}

    def test_an_accepted_payment_marks_its_project_as_seen_once(self, writer, loader):
        record_payments(writer, a_payment("1", received_at=NOW + 5), a_payment("2", received_at=NOW + 4))
        record_payments(writer, a_payment("3", received_at=NOW + 6), a_payment("1", project="proj_2"))
        assert loader.first_seen() == {"proj_1": NOW + 4, "proj_2": NOW}


class TestAllOrNothing:
    WHOLE = Entry([a_payment("1"), a_payment("new", project="proj_2", org_id="org_2")], [a_version()], b"events")

    @pytest.mark.parametrize(
        "bad",
        [
            Entry([a_payment("2", currency=None)]),
            Entry(subscriptions=[a_version(id="sub_2"), a_version(mrr=None)]),
        ],
    )
    @pytest.mark.parametrize("position", [0, 1])
    def test_a_failure_records_nothing_of_any_entry(self, writer, ledger_database, bad, position):
        record_payments(writer, a_payment("0"))
        before = everything_in(ledger_database)
        entries = [self.WHOLE]
        entries.insert(position, bad)
        with pytest.raises(StoreUnavailableError):
            writer.record(entries)
        assert everything_in(ledger_database) == before
        assert writer.record([self.WHOLE]) == [[ACCEPTED, ACCEPTED]]

    def test_a_failed_load_step_records_nothing(self, loader, ledger_database):
        before = everything_in(ledger_database)
        letter = DeadLetter(1, 1, reason=None, payload=b"", at=NOW)
        with pytest.raises(StoreUnavailableError):
            loader.finish(LoadStep({1: 7}, {("org_1", PERIOD): 3}, {"proj_1": NOW}, [letter]))
        assert everything_in(ledger_database) == before

    def test_a_writer_that_times_out_waiting_for_the_lock_records_nothing(self, tmp_path):
        patient, hasty = (Database(sqlite_url(tmp_path / "ledger.db"), busy_timeout_s=wait) for wait in (5, 0.05))
        migrate(patient, LEDGER)
        writer = LedgerWriter(hasty)
        before = everything_in(patient)
        with patient.writing(), pytest.raises(StoreUnavailableError, match="locked"):
            writer.record([self.WHOLE])
        assert everything_in(patient) == before
        assert writer.record([self.WHOLE]) == [[ACCEPTED, ACCEPTED]]
        writer.close()
        patient.close()

    def test_recorded_entries_survive_reopening(self, writer, open_ledger):
        writer.record([self.WHOLE])
        writer.close()
        assert totals(LedgerReader(open_ledger())) == [(TODAY, "eur", 1999)]
        assert LedgerWriter(open_ledger()).record([self.WHOLE]) == [[DUPLICATE, DUPLICATE]]


class TestLatestPayments:
    def test_they_are_in_order_of_receipt_within_one_project(self, writer, reader):
        received = {"first": NOW, "late": NOW + 2, "second": NOW + 1}
        for id_, received_at in received.items():
            occurred_at = NOW - DAY_MS if id_ == "late" else received_at
            record_payments(writer, a_payment(id=id_, received_at=received_at, occurred_at=occurred_at))
        record_payments(writer, a_payment(id="other", project="proj_other"))
        project = a_payment().project
        latest = reader.latest_payments(project, NOW, 10)
        assert [each.id for each in latest] == ["late", "second", "first"]
        assert (latest[0].received_at, latest[0].occurred_at) == (NOW + 2, NOW - DAY_MS)
        assert [each.id for each in reader.latest_payments(project, NOW, 2)] == ["late", "second"]
        assert [each.id for each in reader.latest_payments(project, NOW + 2, 10)] == ["late"]
