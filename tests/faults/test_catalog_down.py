"""When the catalog is down, the control plane returns 502, the dashboard asks to retry, and the rest keeps working.

Proves: ingest-alone, readiness, catalog-down.
"""

import dataclasses
import os
import sqlite3
import threading

import pytest

from mauve.access.sessions import SEEN_EVERY_MS, begin_session
from mauve.control import people
from mauve.core.user import Role
from mauve.stores import StoreUnavailableError
from mauve.stores.sql.database import Database, sqlite_url
from mauve.wiring import bootstrap
from mauve.wiring.paths import catalog_path
from support.browser import PASSWORD, Browser, cookies_of
from support.service import PATIENCE_S, bearer


@pytest.fixture(autouse=True)
def _short_catalog_timeout(monkeypatch):
    """Make the database time out long before the request, however slow the machine is."""

    def opened(settings):
        return Database(sqlite_url(catalog_path(settings.data)), busy_timeout_s=0.2)

    monkeypatch.setattr(bootstrap, "open_catalog_database", opened)


@pytest.fixture
def app(api):
    return api.post("/v1/apps", json={"name": "An app"}).json()


@pytest.fixture
def locked_catalog(settings):
    """Hold the write lock, as another process would."""
    connection = sqlite3.connect(settings.data / "catalog.db", isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    yield
    connection.execute("ROLLBACK")
    connection.close()


def assert_is_502(reply):
    assert reply.status_code == 502
    assert reply.json()["error"]["code"] == "upstream_unavailable"
    assert "retry" in reply.json()["error"]["message"]


def test_a_write_that_times_out_is_502_and_changes_nothing(api, app, locked_catalog):
    assert_is_502(api.post("/v1/apps", json={"name": "Never"}))
    assert_is_502(api.patch(f"/v1/apps/{app['app_id']}", json={"name": "Never"}))
    assert_is_502(api.post(f"/v1/apps/{app['app_id']}/keys", json={"kind": "sk"}))
    assert_is_502(api.put(f"/v1/apps/{app['app_id']}/webhooks/biller_a", json={"secret": "s"}))
    assert [listed["name"] for listed in api.get("/v1/apps").json()] == ["An app"]


def test_reads_work_while_another_process_writes(api, app, locked_catalog):
    assert api.get("/v1/apps").status_code == 200


def test_events_and_payments_are_accepted_while_the_catalog_is_missing(client, app, settings):
    catalog_path(settings.data).write_bytes(b"")
    batch = [{"name": "view"}, {"name": "payment", "id": "1", "props": {"amount": 1, "currency": "eur"}}]
    for items in (batch, batch[:1]):
        reply = client.post("/v1/events", json=items, headers=bearer(app["sk_key"]))
        assert (reply.status_code, reply.json()["accepted"]) == (202, len(items))


def test_an_unavailable_catalog_is_502_for_every_operation(client, token, parts, monkeypatch):
    def down(_lookup_id):
        raise StoreUnavailableError("down")

    monkeypatch.setattr(type(parts.catalog.tokens), "find", lambda self, lookup_id: down(lookup_id))
    headers = {"authorization": f"Bearer {token}"}
    for method, path in [
        ("GET", "/v1/apps"),
        ("POST", "/v1/apps"),
        ("GET", "/v1/apps/x"),
        ("DELETE", "/v1/apps/x/keys/y"),
    ]:
        assert_is_502(client.request(method, path, headers=headers))
    assert client.get("/v1/apps").status_code == 401, "a missing credential is refused without the catalog"
    assert client.get("/healthz").status_code == 200
    assert client.post("/v1/events", json=[]).status_code == 401


class TestHanging:
    @pytest.fixture
    def settings(self, settings):
        return dataclasses.replace(settings, catalog_timeout_s=1.0)

    def test_a_hung_catalog_is_502_while_it_hangs(self, client, token, parts, monkeypatch):
        released = threading.Event()
        monkeypatch.setattr(type(parts.catalog.tokens), "find", lambda self, lookup_id: released.wait(PATIENCE_S))
        assert_is_502(client.get("/v1/apps", headers={"authorization": f"Bearer {token}"}))
        assert not released.is_set()
        released.set()


def test_an_unexpected_failure_is_502_and_not_500(client, token, parts, monkeypatch):
    def broken(_self, lookup_id):
        raise ZeroDivisionError(lookup_id)

    monkeypatch.setattr(type(parts.catalog.tokens), "find", broken)
    assert_is_502(client.get("/v1/apps", headers={"authorization": f"Bearer {token}"}))


def test_readiness_reports_an_unreachable_catalog(client, parts, monkeypatch):
    def down(_self):
        raise StoreUnavailableError("down")

    monkeypatch.setattr(type(parts.catalog.installation), "ping", down)
    reply = client.get("/readyz")
    assert (reply.status_code, reply.json()["engines"]["catalog"]) == (503, "unreachable")


def test_readiness_reports_an_unreachable_ledger(client, settings):
    os.truncate(settings.data / "ledger.db", 0)
    reply = client.get("/readyz")
    assert (reply.status_code, reply.json()["engines"]["ledger"]) == (503, "unreachable")


def test_it_recovers_without_a_restart(api, settings):
    connection = sqlite3.connect(settings.data / "catalog.db", isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    assert_is_502(api.post("/v1/apps", json={"name": "Later"}))
    connection.execute("ROLLBACK")
    connection.close()
    assert api.post("/v1/apps", json={"name": "Later"}).status_code == 201


class TestDashboard:
    @pytest.fixture
    def viewer(self, client, parts, organization, clock, settings):
        user, _ = people.create_user(parts, organization.org_id, "a@example.com", Role.OWNER)
        secret = begin_session(parts.catalog.sessions, user.user_id, "test", clock.now_ms(), parts.randomness)
        browser = Browser(client)
        browser.cookies = cookies_of(settings, secret)
        return browser

    def test_pages_work_while_another_process_writes(self, viewer, clock, locked_catalog):
        clock.advance(SEEN_EVERY_MS)
        assert "No apps yet" in viewer.open("/apps").text

    def test_a_change_that_times_out_is_reported_and_not_applied(self, viewer, parts, organization, locked_catalog):
        reply = viewer.send("/organization", {"name": "Never"})
        assert reply.status_code == 503
        assert parts.catalog.organizations.find(organization.org_id).name == "Acme"

    def test_a_change_that_was_applied_is_reported_as_applied(self, viewer, parts, monkeypatch):
        def down(_self, _session, _digest):
            raise StoreUnavailableError("down")

        user = people.find_account(parts, "a@example.com")
        link = people.renew_link(parts, user).path.reveal()
        with monkeypatch.context() as patch:
            patch.setattr(type(parts.catalog.sessions), "begin", down)
            reply = viewer.send(link, {"password": PASSWORD})
        assert reply.status_code == 503
        assert "Your change was made" in reply.text
        assert viewer.sign_in("a@example.com").status_code == 200

    @pytest.mark.parametrize("failure", [StoreUnavailableError("down"), ZeroDivisionError("a bug")], ids=repr)
    def test_a_failed_page_is_still_a_page(self, viewer, parts, monkeypatch, failure):
        def fail(_self, _digest):
            raise failure

        monkeypatch.setattr(type(parts.catalog.sessions), "find", fail)
        reply = viewer.open("/apps")
        assert (reply.status_code, reply.headers["cache-control"]) == (503, "no-store")
        assert str(failure) not in reply.text
        assert viewer.open("/signin").status_code == 503
