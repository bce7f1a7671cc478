"""What every engine promises about imports: stored once, counted once per id, and undone as if never stored."""

import itertools
import random
import threading
from array import array
from datetime import date

import msgspec
import pytest

from mauve.core.events import Activity
from mauve.core.times import DAY_MS
from mauve.core.window import Window
from mauve.stores.imports import (
    ImportChunk,
    ImportCounts,
    ImportOutdatedError,
    NewImport,
    StoredRows,
    rank_of,
    seq_of,
    source_of,
)
from mauve.stores.ledger import Entry
from mauve.stores.ledger.imports import ImportLedger
from mauve.stores.ledger.writer import LedgerWriter
from mauve.stores.warehouse import EventRows, first_seq
from mauve.stores.warehouse.imports import EmbeddedImports, ServerImports
from mauve.stores.warehouse.maintenance import RowMaintenance
from mauve.stores.warehouse.server.server import ServerConnection
from mauve.stores.warehouse.warehouse_reader import WarehouseReader
from support.ledger_entries import ACCEPTED, CONFLICT, DUPLICATE, NOW, a_payment, a_version, mrr_of, totals
from support.mrr_model import history_by_model, history_of
from support.service import PATIENCE_S

FIRST_MS = 20_000 * DAY_MS
ALWAYS = Window(date(1990, 1, 1), date(2040, 1, 1))
ANY = frozenset(Activity)
STREAM = 97
numbers = itertools.count(1)
DIGEST = "0" * 64


def rows_of(project, events, seq):
    """Return rows of events given as (name, user, id, day)."""
    rows = EventRows()
    for place, (name, user, id_, day) in enumerate(events):
        rows.project.append(project)
        for column, text in ((rows.name, name), (rows.user, user), (rows.id, id_), (rows.props, "")):
            column.extend([text])
        rows.claimed_at.extend([""])
        rows.occurred_at.append(FIRST_MS + day * DAY_MS + place)
        rows.seq.append(seq + place)
    rows.received_at = array("q", rows.occurred_at)
    return rows


