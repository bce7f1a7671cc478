from dataclasses import replace

import pytest

from mauve.core.app import App, AppType, Ownership
from mauve.dashboard.pages.sheets import column_title, csv_from, slug_of

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


def test_text_is_never_a_formula_and_numbers_stay_numbers():
    cells = ["=1", "+1", "-1", "@a", "\ta", "\ra", "a=1", -5, None]
    (line,) = csv_from(["x"], [cells]).decode().split("\r\n", 1)[1:]
    assert line == "'=1,'+1,'-1,'@a,'\ta,\"'\ra\",a=1,-5,\r\n"
