"""Metrics from the real processes, during loading and after a restart.

Proves: lag.
"""

import itertools
import os
import signal
import sqlite3
from contextlib import closing
from datetime import date, timedelta

import httpx2 as httpx
import pytest

from mauve.wiring.paths import ledger_path
from support.service import bearer, eventually, running, token_for


@pytest.fixture
def data(tmp_path):
    return tmp_path / "data"


def read(service, metric, credential, **parameters):
    return httpx.get(f"{service.url}/v1/metrics/{metric}", params=parameters, headers=bearer(credential))


def test_events_are_soon_readable_and_still_after_a_restart(data):
    first_days = (date(2026, 1, 1) - timedelta(days=number) for number in itertools.count())
    with running(data, "--workers", "1") as service:
        token = token_for(data)
        app = httpx.post(f"{service.url}/v1/apps", json={"name": "An app"}, headers=bearer(token)).json()
        key = app["sk_key"]

        def mau():
            # A new question each time: an answer is kept for minutes.
            return read(service, "mau", key, date_from=str(next(first_days))).json()["data"]

        assert mau() == [{"mau": 0}]
        events = [
            {"name": "view", "user": "ann"},
            {"name": "payment", "id": "1", "props": {"amount": 5, "currency": "eur"}},
            {"name": "user_signup", "user": "bob"},
        ]
        assert httpx.post(f"{service.ingest_url}/v1/events", json=events, headers=bearer(key)).status_code == 202
        eventually(lambda: mau() == [{"mau": 2}])
        assert [row["revenue"] for row in read(service, "revenue", key).json()["data"]] == [5]
        by_token = read(service, "event_names", token, project=app["public_id"])
        assert by_token.json()["data"] == [{"name": "user_signup", "count": 1}, {"name": "view", "count": 1}]
        assert by_token.headers["x-cache"] == "miss"
        by_key = read(service, "event_names", key)
        assert (by_key.content, by_key.headers["x-cache"]) == (by_token.content, "hit")
    with running(data, "--workers", "1") as service:
        reply = read(service, "mau", key)
        assert (reply.json()["data"], reply.headers["x-cache"]) == ([{"mau": 2}], "miss")


def test_answers_read_while_records_wait_are_not_kept(data):
    """The core dies while acknowledged events wait. Its successor pins no answer that lacks them."""
    with running(data, "--workers", "1") as service:
        token = token_for(data)
        app = httpx.post(f"{service.url}/v1/apps", json={"name": "An app"}, headers=bearer(token)).json()
        key = app["sk_key"]
        eventually(lambda: read(service, "dau", key).status_code == 200)
        with closing(sqlite3.connect(ledger_path(data), isolation_level=None)) as ledger:
            ledger.execute("BEGIN IMMEDIATE")  # No range can be finished.
            events = [{"name": "view", "user": f"user-{number}"} for number in range(500)]
            assert httpx.post(f"{service.ingest_url}/v1/events", json=events, headers=bearer(key)).status_code == 202
            os.kill(service.child_pids()["core"], signal.SIGKILL)

            def first_read():
                try:
                    reply = read(service, "mau", key)
                except httpx.HTTPError:
                    return None
                return reply if reply.status_code == 200 else None

            assert eventually(first_read).headers["x-cache"] == "uncached"
            ledger.execute("ROLLBACK")

        def kept():
            reply = read(service, "mau", key)
            return reply if reply.headers["x-cache"] != "uncached" else None

        (row,) = eventually(kept).json()["data"]
        assert 490 <= row["mau"] <= 510
        assert read(service, "mau", key).headers["x-cache"] == "hit"