class TestWarehouse:
    @pytest.fixture
    def imports(self, warehouse, maintenance_connection):
        engine = ServerImports if isinstance(maintenance_connection, ServerConnection) else EmbeddedImports
        return engine(maintenance_connection)

    @pytest.fixture
    def reader(self, connection):
        return WarehouseReader(lambda: connection)

    @pytest.fixture
    def number(self):
        return next(numbers)

    @pytest.fixture
    def project(self, number):
        return f"proj_import_{number}"

    @pytest.fixture
    def load(self, warehouse, project, number):
        places = itertools.count(number * 1000)

        def load_events(*events):
            warehouse.stage(rows_of(project, events, first_seq(STREAM, next(places))))
            warehouse.commit((), ())

        return load_events

    def seen(self, reader, project):
        users = reader.users([project], ANY, ALWAYS, None).get(project, 0)
        by_day = [reader.users_by_day([project], each, ALWAYS) for each in Activity]
        return users, by_day, reader.event_names(project, ALWAYS, 10)

    def test_rows_stored_again_change_nothing(self, imports, reader, project, number):
        rows = rows_of(project, [("view", f"u{n % 3}", f"id{n}", n % 4) for n in range(20)], seq_of(number, 0))
        assert imports.store(number, rows) == StoredRows(20, 0)
        seen = self.seen(reader, project)
        assert imports.store(number, rows) == StoredRows(20, 0)
        assert self.seen(reader, project) == seen
        assert imports.row_count(project, number) == 20

    def test_the_rest_of_a_chunk_that_was_stored_in_part_is_stored(self, imports, reader, project, number):
        events = [("view", f"u{n}", f"id{n % 7}", n) for n in range(10)]
        imports.store(number, rows_of(project, events[:8], seq_of(number, 0)))
        assert imports.store(number, rows_of(project, events, seq_of(number, 0))) == StoredRows(7, 3)
        assert reader.event_names(project, ALWAYS, 10) == [("view", 7)]

    def test_an_id_counts_once_however_long_ago(self, imports, reader, load, project, number):
        load(("view", "ann", "known", 0))
        events = [
            ("view", "bob", "known", 400),
            ("view", "eve", "new", 1),
            ("view", "eve", "new", 2),
            ("view", "", "", 3),
        ]
        assert imports.store(number, rows_of(project, events, seq_of(number, 0))) == StoredRows(2, 2)
        again = rows_of(project, [("view", "zoe", "new", 5)], seq_of(number, 100))
        assert imports.store(number, again) == StoredRows(0, 1)
        other = rows_of(f"{project}x", [("view", "bob", "known", 1)], seq_of(number + 500_000, 0))
        assert imports.store(number + 500_000, other) == StoredRows(1, 0), "of another app"
        assert reader.users([project], ANY, ALWAYS, None) == {project: 2}

    def test_an_id_counts_once_in_rows_that_are_stored_by_turns(self, imports, reader, project, number):
        """A chunk is stored in several parts, each with every second of its rows."""
        events = [("view", f"u{n}", f"id{n // 2}", n) for n in range(20)]
        rows = [rows_of(project, events[part::2], seq_of(number, 0)) for part in (0, 1)]
        for part, each in enumerate(rows):
            each.seq = array("Q", [seq_of(number, 2 * place + part) for place in range(10)])
        assert imports.store(number, rows[0]) == StoredRows(10, 0)
        for _ in range(2):
            assert imports.store(number, rows[1]) == StoredRows(0, 10)
        assert imports.store(number, rows[0]) == StoredRows(10, 0)
        assert reader.event_names(project, ALWAYS, 10) == [("view", 10)]
        assert imports.row_count(project, number) == 20

    def test_a_row_may_be_of_any_month(self, imports, project, number, maintenance_connection):
        rows = rows_of(project, [("view", "u", "", -30 * n) for n in range(20, 140)], seq_of(number, 0))
        assert imports.store(number, rows).counted == 120
        assert imports.row_count(project, number) == 120
        # Every later change of the table would take long.
        months = f"SELECT DISTINCT toYYYYMM(day) FROM events WHERE project = '{project}'"
        drops = ", ".join(f"DROP PARTITION {month}" for (month,) in maintenance_connection.read(months, {}))
        maintenance_connection.run(f"ALTER TABLE events {drops}")

    def test_undone_means_as_if_never_stored(self, imports, reader, load, project, number, maintenance_connection):
        other = number + 500_000
        load(*[(("view", "user_signup")[n % 2], f"live{n % 9}", "", n % 12) for n in range(40)])
        first = [(("view", "user_signup")[n % 2], f"one{n % 5}", f"a{n}", n % 20) for n in range(60)]
        second = [("view", f"two{n % 7}", "", n % 25) for n in range(60)]
        imports.store(other, rows_of(project, second, seq_of(other, 0)))
        load(("view", "later", "", 3))
        before = self.seen(reader, project)
        imports.store(number, rows_of(project, first, seq_of(number, 0)))
        load(("view", "latest", "", 4), ("view", "latest", "", 30))
        RowMaintenance(maintenance_connection).erase_user(project, "live1")
        RowMaintenance(maintenance_connection).erase_user(project, "two1")
        assert imports.undo(project, number) == 60
        assert imports.undo(project, number) == 0
        assert self.seen(reader, project)[0] == before[0] + 1, "with the one who came after it"
        assert imports.undo(project, other) == 60
        load(("view", "afterwards", "", 3))
        live = {f"live{n}" for n in range(9)} | {"later", "latest", "afterwards"}
        assert self.seen(reader, project)[0] == len(live), "also the users that were erased"

    def test_users_who_came_after_an_import_and_were_made_anonymous_are_counted_when_it_is_undone(
        self, imports, reader, load, project, number, maintenance_connection
    ):
        maintenance, border = RowMaintenance(maintenance_connection), date(1999, 1, 1)
        first = -10_000  # before that, and before the days of all other tests
        events = [("view", "imported", "", first), ("user_signup", "imported", "", first + 1)]
        imports.store(number, rows_of(project, events, seq_of(number, 0)))
        load(
            ("view", "later", "", first), ("user_signup", "later", "", first + 1), ("view", "elsewhere", "", first + 5)
        )
        maintenance.erase_user(project, "later")
        load(("view", "latest", "", first))
        assert maintenance.anonymize_raw_before(border) == 4
        load(("view", "raw", "", first))
        assert imports.undo(project, number) == 2
        users, (active, signups), _ = self.seen(reader, project)
        assert users == 4
        assert [row[-1] for row in active] == [3, 1]
        assert [row[-1] for row in signups] == [1]
        assert maintenance.anonymize_raw_before(border) == 1, "so that other tests do not find it"

    def test_the_users_of_sources_are_in_no_summary_and_deleted_with_the_project(
        self, imports, warehouse, reader, project, number, maintenance_connection
    ):
        imports.store(number, rows_of(project, [("view", "u", "", 0)], seq_of(number, 0)))
        day = date.fromordinal(date(1970, 1, 1).toordinal() + 20_000)
        found = [each.project for each in warehouse.users_of_days(Window(day, day)) if project in each.project]
        assert found == [project]
        RowMaintenance(maintenance_connection).delete_project(project)
        left = "SELECT count() FROM actives WHERE startsWith(project, {project:String})"
        assert [int(count) for (count,) in maintenance_connection.read(left, {"project": project})] == [0]


