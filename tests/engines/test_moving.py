"""Move an installation from files to servers: every row and every number arrives, however often it is killed.

Proves: move.
"""

import base64
import os
import secrets
import shutil
import signal
import subprocess
import time
from contextlib import closing

import httpx2 as httpx
import pytest
import sqlalchemy as sa

from mauve.stores.ledger.schema import metadata, payments, subscription_versions
from mauve.stores.ledger.writer import LedgerWriter
from mauve.stores.sql.copy import copy_tables, count_rows
from mauve.stores.sql.database import Database, sqlite_url
from mauve.stores.sql.migrate import LEDGER, migrate
from support.ledger_entries import a_payment, a_version
from support.service import (
    MAUVE,
    PATIENCE_S,
    SERVERS,
    bearer,
    clean_environment,
    eventually,
    mauve,
    mauve_json,
    running,
)

from mauve.stores.ledger import Entry  # isort: skip

READS = ("mau", "dau", "signups", "revenue", "volume", "mrr", "mrr_history?date_from=2020-01-01", "event_names")


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """An embedded installation with history, a token, and its numbers: each test gets a copy."""
    data = tmp_path_factory.mktemp("original") / "data"
    SERVERS[data] = {"MAUVE_MASTER_KEY": base64.b64encode(secrets.token_bytes(32)).decode()}
    mauve_json(data, "demo", "--days", "20")
    (org, *_) = mauve_json(data, "org", "list")
    token = mauve_json(data, "token", "mint", "--org", org["org_id"], "--scopes", "apps:read,metrics:read")["token"]
    with running(data, "--workers", "1") as service:
        return data, token, every_number(service, token)


@pytest.fixture
def demo(original, tmp_path):
    data, token, numbers = original
    copied = shutil.copytree(data, tmp_path / "data", symlinks=True)
    copied.chmod(0o700)
    SERVERS[copied] = dict(SERVERS[data])
    return copied, token, numbers


def every_number(service, token):
    apps = httpx.get(f"{service.url}/v1/apps", headers=bearer(token)).json()
    projects = [app["public_id"] for app in (apps["apps"] if isinstance(apps, dict) else apps)]
    assert projects
    found = {}
    for project in projects:
        for metric in READS:
            path = f"{metric}{'&' if '?' in metric else '?'}project={project}"
            reply = httpx.get(f"{service.url}/v1/metrics/{path}", headers=bearer(token), timeout=PATIENCE_S)
            assert reply.status_code == 200, reply.text
            found[project, metric] = reply.json()["data"]
    return found


def test_a_moved_installation_gives_the_same_numbers(demo, postgres):
    data, token, before = demo
    with running(data, "--workers", "1"):
        refused = mauve(data, "move", MAUVE_DATABASE_URL=postgres.create("moved_while_running"))
        assert (refused.returncode, "stop it first" in refused.stderr) == (2, True), refused.stderr
    SERVERS[data]["MAUVE_DATABASE_URL"] = postgres.create("moved")
    done = mauve(data, "move")
    assert done.returncode == 0, done.stderr
    assert "copying the ledger" in done.stderr
    assert "metrics are equal" in done.stdout
    assert {path.name for path in data.glob("*.db.moved")} == {"catalog.db.moved", "ledger.db.moved"}
    with running(data, "--workers", "1") as service:
        assert every_number(service, token) == before
        app = httpx.get(f"{service.url}/v1/apps", headers=bearer(token))
        assert app.status_code == 200
    again = mauve(data, "move")
    assert (again.returncode, "nothing left to move" in again.stderr) == (2, True), again.stderr


def test_a_moved_warehouse_gives_the_same_numbers(demo, clickhouse):
    data, token, before = demo
    SERVERS[data]["MAUVE_WAREHOUSE_URL"] = clickhouse.create()
    refused = mauve(data, "serve", "--port", "0", "--ingest-port", "0")
    assert (refused.returncode, "mauve move" in refused.stderr) == (1, True), refused.stderr
    done = mauve(data, "move")
    assert done.returncode == 0, done.stderr
    assert "copying the warehouse" in done.stderr
    assert (data / "warehouse.moved").is_dir()
    assert not (data / "warehouse").exists()
    url = SERVERS[data]["MAUVE_WAREHOUSE_URL"]
    SERVERS[data]["MAUVE_WAREHOUSE_URL"] = f"{url}_mistyped"
    refused = mauve(data, "serve", "--port", "0", "--ingest-port", "0")
    assert (refused.returncode, "check its name" in refused.stderr) == (1, True), refused.stderr
    SERVERS[data]["MAUVE_WAREHOUSE_URL"] = url
    with running(data, "--workers", "1") as service:
        assert every_number(service, token) == before
        assert httpx.get(f"{service.url}/readyz").json()["engines"]["warehouse"] == "ok"


