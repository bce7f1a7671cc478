"""Readers of imported files: whatever a file holds, every row becomes one item, and valid rows keep their values."""

import csv
import io
import json
import random
import time
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mauve.core.app import Environment
from mauve.core.events import EVENT as DECODER
from mauve.core.times import parse_time_ms
from mauve.imports.billed import statuses_of
from mauve.imports.chunks import ROWS_PER_CHUNK_MAX, chunks_of, packed, rows_from, unpacked
from mauve.imports.files import opened
from mauve.imports.items import Bad, Figures, ImportedEvent, Item, Money, Skipped, Target
from mauve.imports.run import FORMATS
from mauve.imports.tables import read_table
from mauve.ingest.rules import claimed_time, payment_digest
from mauve.maintenance.errors import MaintenanceRefusedError
from mauve.stores.imports import ROWS_MAX, rank_of, rank_prefix, seq_of

NOW_MS = 1_800_000_000_000
COLUMNS = {"name": "event", "at": "when", "user": "who", "props.plan": "plan"}
TARGET = Target("proj_1", "org_1", Environment.LIVE, NOW_MS, number=7)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
EVENT = st.fixed_dictionaries(
    {"name": TEXT.filter(bool).filter(lambda name: name != "payment"), "at": st.integers(0, NOW_MS)},
    optional={
        "user": TEXT,
        "id": TEXT,
        "props": st.dictionaries(TEXT, TEXT | st.integers(-(2**60), 2**60), max_size=4),
    },
)


def items_of(format_, content, target=TARGET):
    return list(FORMATS[format_].read(io.BufferedReader(io.BytesIO(content)), target))


@given(st.lists(EVENT, max_size=8))
def test_a_line_becomes_the_event_that_it_describes(events):
    content = "".join(json.dumps(event) + "\n" for event in events).encode()
    found = items_of("events", content)
    assert [(item.name, item.at, item.user, item.id) for item in found] == [
        (event["name"], event["at"], event.get("user", ""), event.get("id", "")) for event in events
    ]
    assert [json.loads(item.props or b"{}") for item in found] == [event.get("props", {}) for event in events]


SENT = {
    "name": "payment",
    "id": "inv_1",
    "user": "ann",
    "at": "2027-01-01T00:00:00Z",
    "props": {"amount": 1999, "currency": "eur", "plan": "pro"},
}
BOOKED = SENT | {"at": NOW_MS, "props": {"amount": 1999, "currency": "eur", "earned": True}}


def payment_in(line):
    (item,) = items_of("events", json.dumps(line).encode())
    return item.payments[0]


@pytest.mark.parametrize("at", ["2027-01-01T00:00:00Z", 5, -5, 10**30, None])
def test_an_exported_payment_is_compared_as_the_client_sent_it(at):
    sent = SENT | {"at": at}
    found = payment_in(BOOKED | {"payload": sent})
    event = DECODER.decode(json.dumps(sent))
    assert found.digest == payment_digest(event)
    assert found.claimed_at == (None if at is None else claimed_time(parse_time_ms(at)))
    assert (found.amount, found.occurred_at) == (1999, NOW_MS)


@pytest.mark.parametrize(
    "payload",
    [
        {},
        [],
        SENT | {"id": "inv_2"},
        SENT | {"name": "view"},
        SENT | {"user": "bob"},
        SENT | {"props": {"amount": 1, "currency": "eur"}},
        SENT | {"props": SENT["props"] | {"earned": False}},
    ],
)
def test_a_payload_that_is_not_the_payment_of_its_line_is_ignored(payload):
    found, plain = payment_in(BOOKED | {"payload": payload}), payment_in(BOOKED)
    assert (found.digest, found.claimed_at) == (plain.digest, plain.claimed_at)


@given(st.lists(EVENT, min_size=1, max_size=8))
def test_a_row_of_a_table_becomes_the_event_that_it_describes(events):
    sheet = io.StringIO()
    writer = csv.writer(sheet)
    writer.writerow(["who", "event", "when", "plan"])
    for event in events:
        writer.writerow([event.get("user", ""), event["name"], event["at"], "pro"])
    target = Target("p", "o", Environment.LIVE, NOW_MS, 1, COLUMNS, "ms")
    found = list(read_table(io.BufferedReader(io.BytesIO(sheet.getvalue().encode())), target))
    assert [(item.name, item.at, item.user, item.props) for item in found] == [
        (event["name"], event["at"], event.get("user", ""), b'{"plan":"pro"}') for event in events
    ]


@pytest.mark.parametrize("format_", sorted(FORMATS))
@given(content=st.binary(max_size=300))
def test_any_bytes_are_read_or_refused_with_a_sentence(format_, content):
    target = Target("p", "o", Environment.LIVE, NOW_MS, 1, COLUMNS, "iso")
    try:
        found = items_of(format_, content, target)
    except MaintenanceRefusedError:
        return
    assert all(isinstance(item, Item) for item in found)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
