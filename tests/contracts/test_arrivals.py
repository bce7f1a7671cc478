"""What every ledger promises about arrivals."""

from datetime import date, timedelta

import pytest

from mauve.core.window import Window
from mauve.stores.ingest_stats import ACCEPTED, DAYS_KEPT, REPEAT, ArrivalCount, Arrivals
from mauve.stores.ledger import Entry, LoadStep
from mauve.stores.sql.ledger.ingest_stats import SqlArrivalReader

DAY = date(2026, 11, 15)
ALWAYS = Window(date.min, date.max)


@pytest.fixture
def reader(ledger_database):
    return SqlArrivalReader(ledger_database)


@pytest.fixture
def note(writer):
    def note_one(offset, last_at, counts, project="proj_1"):
        day = (DAY + timedelta(days=offset)).isoformat()
        arrivals = Arrivals(day, last_at, {(project, word): count for word, count in counts.items()})
        writer.record([Entry(arrivals=arrivals)])

    return note_one


def test_counts_of_a_day_add_up_and_the_last_moment_stays(note, reader):
    note(0, 5, {ACCEPTED: 2, "rejected:at": 1})
    note(0, 4, {ACCEPTED: 3})
    assert reader.counts("proj_1", ALWAYS) == [ArrivalCount(ACCEPTED, 5, 5), ArrivalCount("rejected:at", 1, 5)]


def test_days_of_a_window_are_summed_up(note, reader):
    for offset in range(-2, 3):
        note(offset, 10 + offset, {ACCEPTED: 10 ** (offset + 2)})
    window = Window(DAY - timedelta(days=1), DAY + timedelta(days=1))
    assert reader.counts("proj_1", window) == [ArrivalCount(ACCEPTED, 1110, 11)]


def test_a_project_sees_nothing_of_another(note, reader):
    note(0, 1, {ACCEPTED: 1})
    assert reader.counts("proj_2", ALWAYS) == []


def test_days_of_long_ago_are_dropped(note, reader):
    note(0, 1, {ACCEPTED: 1})
    note(DAYS_KEPT - 1, 2, {ACCEPTED: 10})
    assert reader.counts("proj_1", ALWAYS)[0].count == 11
    note(DAYS_KEPT, 3, {ACCEPTED: 100})
    assert reader.counts("proj_1", ALWAYS)[0].count == 110


def test_a_load_step_adds_its_own(note, loader, reader):
    note(0, 1, {ACCEPTED: 3})
    loader.finish(LoadStep({1: 1}, arrivals=Arrivals(DAY.isoformat(), 2, {("proj_1", REPEAT): 2})))
    assert reader.counts("proj_1", ALWAYS) == [ArrivalCount(ACCEPTED, 3, 1), ArrivalCount(REPEAT, 2, 2)]
