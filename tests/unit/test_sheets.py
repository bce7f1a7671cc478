import csv
import io
import re
from dataclasses import replace
from pathlib import Path

import pytest

from mauve.core.app import App, AppType, Ownership
from mauve.dashboard.pages import sheets
from mauve.dashboard.pages.sheets import column_title, csv_pieces, slug_of

APP = App("app_1", "org_1", "proj_1", None, "My app", Ownership.MINE, AppType.SAAS, None, False, False, 0)  # noqa: FBT003


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("My app", "my-app"),
        ("Söhne & Co.", "sohne-co"),
        ("../../etc/passwd", "etc-passwd"),
        ('a"; filename="b', "a-filename-b"),
        ("日本", "app_1"),
        ("!!!", "app_1"),
    ],
)
def test_a_file_is_named_in_plain_letters(name, slug):
    assert slug_of(replace(APP, name=name)) == slug


def test_columns_of_money_name_their_unit():
    assert [column_title(column) for column in ("day", "currency", "revenue", "volume", "mrr", "count")] == [
        *("day", "currency", "revenue_minor_units", "volume_minor_units", "mrr_minor_units", "count")
    ]


def rows_in(pieces):
    return list(csv.reader(io.StringIO(b"".join(pieces).decode(), newline="")))


def test_text_is_never_a_formula_and_numbers_stay_numbers():
    formulas = ["=1", "+1", "-1", "@a", "\ta", "\r=a", "\n=9", "  =1+7", "\uff1d1+1"]
    cells = [*formulas, "a=1", -5, None]
    (_, row) = rows_in(csv_pieces(["x"], [cells]))
    assert row == ["'=1", "'+1", "'-1", "'@a", "\ta", "'\r=a", "'\n=9", "'  =1+7", "'\uff1d1+1", "a=1", "-5", ""]


def test_every_text_is_quoted_so_that_another_separator_begins_no_cell():
    assert b"".join(csv_pieces(["x"], [["a;=1", 5]])) == b'"x"\r\n"a;=1",5\r\n'


@pytest.mark.parametrize("count", [0, 1, 499, 500, 501, 1_000, 1_001])
def test_a_file_comes_in_pieces_and_is_whole(count):
    pieces = list(csv_pieces(["n"], ([number] for number in range(count))))
    assert rows_in(pieces) == [["n"], *([str(number)] for number in range(count))]
    assert len(pieces) == 1 + -(-count // 500)


def test_the_documents_name_the_limit_of_a_file():
    text = (Path(__file__).parents[2] / "docs/metrics.md").read_text()
    assert re.findall(r"A file has at most ([\d,]+) rows", text) == [f"{sheets.ROWS_MAX:,}"]


def test_a_file_that_is_cut_says_so_in_its_last_line(monkeypatch):
    monkeypatch.setattr(sheets, "ROWS_MAX", 700)
    whole, cut = (rows_in(csv_pieces(["n"], ([number] for number in range(count)))) for count in (700, 701))
    assert whole[-1] == ["699"]
    assert cut == [*whole, ["cut here: choose a shorter period, or filter, for the rest"]]
