"""What every warehouse promises to an export. Rows are loaded through the loader's side.

Proves: export.
"""

import itertools
from datetime import date, timedelta

import msgspec
import pytest

from mauve.core.times import DAY_MS
from mauve.maintenance.export_lines import SCHEMAS, event_table, json_lines
from mauve.stores.export import Chosen, EventDay
from mauve.stores.imports import IMPORT_STREAM, IMPORTS_MAX, ROWS_MAX, seq_of, source_of
from mauve.stores.warehouse import EventRows, export, first_seq
from mauve.stores.warehouse.export import ClickHouseEventExport

DAY = date(2026, 11, 15)
NOON = (DAY - date(1970, 1, 1)).days * DAY_MS + DAY_MS // 2
STREAMS = (0, 97, 255)
record_numbers = itertools.count(1)
projects = itertools.count(1)


@pytest.fixture
def project():
    return f"proj_export_{next(projects)}"


@pytest.fixture
def events(warehouse, connection):
    return ClickHouseEventExport(connection)


@pytest.fixture
def load(warehouse, project):
    """Load events given as (user, day), some of which do not count; return their seqs."""

    def load_events(events, *, repeats=(), project=project, stream=97, text="", seq=None):
        rows = EventRows()
        seq = seq or first_seq(stream, next(record_numbers) * 100)
        for place, (user, day) in enumerate(events):
            rows.project.append(project)
            rows.name.extend([f"event {place % 3}"])
            rows.received_at.append(NOON)
            rows.occurred_at.append(NOON + (day - DAY).days * DAY_MS)
            rows.claimed_at.extend([text])
            rows.user.extend([user])
            rows.id.extend([text])
            rows.props.extend([text])
            rows.seq.append(seq + place)
        warehouse.stage(rows)
        warehouse.commit({seq + place for place in repeats}, ())
        return list(rows.seq)

    return load_events


def everything(project, user=None):
    return Chosen(project, date.min, date.max, user)


def tables(events, chosen, extent=None):
    extent = extent or events.extent(chosen)
    for day, _ in extent.days:
        after, is_last = 0, False
        while not is_last:
            page = events.page(chosen, extent.ends, day, after)
            after, is_last = page.last, page.is_last
            if page.rows:
                yield event_table(page)


def rows(events, chosen, extent=None):
    return [row for table in tables(events, chosen, extent) for row in table.to_pylist()]


def seqs(events, chosen, extent=None):
    return [row["seq"] for row in rows(events, chosen, extent)]


@pytest.mark.parametrize("rows_max", [1, 3, 7, 100])
def test_pages_of_any_size_hold_every_row_once_by_day_and_seq(events, load, project, monkeypatch, rows_max):
    monkeypatch.setattr(export, "PAGE_ROWS_MAX", rows_max)
    earlier, later = DAY - timedelta(days=40), DAY
    loaded = {earlier: [], later: []}
    for stream in reversed(STREAMS):
        for day in (later, earlier):
            loaded[day] += load([("ann", day), ("", day), ("bob", day)], repeats=[1], stream=stream)
    load([("eve", DAY)], project=f"{project}_other")
    extent = events.extent(everything(project))
    assert extent.days == [EventDay(earlier, 9), EventDay(later, 9)]
    assert seqs(events, everything(project)) == sorted(loaded[earlier]) + sorted(loaded[later])


def test_rows_stored_after_the_beginning_are_left_out(events, load, project):
    first = load([("ann", DAY)], stream=3)
    extent = events.extent(everything(project))
    load([("ann", DAY)], stream=3)
    load([("ann", DAY)], stream=2)
    assert seqs(events, everything(project), extent) == first
    assert len(seqs(events, everything(project))) == 3


def test_a_page_is_bounded_in_bytes(events, load, project, monkeypatch):
    text = "x" * 1000
    monkeypatch.setattr(export, "PAGE_BYTES", 10_000)
    load([("ann", DAY)] * 50, text=text)
    pages = list(tables(events, everything(project)))
    assert [page.num_rows for page in pages] == [4] * 12 + [2], "three texts of 1,000 bytes each"


def test_a_row_too_large_for_a_page_has_its_own(events, load, project, monkeypatch):
    monkeypatch.setattr(export, "PAGE_BYTES", 1)
    load([("ann", DAY)] * 3, text="x")
    assert [page.num_rows for page in tables(events, everything(project))] == [1, 1, 1]


def test_only_the_chosen_days_and_the_chosen_person(events, load, project):
    load([("ann", DAY), ("bob", DAY), ("ann", DAY - timedelta(days=1)), ("ann", DAY - timedelta(days=2)), ("", DAY)])
    two_days = Chosen(project, DAY - timedelta(days=1), DAY)
    assert [row["user"] for row in rows(events, two_days)] == ["ann", "ann", "bob", None]
    assert events.extent(everything(project, "ann")).days == [
        EventDay(DAY - timedelta(days=age), 1) for age in (2, 1, 0)
    ]
    assert {row["user"] for row in rows(events, everything(project, "ann"))} == {"ann"}


@pytest.mark.parametrize("user", ["it's\\ ann\t\n{user:String} 👩", "a\\0b", "'", "\0"])
def test_a_person_may_have_any_name(events, load, project, user):
    load([(user, DAY), ("bob", DAY)])
    assert [row["user"] for row in rows(events, everything(project, user))] == [user]


def test_an_empty_project_has_no_days(events, load, project):
    assert events.extent(everything(project)) == export.EventExtent({}, [])


@pytest.mark.parametrize("text", ['{"a":1}', '{\r\n"big": 123456789012345678901234567890,\n"x":"☃\\n\u2028"}', ""])
def test_texts_and_numbers_arrive_as_they_were_sent(events, load, project, text):
    (seq,) = load([("ann", DAY)], stream=255, text=text)
    (table,) = tables(events, everything(project))
    assert table.schema == SCHEMAS["event"]
    sent = text or None
    (row,) = table.to_pylist()
    assert row == {
        "name": "event 0",
        "user": "ann",
        "id": sent,
        "at": NOON,
        "props": sent,
        "source": None,
        "received_at": NOON,
        "claimed_at": sent,
        "counted": True,
        "seq": seq,
    }
    (line,) = json_lines("event", table).splitlines()
    expected = {name: value for name, value in row.items() if value is not None} | {"kind": "event"}
    if text:
        expected["props"] = msgspec.json.decode(text)
        assert text.encode().replace(b"\r", b" ").replace(b"\n", b" ") in line
    assert msgspec.json.decode(line) == expected


@pytest.mark.parametrize("number", [1, 37, IMPORTS_MAX])
def test_an_imported_row_names_its_import(events, load, project, number):
    for row in (0, ROWS_MAX - 1):
        load([("ann", DAY)], seq=seq_of(number, row))
    for stream in (0, IMPORT_STREAM - 1, IMPORT_STREAM + 1):
        load([("ann", DAY)], stream=stream)
    found = [row["source"] for row in rows(events, everything(project))]
    assert [source for source in found if source] == [source_of(number)] * 2
    assert found.count(None) == 3


def test_props_that_are_no_json_become_a_text(events, load, project):
    load([("ann", DAY)], text='{"cut off')
    (table,) = tables(events, everything(project))
    assert msgspec.json.decode(json_lines("event", table))["props"] == '{"cut off'