def a_new_import(digest=DIGEST, project="proj_1"):
    return NewImport(
        project=project,
        format="events",
        file="a\0file",
        digest=digest,
        options="",
        first_day="2024-01-01",
        last_day="2024-02-01",
        is_approximate=False,
        who="root",
        began_at=NOW,
    )


class TestLedger:
    @pytest.fixture
    def imports(self, ledger_database):
        return ImportLedger(ledger_database)

    def test_a_chunk_is_recorded_once(self, imports, reader):
        found = imports.begin(a_new_import())
        chunk = ImportChunk(0, 3, ImportCounts(events=2), [a_payment(source=found.name)])
        moved = imports.commit(found.number, chunk)
        assert (moved.rows, moved.counts) == (3, ImportCounts(events=2, payments=1))
        with pytest.raises(ImportOutdatedError):
            imports.commit(found.number, chunk)
        assert [row[-1] for row in totals(reader)] == [1999]
        assert imports.find(found.number) == moved

    def test_nothing_of_an_import_counts_as_usage(self, imports, loader):
        found = imports.begin(a_new_import())
        imports.commit(found.number, ImportChunk(0, 1, ImportCounts(events=5), [a_payment(source=found.name)]))
        assert loader.usage("2027-01") == {}
        assert loader.first_seen() == {"proj_1": NOW}

    def test_a_recorded_payment_stands_and_one_of_the_same_import_is_its_own(self, imports, writer, reader):
        writer.record([Entry([a_payment("known")])])
        found = imports.begin(a_new_import())
        payments = [a_payment(id_, amount=1, source=found.name) for id_ in ("known", "new", "new")]
        counts = imports.commit(found.number, ImportChunk(0, 3, ImportCounts(), payments)).counts
        assert (counts.payments, counts.payments_known) == (1, 2)
        assert [row[-1] for row in totals(reader)] == [2000]
        imports.restart(found.number)
        counts = imports.commit(found.number, ImportChunk(0, 3, ImportCounts(), payments)).counts
        assert (counts.payments, counts.payments_known) == (1, 2)

    @pytest.mark.parametrize("source", ["api", "biller_a"])
    def test_a_payment_that_was_also_sent_stays_when_its_import_is_undone(self, imports, writer, reader, source):
        found = imports.begin(a_new_import())
        both = [a_payment(id_, source=found.name, occurred_at=NOW - DAY_MS) for id_ in ("sent", "only imported")]
        imports.commit(found.number, ImportChunk(0, 2, ImportCounts(), both))
        entry = Entry([a_payment("sent", source=source), a_payment("new", source=source)])
        assert writer.record([entry, entry]) == [[DUPLICATE, ACCEPTED], [DUPLICATE, DUPLICATE]]
        assert [row[-1] for row in totals(reader)] == [3998, 1999]
        imports.begin_undo(found.number)
        assert sum(imports.undo_money(found.number)) == 1
        assert [row[-1] for row in totals(reader)] == [1999, 1999]
        assert writer.record([entry]) == [[DUPLICATE, DUPLICATE]]

    def test_importing_and_undoing_money_raises_the_revision(self, imports, reader):
        revisions = []
        found = imports.begin(a_new_import())
        imports.commit(found.number, ImportChunk(0, 1, ImportCounts(), [a_payment(source=found.name)]))
        revisions += reader.money_revisions(["proj_1"]).values()
        version = a_version(NOW * 1000, rank=rank_of(found.number, 0, 0))
        imports.commit(found.number, ImportChunk(1, 2, ImportCounts(subscriptions=1), [], [version]))
        revisions += reader.money_revisions(["proj_1"]).values()
        imports.begin_undo(found.number)
        for _ in imports.undo_money(found.number):
            revisions += reader.money_revisions(["proj_1"]).values()
        assert len(set(revisions)) == 4
        assert revisions == sorted(revisions)

    def test_payments_that_are_sent_while_their_import_is_undone_are_all_kept(self, imports, open_ledger, reader):
        found = imports.begin(a_new_import())
        sent = [a_payment(f"p{n}", amount=1, occurred_at=NOW - n % 7 * DAY_MS) for n in range(1000)]
        own = [msgspec.structs.replace(each, source=found.name) for each in sent]
        imports.commit(found.number, ImportChunk(0, 1000, ImportCounts(), own))
        imports.begin_undo(found.number)

        has_begun = threading.Event()

        def send_all():
            writer = LedgerWriter(open_ledger())
            for start in range(0, 1000, 50):
                writer.record([Entry(sent[start : start + 50])])
                has_begun.set()

        thread = threading.Thread(target=send_all)
        thread.start()
        has_begun.wait(PATIENCE_S)
        deleted = sum(imports.undo_money(found.number))
        thread.join()
        assert deleted <= 950
        assert sum(row[-1] for row in totals(reader)) == 1000
        assert list(imports.undo_money(found.number)) == []

    def test_a_payment_in_conflict_with_an_imported_one_does_not_keep_it(self, imports, writer, reader):
        found = imports.begin(a_new_import())
        imports.commit(found.number, ImportChunk(0, 1, ImportCounts(), [a_payment(source=found.name)]))
        assert writer.record([Entry([a_payment(digest=b"another")])]) == [[CONFLICT]]
        imports.begin_undo(found.number)
        assert sum(imports.undo_money(found.number)) == 1
        assert totals(reader) == []

    def test_a_version_that_was_also_sent_stays_when_its_import_is_undone(self, imports, writer, reader):
        found = imports.begin(a_new_import())
        version = a_version(NOW * 1000, rank=rank_of(found.number, 0, 0))
        imports.commit(found.number, ImportChunk(0, 1, ImportCounts(subscriptions=1), [], [version]))
        writer.record([Entry([], [a_version(NOW * 1000)])])
        imports.begin_undo(found.number)
        assert sum(imports.undo_money(found.number)) == 1
        assert mrr_of(reader, "proj_1") == [("eur", 100)]

    def test_a_file_is_imported_once_until_it_is_undone(self, imports):
        found = imports.begin(a_new_import())
        with pytest.raises(ImportOutdatedError, match="another command"):
            imports.begin(a_new_import())
        assert imports.find_file("proj_1", DIGEST) == found
        assert imports.begin(a_new_import(project="proj_2")).number > found.number
        imports.begin_undo(found.number)
        imports.finish_undo(found.number, NOW)
        assert imports.find_file("proj_1", DIGEST) is None
        again = imports.begin(a_new_import())
        assert [each.number for each in imports.latest(["proj_1"], 10)] == [again.number, found.number]

    @pytest.mark.parametrize("seed", range(5))
    def test_undone_money_is_as_if_never_recorded(self, imports, writer, reader, seed):
        rng = random.Random(seed)
        day_us = DAY_MS * 1000
        live = [
            a_version(NOW * 1000 - rng.randrange(40) * day_us, id=f"s{rng.randrange(6)}", mrr=rng.randrange(90))
            for _ in range(25)
        ]
        payments = [a_payment(f"p{n}", amount=n, occurred_at=NOW - n % 5 * DAY_MS) for n in range(20)]
        writer.record([Entry(payments, live[:12])])
        found = imports.begin(a_new_import())
        statuses = ["active", "canceled", "trialing"]
        versions = [
            a_version(
                NOW * 1000 - rng.randrange(60) * day_us,
                id=f"s{rng.randrange(9)}",
                mrr=rng.randrange(90),
                status=rng.choice(statuses),
                rank=rank_of(found.number, row, 0),
            )
            for row in range(300)
        ]
        own = [a_payment(f"i{n}", source=source_of(found.number), occurred_at=NOW - n % 9 * DAY_MS) for n in range(700)]
        imports.commit(found.number, ImportChunk(0, 300, ImportCounts(subscriptions=300), own, versions))
        writer.record([Entry([], live[12:])])
        window, today = Window(date(2026, 11, 1), date(2027, 1, 20)), date(2027, 1, 16)
        together = [*live[:12], *versions, *live[12:]]
        assert history_of(reader, "proj_1", *window, today) == history_by_model(together, window, today)
        imports.begin_undo(found.number)
        assert sum(imports.undo_money(found.number)) == 1000
        assert list(imports.undo_money(found.number)) == []
        assert history_of(reader, "proj_1", *window, today) == history_by_model(live, window, today)
        expected = [(day, "eur", total) for day, _, total in history_by_model(live, window, today)][-1:]
        assert [total for _, total in mrr_of(reader, "proj_1")] == [total for _, _, total in expected]
        assert sum(row[-1] for row in totals(reader)) == sum(range(20))
        assert len(totals(reader)) == 5, "days without payments have no total"