NAMES = (
    "kind name user id at props amount currency earned status mrr",
    "object created items event timestamp properties",
)
FIELD = st.sampled_from(" ".join(NAMES).split())
VALUE = JSON | st.sampled_from(["event", "payment", "subscription", "invoice", "paid", "active", "eur", NOW_MS, 1])


@pytest.mark.parametrize("format_", ["events", "stripe", "posthog"])
@given(lines=st.lists(st.dictionaries(FIELD, VALUE, max_size=8), min_size=1, max_size=4))
def test_any_object_makes_exactly_one_item(format_, lines):
    content = "".join(json.dumps(line) + "\n" for line in lines).encode()
    found = items_of(format_, content)
    assert len(found) == len(lines)
    assert all(isinstance(item, ImportedEvent | Money | Skipped | Bad) for item in found)


@given(st.lists(EVENT, max_size=30), st.integers(0, 30))
def test_chunks_continue_at_any_row_and_survive_the_way_to_the_core(events, first_row):
    content = "".join(json.dumps(event) + "\n" for event in events).encode()
    (whole,) = list(chunks_of(iter(items_of("events", content)), 0)) or [None]
    rest = list(chunks_of(iter(items_of("events", content)), first_row))
    assert [each for chunk in rest for each in chunk.events] == (whole.events[first_row:] if whole else [])
    for rows in rows_from(whole, TARGET) if whole else ():
        again = unpacked(packed(rows))
        assert (again.seq, again.occurred_at, again.project) == (rows.seq, rows.occurred_at, rows.project)
        for name in ("name", "user", "id", "props"):
            one, other = getattr(rows, name), getattr(again, name)
            assert (b"".join(one.pieces), one.lengths) == (b"".join(other.pieces), other.lengths)


def month_of(at):
    return time.gmtime(at // 1000)[:2]


def test_rows_in_no_order_of_time_are_stored_in_few_small_inserts():
    """The warehouse writes every month of an insert on its own, so neither an insert nor a file has many of them."""
    rng = random.Random(1)
    shuffled = [ImportedEvent("view", rng.randrange(NOW_MS), "", "", b"") for _ in range(2 * ROWS_PER_CHUNK_MAX)]
    chunks = list(chunks_of(iter(shuffled), 0))
    assert [chunk.end_row - chunk.first_row for chunk in chunks] == [ROWS_PER_CHUNK_MAX] * 2
    for chunk in chunks:
        stored = list(rows_from(chunk, TARGET))
        assert max(len(set(map(month_of, rows.occurred_at))) for rows in stored) <= 26
        assert sorted(seq for rows in stored for seq in rows.seq) == [
            seq_of(TARGET.number, row) for row in range(chunk.first_row, chunk.end_row)
        ]
    in_order = sorted(shuffled[:200_000], key=lambda event: event.at // 2)
    sizes = [chunk.end_row - chunk.first_row for chunk in chunks_of(iter(in_order), 0)]
    assert max(sizes) < ROWS_PER_CHUNK_MAX, "of a file in order, chunks are smaller"


@given(st.integers(1, 2**20 - 1), st.integers(0, ROWS_MAX - 1), st.integers(1, 2**20 - 1), st.integers(0, ROWS_MAX - 1))
def test_rows_and_versions_of_imports_never_share_a_number_or_rank(number, row, other_number, other_row):
    is_same = (number, row) == (other_number, other_row)
    assert (seq_of(number, row) == seq_of(other_number, other_row)) == is_same
    assert seq_of(number, row) < 2**64
    assert rank_of(number, row, 0).startswith(rank_prefix(other_number)) == (number == other_number)


@given(
    st.sampled_from(["active", "trialing", "past_due", "canceled", "incomplete", "unpaid"]),
    *[st.none() | st.integers(0, NOW_MS // 1000 + 1000) for _ in range(4)],
)
def test_the_statuses_of_a_subscription_are_in_order_and_end_with_the_present_one(
    status, created, trial, ended, canceled
):
    times = {"created": created, "trial_end": trial, "ended_at": ended, "canceled_at": canceled}
    found = statuses_of({"status": status, **times}, NOW_MS // 1000)
    moments = [at for at, _ in found]
    assert moments == sorted(moments)
    if found and status not in {"active", "trialing"} and (status != "canceled" or ended or canceled):
        assert found[-1][1] == status


def test_the_figures_of_plausible_are_read_from_a_zip_file(tmp_path):
    path = tmp_path / "plausible.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(
            "imported_visitors_20240101_20240102.csv", "date,visitors,pageviews\n2024-01-01,3,9\n2024-01-02,x,1\n"
        )
        archive.writestr("imported_pages_20240101_20240102.csv", "date,visitors\n2024-01-01,3\n")
    with opened(path) as file:
        first, second = FORMATS["plausible"].read(file, TARGET)
    assert isinstance(first, Figures)
    assert [tuple(each) for each in first.figures] == [("2024-01-01", "visitors", 3), ("2024-01-01", "pageviews", 9)]
    assert isinstance(second, Bad)
