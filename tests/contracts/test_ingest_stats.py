"""What every ledger promises about ingest stats."""

from datetime import date, timedelta

import pytest

from mauve.core.times import DAY_MS
from mauve.core.window import Window
from mauve.stores.ingest_stats import ACCEPTED, DAYS_KEPT, KEY_USED, REPEAT, IngestCount, IngestStats
from mauve.stores.ledger import Entry, LoadStep
from mauve.stores.ledger.usage import IngestStatsReader

DAY = date(2026, 11, 15)
NOW = 1_794_744_000_000  # on that day
ALWAYS = Window(date.min, date.max)


@pytest.fixture
def reader(ledger_database):
    return IngestStatsReader(ledger_database)


@pytest.fixture
def note(writer):
    def note_one(offset, last_at, counts, project="proj_1"):
        day = (DAY + timedelta(days=offset)).isoformat()
        stats = IngestStats(day, last_at, {(project, word): count for word, count in counts.items()})
        writer.record([Entry(ingest_stats=stats)])

    return note_one


def test_counts_of_a_day_add_up_and_the_last_time_is_kept(note, reader):
    note(0, 5, {ACCEPTED: 2, "rejected:at": 1})
    note(0, 4, {ACCEPTED: 3})
    assert reader.counts("proj_1", ALWAYS) == [IngestCount(ACCEPTED, 5, 5), IngestCount("rejected:at", 1, 5)]


def test_uses_of_keys_are_read_apart_from_the_counts(note, reader):
    first = 1 - DAY.day  # Uses are noted on the first day of their month.
    note(first, NOW + 5, {ACCEPTED: 2, f"{KEY_USED}:key_1": 1, f"{KEY_USED}:key_2": 1})
    note(first, NOW + 9, {f"{KEY_USED}:key_2": 1}, project="proj_2")
    note(first - 1, NOW + 9, {f"{KEY_USED}:key_3": 1})
    assert reader.counts("proj_1", ALWAYS) == [IngestCount(ACCEPTED, 2, NOW + 5)]
    assert reader.key_uses(NOW - 92 * DAY_MS, NOW) == {"key_1": NOW + 5, "key_2": NOW + 9}
    assert reader.key_uses(NOW + 5, NOW + 10) == {"key_2": NOW + 9}
    assert reader.key_uses(NOW - 92 * DAY_MS, NOW - 30 * DAY_MS) == {}, "of another month"


def test_days_of_a_window_are_summed(note, reader):
    for offset in range(-2, 3):
        note(offset, 10 + offset, {ACCEPTED: 10 ** (offset + 2)})
    window = Window(DAY - timedelta(days=1), DAY + timedelta(days=1))
    assert reader.counts("proj_1", window) == [IngestCount(ACCEPTED, 1110, 11)]


def test_projects_are_isolated(note, reader):
    note(0, 1, {ACCEPTED: 1})
    assert reader.counts("proj_2", ALWAYS) == []


def test_old_days_are_deleted(note, reader):
    note(0, 1, {ACCEPTED: 1})
    note(DAYS_KEPT - 1, 2, {ACCEPTED: 10})
    assert reader.counts("proj_1", ALWAYS)[0].count == 11
    note(DAYS_KEPT, 3, {ACCEPTED: 100})
    assert reader.counts("proj_1", ALWAYS)[0].count == 110


def test_a_load_step_adds_its_own_counts(note, loader, reader):
    note(0, 1, {ACCEPTED: 3})
    loader.finish(LoadStep({1: 1}, ingest_stats=IngestStats(DAY.isoformat(), 2, {("proj_1", REPEAT): 2})))
    assert reader.counts("proj_1", ALWAYS) == [IngestCount(ACCEPTED, 3, 1), IngestCount(REPEAT, 2, 2)]
