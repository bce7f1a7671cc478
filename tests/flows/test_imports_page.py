"""The imports page of an app: where a part of its history came from."""

import re
import time

import pytest

from mauve.core.times import DAY_MS
from mauve.stores.imports import Figure, ImportChunk, ImportCounts, NewImport, rank_of
from mauve.wiring.maintenance import open_import_ledger
from support.ledger_entries import a_version


@pytest.fixture
def app(api):
    return api.post("/v1/apps", json={"name": "An app"}).json()


def text_of(reply):
    assert reply.status_code == 200
    return text_of_html(reply.text.partition("<main")[2])


def text_of_html(html):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))


def a_new_import(app, clock, format_, **fields):
    known = {
        "file": "some <file>",
        "digest": format_,
        "options": "",
        "first_day": "2024-01-01",
        "last_day": "2024-01-31",
    }
    more = {"is_approximate": False, "who": "root", "began_at": clock.now_ms()}
    return NewImport(project=app["public_id"], format=format_, **(known | more | fields))


def test_imports_are_listed_with_their_source_and_what_is_approximate(viewer, app, settings, clock):
    path = f"/apps/{app['app_id']}/imports"
    assert "Nothing was imported" in text_of(viewer.open(path))
    with open_import_ledger(settings) as ledger:
        number = ledger.begin(a_new_import(app, clock, "stripe", is_approximate=True)).number
        ledger.commit(number, ImportChunk(0, 5, ImportCounts(events=1234, subscriptions=2)))
        ledger.finish(number, clock.now_ms())
        other = ledger.begin(a_new_import(app, clock, "plausible")).number
        ledger.commit(other, ImportChunk(0, 1, ImportCounts(figures=1), figures=[Figure("2024-01-02", "visitors", 77)]))
    text = text_of(viewer.open(path))
    assert f"import-{number}" in text
    assert "stripe MRR approximate some &lt;file&gt; 2024-01-01 to 2024-01-31" in text
    assert "done" in text
    assert f"2024-01-02 visitors 77 plausible, import-{other}" in text
    assert f"{path}" in viewer.open(f"/apps/{app['app_id']}/events").text


def days_ago(clock, days):
    return time.strftime("%Y-%m-%d", time.gmtime(clock.now_ms() // 1000 - days * 86_400))


def import_subscription(ledger, app, clock):
    """Import a subscription that began 60 days ago; return the number of the import."""
    new = a_new_import(app, clock, "stripe", is_approximate=True, first_day=days_ago(clock, 60))
    number = ledger.begin(new).number
    began_us = (clock.now_ms() - 60 * DAY_MS) * 1000
    version = a_version(began_us, project=app["public_id"], rank=rank_of(number, 0, 0))
    ledger.commit(number, ImportChunk(0, 1, ImportCounts(subscriptions=1), subscriptions=[version]))
    ledger.finish(number, clock.now_ms())
    return number


def test_reconstructed_mrr_is_marked_wherever_it_is_shown(viewer, app, settings, parts, clock):
    """The mark links to the import, and is gone when it is undone or the period has none of its days."""
    address = f"/apps/{app['app_id']}"
    parts.catalog.apps.note_first_event(app["public_id"], clock.now_ms())  # as the loader's runner does
    with open_import_ledger(settings) as ledger:
        number = import_subscription(ledger, app, clock)
        mark = f"approximate {days_ago(clock, 60)} to {days_ago(clock, 0)}, import-{number}"
        chart = viewer.open(address).text.partition('id="chart-mrr_history')[2].partition("</section>")[0]
        assert mark in text_of_html(chart)
        assert f'href="{address}/imports"' in chart
        shown = text_of(viewer.open(address))
        assert shown.count(mark) == 2, "on the figure and on its chart"
        assert f"Between {days_ago(clock, 60)} and {days_ago(clock, 0)} it is approximate" in shown
        overview = viewer.open("/")
        assert mark in text_of(overview)
        assert f'href="{address}/imports"' in overview.text
        earlier = f"from={days_ago(clock, 90)}&to={days_ago(clock, 61)}"
        for path in (address, "/"):
            assert "approximate" not in text_of(viewer.open(f"{path}?{earlier}")), "before the first of its days"
        assert "approximate" not in text_of(viewer.open(f"{address}/subscriptions")), "that shows the present"
        ledger.begin_undo(number)
        ledger.finish_undo(number, clock.now_ms())
        for path in (address, "/"):
            assert "approximate" not in text_of(viewer.open(path))
