"""Files to import that are damaged, oversized or malicious: each is read within bounds or refused with a sentence."""

import contextlib
import gzip
import io
import json
import tracemalloc
import zipfile

import pytest

from mauve.core.app import Environment
from mauve.imports.files import LINE_BYTES_MAX, opened
from mauve.imports.items import Bad, Figures, ImportedEvent, Money, Target
from mauve.imports.run import FORMATS, Source
from mauve.maintenance.errors import MaintenanceRefusedError

NOW_MS = 1_800_000_000_000
COLUMNS = {"name": "event", "at": "when"}
TARGET = Target("proj_1", "org_1", Environment.LIVE, NOW_MS, number=7, columns=COLUMNS, times="utc")
LINE = b'{"name":"view","at":1700000000000}\n'
MONEY = {"name": "payment", "id": "p1", "at": 1_700_000_000_000}


def items_of(path, format_="events"):
    with opened(path) as file:
        return list(FORMATS[format_].read(file, TARGET))


@pytest.fixture
def read(tmp_path):
    """Read content as a file of a format."""

    def read_content(content, format_="events", name="file"):
        path = tmp_path / name
        path.write_bytes(content)
        return items_of(path, format_)

    return read_content


def refusal(call, *arguments):
    with pytest.raises(MaintenanceRefusedError) as caught:
        call(*arguments)
    return str(caught.value)


@pytest.mark.parametrize("format_", ["events", "csv", "umami", "posthog", "plausible"])
def test_a_compressed_line_without_end_takes_little_memory(tmp_path, format_):
    path = tmp_path / "bomb.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(64):
            file.write(b"x" * 1024 * 1024)
    tracemalloc.start()
    with contextlib.suppress(MaintenanceRefusedError):
        assert all(isinstance(item, Bad) for item in items_of(path, format_))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * LINE_BYTES_MAX


def test_a_row_of_endless_quoted_lines_is_refused(read):
    cells = b"event,when\n" + b'"a\n",' * LINE_BYTES_MAX
    assert "more than" in refusal(read, cells, "csv")


def test_quotes_that_are_not_closed_swallow_no_rows(read):
    assert "check its quotes" in refusal(
        read, b'event,when\nview,2024-01-01\n"view,2024-01-02\nview,2024-01-03\n', "csv"
    )


def test_a_mark_of_utf8_and_ends_of_windows_are_read(read):
    (event,) = read(b"\xef\xbb\xbf" + LINE.replace(b"\n", b"\r\n"))
    assert isinstance(event, ImportedEvent)
    (row,) = read(b"\xef\xbb\xbfevent,when\r\nview,2024-01-01 00:00:00.123\r\n", "csv")
    assert (row.name, row.at) == ("view", 1_704_067_200_123)
    (packed,) = read(gzip.compress(b"\xef\xbb\xbf" + LINE), name="marked.gz")
    assert isinstance(packed, ImportedEvent)
    invoice = {"object": "invoice", "status": "open"}
    assert len(read(b"\xef\xbb\xbf" + json.dumps([invoice, invoice]).encode(), "stripe")) == 2


def test_other_encodings_are_refused_with_the_way_to_convert_them(read):
    assert "iconv" in refusal(read, LINE.decode().encode("utf-16"))
    assert "after row 1" in refusal(read, "event,when\nview,2024-01-01\nmüde,2024-01-01\n".encode("latin-1"), "csv")
    (bad,) = read('{"name":"müde","at":1}\n'.encode("latin-1"))
    assert isinstance(bad, Bad)


def test_nul_bytes_are_data_or_a_bad_row(read):
    (escaped, raw) = read(b'{"name":"a\\u0000b","at":1}\n{"name":"a\0b","at":1}\n')
    assert (escaped.name, isinstance(raw, Bad)) == ("a\0b", True)


def test_a_file_without_a_header_is_refused(read):
    assert "no header" in refusal(read, b"", "csv")
    assert "no header" in refusal(read, b"\nevent,when\nview,2024-01-01\n", "csv")


def test_a_column_that_is_needed_may_not_be_there_twice(read):
    assert "several columns 'when'" in refusal(read, b"event,when,when\nview,2024-01-01,2025-01-01\n", "csv")
    assert "several columns 'date'" in refusal(read, b"date,date,visitors\n2024-01-01,2024-01-01,3\n", "plausible")
    (row,) = read(b"event,when,other,other\nview,2024-01-01,1,2\n", "csv")
    assert row.name == "view"


def test_damaged_and_encrypted_archives_are_refused(read, tmp_path):
    whole = gzip.compress(LINE * 1000)
    for content in (whole[:-20], whole[:40] + b"\xff" * 20 + whole[60:]):
        assert "make it again" in refusal(read, content, "events", "damaged.gz")
    table = io.BytesIO()
    with zipfile.ZipFile(table, "w") as archive:
        archive.writestr("imported_visitors.csv", b"\xef\xbb\xbfdate,visitors\n2024-01-01,3\n")
    (figures,) = read(table.getvalue(), "plausible")
    assert isinstance(figures, Figures)
    encrypted = bytearray(table.getvalue())
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        encrypted[encrypted.index(mark) + place] |= 1
    assert "export it again" in refusal(read, bytes(encrypted), "plausible")


@pytest.mark.parametrize(
    "at",
    ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "1969-12-31T23:59:59Z", 10**30, -1, 1e300, "", None],
    ids=str,
)
def test_a_time_that_no_history_has_is_a_bad_row(read, at):
    for item in ({"name": "view", "at": at}, {**MONEY, "at": at, "props": {"amount": 1, "currency": "eur"}}):
        (bad,) = read(json.dumps(item).encode())
        assert isinstance(bad, Bad)
    (row,) = read(f"event,when\nview,{at}\n".encode(), "csv")
    assert isinstance(row, Bad)
    version = {"kind": "subscription", "id": "s", "status": "active", "mrr": 1, "currency": "eur", "at": at}
    (bad,) = read(json.dumps(version).encode())
    assert isinstance(bad, Bad)


def test_an_amount_that_is_not_of_whole_minor_units_is_a_bad_row(read):
    for amount in (-1, 19.99, "1999", 10**20, True, None, 1e300):
        (bad,) = read(json.dumps(MONEY | {"props": {"amount": amount, "currency": "eur"}}).encode())
        assert isinstance(bad, Bad), amount
    (bad,) = read(json.dumps(MONEY | {"props": {"amount": 1, "currency": "zzz"}}).encode())
    assert isinstance(bad, Bad)
    (money,) = read(json.dumps(MONEY | {"props": {"amount": 1, "currency": "eur"}}).encode())
    assert isinstance(money, Money)


def test_a_file_that_changes_and_one_that_cannot_be_read_twice_are_refused(tmp_path):
    path = tmp_path / "growing.jsonl"
    path.write_bytes(LINE)
    source = Source(path, "events", Target("proj_1", "org_1", Environment.LIVE, NOW_MS))
    seen = source.state
    source.check_same(seen, None)
    path.write_bytes(LINE * 2)
    assert "was changed while it was read" in refusal(source.check_same, seen, None)
    device = Source(tmp_path / "absent", "events", source.target)
    assert "save it as a file" in refusal(device.check)