def test_a_move_of_everything_that_is_killed_continues(demo, postgres, clickhouse):
    data, token, before = demo
    SERVERS[data] |= {
        "MAUVE_DATABASE_URL": postgres.create("moved_with_events"),
        "MAUVE_WAREHOUSE_URL": clickhouse.create(),
    }
    for delay_s in (1.5, 2.0, 2.5, 3.0):
        moving = subprocess.Popen([str(MAUVE), "move", "--data", str(data)], env=clean_environment(data))
        time.sleep(delay_s)
        os.kill(moving.pid, signal.SIGKILL)
        moving.wait()
    if (data / "catalog.db").exists() or (data / "warehouse").exists():
        done = mauve(data, "move")
        assert done.returncode == 0, done.stderr
    with running(data, "--workers", "1") as service:
        assert every_number(service, token) == before


def test_a_warehouse_with_events_of_its_own_is_not_overwritten(demo, clickhouse):
    data, *_ = demo
    SERVERS[data]["MAUVE_WAREHOUSE_URL"] = clickhouse.create("moved_twice")
    assert mauve(data, "move").returncode == 0
    (data / "warehouse.moved").rename(data / "warehouse")
    count = clickhouse.query("SELECT count() FROM events", "moved_twice")
    done = mauve(data, "move")
    assert (done.returncode, "already holds events" in done.stderr) == (1, True), done.stderr
    assert clickhouse.query("SELECT count() FROM events", "moved_twice") == count


def test_a_day_that_was_copied_in_part_is_copied_again(demo, clickhouse):
    """As after a kill in the middle of a large day: the rest of the run must neither skip nor double it."""
    data, *_ = demo
    SERVERS[data]["MAUVE_WAREHOUSE_URL"] = clickhouse.create("moved_in_part")
    assert mauve(data, "move").returncode == 0
    count = clickhouse.query("SELECT count() FROM events", "moved_in_part")
    (data / "warehouse.moved").rename(data / "warehouse")
    for statement in (
        "CREATE TABLE mauve_copying (begun_at DateTime) ENGINE = MergeTree ORDER BY begun_at",
        "ALTER TABLE events DELETE WHERE cityHash64(seq) % 2 SETTINGS mutations_sync = 2",
        "ALTER TABLE seen DELETE WHERE 1 SETTINGS mutations_sync = 2",
    ):
        clickhouse.query(statement, "moved_in_part")
    done = mauve(data, "move")
    assert done.returncode == 0, done.stderr
    assert clickhouse.query("SELECT count() FROM events", "moved_in_part") == count


def test_a_move_that_is_killed_continues(demo, postgres):
    data, token, before = demo
    SERVERS[data]["MAUVE_DATABASE_URL"] = postgres.create("moved_in_pieces")
    for delay_s in (0.8, 1.1, 1.4):
        moving = subprocess.Popen([str(MAUVE), "move", "--data", str(data)], env=clean_environment(data))
        time.sleep(delay_s)
        os.kill(moving.pid, signal.SIGKILL)
        moving.wait()
    if (data / "catalog.db").exists():
        done = mauve(data, "move")
        assert done.returncode == 0, done.stderr
    with running(data, "--workers", "1") as service:
        assert every_number(service, token) == before


def test_a_database_that_holds_another_installation_is_refused(demo, postgres, on_postgres):
    data, *_ = demo
    other = on_postgres()
    mauve_json(other, "org", "create", "Acme")
    done = mauve(data, "move", MAUVE_DATABASE_URL=SERVERS[other]["MAUVE_DATABASE_URL"])
    assert (done.returncode, "name an empty one" in done.stderr) == (1, True), done.stderr
    assert (data / "catalog.db").exists()


def test_rows_of_every_kind_are_copied_exactly_and_numbering_continues(tmp_path, postgres):
    odd = "a\0b\\0 é'\"%"
    with (
        closing(Database(sqlite_url(tmp_path / "ledger.db"), PATIENCE_S)) as source,
        closing(Database(sa.make_url(postgres.create("copied_rows")), PATIENCE_S)) as target,
    ):
        migrate(source, LEDGER)
        migrate(target, LEDGER)
        writer = LedgerWriter(source)
        writer.record([Entry([a_payment(f"{odd}{number}", user=odd, payload=b"\xff\0") for number in range(4_500)])])
        writer.record([Entry(subscriptions=[a_version(at=number, id=odd) for number in range(2_500)])])
        counts = count_rows(source, metadata.sorted_tables)
        assert counts["payments"] == 4_500
        for _ in range(2):  # The second time there is nothing left to copy.
            copy_tables(source, target, metadata.sorted_tables, lambda *_: None)
            assert count_rows(target, metadata.sorted_tables) == counts
        for table in (payments, subscription_versions):
            key = list(table.primary_key.columns)
            with source.reading() as tx, target.reading() as other:
                before, after = (
                    sorted(map(tuple, each.execute(sa.select(table).order_by(*key)))) for each in (tx, other)
                )
            assert before == after
        LedgerWriter(target).record([Entry(subscriptions=[a_version(at=9_999, id="new")])])
        assert eventually(lambda: count_rows(target, [subscription_versions])["subscription_versions"] == 2_501)
