"""What every ledger promises about the history of MRR.

Proves: large-reads.
"""

from datetime import date, timedelta
from itertools import groupby

import pytest

from mauve.core.subscriptions import MrrChange
from mauve.core.window import Window
from mauve.stores.ledger import Entry
from mauve.stores.ledger.schema import mrr_changes
from support.ledger_entries import AMOUNT_MAX, a_version, mrr_of, rows_of
from support.mrr_model import DAY_US, history_of

EPOCH = date(1970, 1, 1)
FIRST_DAYS = Window(EPOCH, EPOCH + timedelta(days=9))


def day(number):
    return EPOCH + timedelta(days=number)


def record(writer, *versions):
    writer.record([Entry(subscriptions=versions)])


def history(reader, first=0, last=5, project="proj_1", today=date.max):
    """Return the MRR of each currency by day number."""
    rows = history_of(reader, project, day(first), day(last), today)
    return [((date.fromisoformat(each) - EPOCH).days, currency, mrr) for each, currency, mrr in rows]


def test_only_an_active_version_counts_from_its_day_to_that_of_the_next(writer, reader):
    record(
        writer,
        a_version(0, mrr=5),
        a_version(2 * DAY_US, status="past_due"),
        a_version(3 * DAY_US, mrr=0, currency="usd"),
        a_version(4 * DAY_US, status="canceled"),
    )
    assert history(reader) == [(0, "eur", 5), (1, "eur", 5), (3, "usd", 0)]


@pytest.mark.parametrize("at_once", [True, False])
def test_a_late_version_corrects_the_days_up_to_the_next(writer, reader, at_once):
    recorded = [a_version(4 * DAY_US, mrr=40), a_version(0, mrr=1), a_version(2 * DAY_US, mrr=20), a_version(1, mrr=2)]
    for group in [recorded] if at_once else [[version] for version in recorded]:
        record(writer, *group)
    assert history(reader) == [
        (0, "eur", 2),
        (1, "eur", 2),
        (2, "eur", 20),
        (3, "eur", 20),
        (4, "eur", 40),
        (5, "eur", 40),
    ]


def test_at_equal_times_the_higher_rank_counts_or_else_the_last_recorded(writer, reader):
    for version in [a_version(0, mrr=1), a_version(0, mrr=2), a_version(DAY_US, mrr=9, rank=b"b")]:
        record(writer, version)
    record(writer, a_version(DAY_US, mrr=5, rank=b"a"), a_version(0, mrr=3))
    assert history(reader, 0, 2) == [(0, "eur", 3), (1, "eur", 9), (2, "eur", 9)]


def test_a_repeated_version_changes_nothing(writer, reader):
    versions = [a_version(number * DAY_US, mrr=number, rank=b"r") for number in (3, 1, 2)]
    record(writer, *versions)
    before = history(reader)
    for again in (versions, [versions[1]], [*versions, *versions]):
        record(writer, *again)
    assert history(reader) == before == [(1, "eur", 1), (2, "eur", 2), (3, "eur", 3), (4, "eur", 3), (5, "eur", 3)]


def test_today_matches_the_current_rows_whatever_their_dates(writer, reader):
    record(writer, a_version(0, mrr=1), a_version(9_000 * DAY_US, mrr=7, id="sub_2"), a_version(4_000 * DAY_US, mrr=2))
    assert history(reader, 0, 2, today=day(2)) == [(0, "eur", 1), (1, "eur", 1), (2, "eur", 9)]
    assert history(reader, 0, 2) == [(0, "eur", 1), (1, "eur", 1), (2, "eur", 1)]
    assert mrr_of(reader, "proj_1") == [("eur", 9)]


def test_sums_may_exceed_64_bits_and_return(writer, reader):
    count = 3_000
    record(writer, *(a_version(0, id=str(number), mrr=AMOUNT_MAX) for number in range(count)))
    assert count * AMOUNT_MAX > 2**63
    assert history(reader, 0, 1) == [(0, "eur", count * AMOUNT_MAX), (1, "eur", count * AMOUNT_MAX)]
    record(writer, *(a_version(DAY_US, id=str(number), mrr=AMOUNT_MAX, status="ended") for number in range(1, count)))
    assert history(reader, 1, 1) == [(1, "eur", AMOUNT_MAX)]
    assert mrr_of(reader, "proj_1") == [("eur", AMOUNT_MAX)]


@pytest.mark.parametrize("far", [-800_000, -16_385, -16_384, -129, -128, -127, 127, 128, 16_383, 16_384, 16_385])
def test_everything_before_the_window_is_on_its_first_day(writer, reader, far):
    record(writer, a_version(far * DAY_US, mrr=3), a_version((far + 1) * DAY_US, mrr=8))
    changes = list(reader.mrr_changes(["proj_1"], Window(day(20_000), day(20_001))))
    assert changes == [MrrChange("proj_1", 20_000, "eur", 1, 8)]


def test_reverted_changes_are_not_read(writer, reader):
    record(writer, *(a_version(number * DAY_US, mrr=2**32 + number) for number in range(5)))
    record(writer, *(a_version(number * DAY_US + 1, mrr=2**32) for number in range(5)))
    assert list(reader.mrr_changes(["proj_1"], FIRST_DAYS)) == [MrrChange("proj_1", 0, "eur", 1, 2**32)]


def test_projects_come_one_after_the_other_and_are_isolated(writer, reader):
    record(writer, *(a_version(at * DAY_US, project=f"proj_{at % 2}", id=f"s{at % 3}", mrr=at) for at in range(12)))
    for changes_of in (reader.mrr_changes, reader.mrr_changes_until_now):
        together = list(changes_of(["proj_1", "proj_0", "proj_9"], FIRST_DAYS))
        apart = {project: list(changes_of([project], FIRST_DAYS)) for project in ("proj_0", "proj_1", "proj_9")}
        assert {project: list(own) for project, own in groupby(together, lambda each: each.project)} == {
            project: own for project, own in apart.items() if own
        }
        assert not apart["proj_9"]


def test_a_reader_that_stops_early_releases_the_ledger(writer, reader):
    record(writer, *(a_version(at * DAY_US, mrr=at) for at in range(3_000)))
    changes = reader.mrr_changes(["proj_1"], Window(EPOCH, date.max))
    next(changes)
    changes.close()
    record(writer, a_version(9_999 * DAY_US))


def test_a_version_dated_long_ago_changes_as_many_rows_as_one_of_today(writer, ledger_database):
    def rows():
        return set(rows_of(ledger_database, mrr_changes))

    record(writer, *(a_version(at * DAY_US, mrr=at, id=f"sub_{at % 7}") for at in range(3_000)))
    for number, at in enumerate([0, 1_500 * DAY_US, 2_999 * DAY_US + 1, 9_999 * DAY_US, -9_999 * DAY_US]):
        before = rows()
        record(writer, a_version(at, id="sub_1", mrr=9_000 + number))
        assert 1 <= len(rows() - before) <= 6, "its own day and that of the next one, and the blocks around them"
