"""A newer release migrates PostgreSQL while machines of this one run, and while they start."""

import secrets
import threading

import httpx2 as httpx
import pytest
import sqlalchemy as sa
from structlog.testing import capture_logs

from mauve.stores import UnsupportedServerError
from mauve.stores.sql import postgresql
from mauve.stores.sql.database import Database
from mauve.stores.sql.migrate import CATALOG, LEDGER, current_revision, migrate, newest_revision, program_name
from support.migrations import BREAKING, BREAKING_ON_POSTGRESQL, HARMLESS, broken_by, planted
from support.service import (
    PATIENCE_S,
    SERVERS,
    bearer,
    eventually,
    mauve,
    mauve_json,
    post_events,
    running,
    token_for,
    until_loaded,
)

REFUSED = BREAKING | BREAKING_ON_POSTGRESQL
EXPANDS = "; ".join(HARMLESS[name] for name in ("a new table", "a column that may be null", "a column with a default"))


@pytest.fixture
def opened(postgres):
    """Return how to open a schema of a database, by its URL, as a release with some chain would."""
    databases = []

    def open_(url, chain):
        database = Database(
            sa.make_url(url), PATIENCE_S, schema=chain.name, statement_s=PATIENCE_S, program=program_name(chain)
        )
        databases.append(database)
        return database

    yield open_
    for database in databases:
        database.close()


@pytest.fixture
def url(postgres):
    url = postgres.create(f"own_{secrets.token_hex(8)}")
    yield url
    postgres.drop(url)


@pytest.mark.parametrize("chain", [CATALOG, LEDGER], ids=lambda chain: chain.name)
def test_the_migrations_since_the_last_release_do_not_break_it(opened, url, chain):
    assert broken_by(opened(url, chain), chain) == []


@pytest.mark.parametrize("body", HARMLESS.values(), ids=HARMLESS)
def test_a_migration_may_add(opened, url, tmp_path, body):
    assert broken_by(opened(url, CATALOG), planted(CATALOG, tmp_path, body)) == []


@pytest.mark.parametrize(("body", "problem"), REFUSED.values(), ids=REFUSED)
def test_a_migration_that_breaks_the_last_release_is_refused(opened, url, tmp_path, body, problem):
    problems = broken_by(opened(url, CATALOG), planted(CATALOG, tmp_path, body))
    assert any(problem in each for each in problems), problems


def works(service, token):
    """Return whether every plane of a service answers; store one event."""
    created = httpx.post(f"{service.url}/v1/apps", json={"name": "App"}, headers=bearer(token), timeout=PATIENCE_S)
    assert created.status_code == 201, created.text
    key = created.json()["sk_key"]
    eventually(lambda: post_events(service.ingest_url, key) == 202)
    until_loaded(service)
    read = httpx.get(f"{service.url}/v1/metrics/event_count?name=seen", headers=bearer(key), timeout=PATIENCE_S)
    return [row["count"] for row in read.json()["data"]] == [1]


def test_an_older_release_goes_on_with_tables_that_suit_it_and_refuses_others(on_postgres, opened, tmp_path):
    data = on_postgres()
    url = SERVERS[data]["MAUVE_DATABASE_URL"]
    newer = planted(CATALOG, tmp_path / "newer", EXPANDS)
    dropping = BREAKING["a column is dropped"][0]
    newest = planted(newer, tmp_path / "newest", dropping, compatible_from="9001", revision="9002")
    with running(data, "--workers", "1") as service:
        token = token_for(data)
        assert works(service, token)
        migrate(opened(url, newer), newer)
        assert current_revision(opened(url, newer), newer) == "9001"
        assert works(service, token), "it goes on"
        findings = {finding["name"]: finding for finding in mauve_json(data, "doctor")["checks"]}
        assert "revision 9001" in findings["catalog"]["detail"]
    with running(data, "--workers", "1") as service:
        assert works(service, token), "it starts"
        with pytest.raises(UnsupportedServerError, match=r"runs a release that is too old .* stop or upgrade it first"):
            migrate(opened(url, newest), newest)
        assert works(service, token), "nothing was changed"
    migrate(opened(url, newest), newest)
    for arguments in (("serve", "--port", "0", "--ingest-port", "0"), ("org", "list")):
        done = mauve(data, *arguments)
        assert done.returncode == 1, done.stderr
        assert "the catalog at MAUVE_DATABASE_URL was migrated to revision 9002 by a newer release" in done.stderr
        assert done.stderr.count("\n") == 1, "one sentence"


def test_one_machine_migrates_and_the_others_wait_and_say_so(opened, url, monkeypatch):
    monkeypatch.setattr(postgresql, "LOCK_LOGGED_EVERY_S", 0.0)
    monkeypatch.setattr(postgresql, "LOCK_POLL_S", 0.01)
    first, second = opened(url, LEDGER), opened(url, LEDGER)
    with capture_logs() as logged:
        with first.migrating():
            waiting = threading.Thread(target=migrate, args=[second, LEDGER])
            waiting.start()
            eventually(lambda: any(line["event"] == "waiting_for_migration" for line in list(logged)))
        waiting.join(PATIENCE_S)
    assert current_revision(first, LEDGER) == newest_revision(LEDGER)


def test_a_release_that_waited_for_a_newer_one_does_not_touch_its_tables(opened, url, tmp_path, monkeypatch):
    monkeypatch.setattr(postgresql, "LOCK_POLL_S", 0.01)
    newer = planted(CATALOG, tmp_path, EXPANDS)
    migrate(opened(url, newer), newer)
    migrate(opened(url, CATALOG), CATALOG)
    assert current_revision(opened(url, CATALOG), CATALOG) == "9001"


def test_a_table_in_use_by_a_long_query_is_not_waited_for_forever(opened, url, tmp_path, monkeypatch):
    """Every other statement would wait for the migration, and so for the query."""
    monkeypatch.setattr(postgresql, "TABLE_LOCK_S_MAX", 1)
    migrate(opened(url, CATALOG), CATALOG)
    newer = planted(CATALOG, tmp_path, HARMLESS["a column that may be null"])
    with opened(url, CATALOG).reading() as reader:
        reader.exec_driver_sql("SELECT count(*) FROM keys")
        with pytest.raises(UnsupportedServerError, match=r"could not be migrated .*lock timeout.*: a long query or"):
            migrate(opened(url, newer), newer)
    migrate(opened(url, newer), newer)


def test_a_failure_of_another_kind_is_not_blamed_on_a_long_query(opened, url, tmp_path):
    migrate(opened(url, CATALOG), CATALOG)
    newer = planted(CATALOG, tmp_path, 'op.execute("SELECT 1 / 0")')
    with pytest.raises(UnsupportedServerError, match=r"could not be migrated \(division by zero\): they are unchanged"):
        migrate(opened(url, newer), newer)
