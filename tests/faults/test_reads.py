"""When a store cannot be read, the last answer is served and marked stale; ingest and other reads continue.

Proves: ingest-alone, slow-warehouse, catalog-down.
"""

import asyncio
import sqlite3
import threading
from dataclasses import replace
from datetime import date

import pytest

from mauve.core.times import DAY_MS
from mauve.core.window import Window
from mauve.metrics.questions import Question
from mauve.metrics.registry import METRICS
from mauve.query.answer_cache import AnswerCache, Freshness
from mauve.query.ask import ask
from mauve.stores.limits.read_meter import ReadCost, ReadLimits
from mauve.stores.warehouse import WarehouseUnavailableError
from mauve.stores.warehouse.warehouse_reader import WarehouseReader
from mauve.wiring.paths import catalog_path, ledger_path
from support.service import bearer

FIVE_MINUTES_MS = 300_000


class Faulty:
    """The real reader, with a switch to make it fail."""

    def __init__(self, reader):
        self._reader = reader
        self.fault = None
        self.reads = 0

    def __getattr__(self, name):
        read = getattr(self._reader, name)

        def read_unless_down(*arguments):
            self.reads += 1
            if self.fault is not None:
                self.fault()
            return read(*arguments)

        return read_unless_down

    def break_with(self, error):
        def fail():
            raise error

        self.fault = fail


@pytest.fixture
def read_warehouse(connection):
    return Faulty(WarehouseReader(lambda: connection))


@pytest.fixture
def key(api, load):
    load()
    return api.post("/v1/apps", json={"name": "An app"}).json()["sk_key"]


@pytest.fixture
def read(client, key):
    return lambda metric, **parameters: client.get(f"/v1/metrics/{metric}", params=parameters, headers=bearer(key))


@pytest.fixture
def send(client, key, load):
    def send_and_load(*events):
        reply = client.post("/v1/events", json=list(events), headers=bearer(key))
        load()
        return reply.status_code

    return send_and_load


@pytest.mark.parametrize("error", [WarehouseUnavailableError("down"), ZeroDivisionError("unforeseen")])
def test_while_the_warehouse_is_down_the_last_answer_is_served_and_no_new_ones(
    read, send, clock, read_warehouse, error
):
    send({"name": "view", "user": "ann"})
    fresh = read("mau")
    read_warehouse.break_with(error)
    assert read("mau").headers["x-cache"] == "hit"
    clock.advance(FIVE_MINUTES_MS + 65_999)
    stale = read("mau")
    assert (stale.status_code, stale.content) == (200, fresh.content)
    assert (stale.headers["x-cache"], stale.headers["x-cache-age"]) == ("stale", "365")

    unseen = read("dau")
    assert (unseen.status_code, unseen.json()["ok"]) == (503, False)
    assert "retry" in unseen.json()["error"]
    assert unseen.headers["retry-after"] == "1"
    assert read("revenue").status_code == 200, "money stands elsewhere"
    assert send({"name": "view", "user": "bob"}) == 202

    read_warehouse.fault = None
    again = read("mau")
    assert (again.json()["data"], again.headers["x-cache"]) == ([{"mau": 2}], "miss")
    assert "x-cache-age" not in again.headers


def test_a_stale_answer_is_served_at_any_age(read, send, clock, read_warehouse):
    send({"name": "view", "user": "ann"})
    window = {"date_from": "2027-01-01", "date_to": "2027-01-31"}
    read("mau", **window)
    read_warehouse.break_with(WarehouseUnavailableError("down"))
    clock.advance(400 * DAY_MS)
    stale = read("mau", **window)
    assert (stale.json()["data"], stale.headers["x-cache-age"]) == ([{"mau": 1}], str(400 * 86_400))


def test_a_failed_read_is_not_cached(read, read_warehouse):
    read_warehouse.break_with(WarehouseUnavailableError("down"))
    assert [read("mau").status_code for _ in range(3)] == [503] * 3
    read_warehouse.fault = None
    assert read("mau").headers["x-cache"] == "miss"


def test_a_throttled_read_is_refused_even_if_there_is_an_old_answer(read, clock, core, read_warehouse):
    read("mau")
    clock.advance(FIVE_MINUTES_MS)
    (org_id,) = core.query.keyring.organizations
    for _ in range(600):
        core.query.meter.take(org_id, ReadCost(), ReadLimits(600, 0, 0), clock.now_ms())
    assert read("mau").status_code == 429


def test_concurrent_equal_questions_cause_one_read(read, read_warehouse):
    gate = threading.Event()
    read_warehouse.fault = lambda: gate.wait(30)
    replies = []
    asking = [threading.Thread(target=lambda: replies.append(read("mau"))) for _ in range(10)]
    for thread in asking:
        thread.start()
    gate.set()
    for thread in asking:
        thread.join()
    assert {reply.json()["data"][0]["mau"] for reply in replies} == {0}
    assert read_warehouse.reads == 1


def test_while_the_ledger_is_gone_the_last_answer_is_served(read, send, clock, settings):
    send({"name": "payment", "id": "1", "props": {"amount": 5, "currency": "eur"}})
    fresh = read("revenue")
    connection = sqlite3.connect(ledger_path(settings.data), isolation_level=None)
    connection.execute("ALTER TABLE day_totals RENAME TO elsewhere")
    clock.advance(FIVE_MINUTES_MS)
    stale = read("revenue")
    assert (stale.content, stale.headers["x-cache"]) == (fresh.content, "stale")
    assert read("volume").status_code == 503
    assert read("mau").status_code == 200
    connection.execute("ALTER TABLE elsewhere RENAME TO day_totals")
    connection.close()
    assert read("volume").status_code == 200


def test_reads_continue_while_the_catalog_is_gone(client, read, settings, api):
    catalog_path(settings.data).write_bytes(b"")
    assert read("mau").status_code == 200


def test_an_answer_too_large_for_the_cache_is_served_uncached(core, client, load):
    load()
    cache = AnswerCache(answer_bytes_max=10)
    question = Question("proj_1", METRICS["mau"], Window(date.min, date.max))
    answers = [asyncio.run(ask(replace(core.query, cache=cache), question, lambda: None)) for _ in range(2)]
    assert [answer.freshness for answer in answers] == [Freshness.UNCACHED] * 2
