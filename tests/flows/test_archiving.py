"""Archive, restore and delete an app, while the service runs and while it does not.

Proves: deletion.
"""

import subprocess
import sys
import time
from contextlib import closing, contextmanager

import httpx2 as httpx
import pytest
import sqlalchemy as sa

from mauve.cli.app import wait_until_settled
from mauve.config import settings_from
from mauve.control import operator
from mauve.control.apps import archive_app, create_app, restore_app
from mauve.control.bodies import NewAppBody
from mauve.maintenance.erase import SETTLE_S
from mauve.stores.ledger.schema import arrivals, metadata
from mauve.wiring.bootstrap import control_parts
from mauve.wiring.databases import open_ledger_database
from support.billing import SECRET_A, signed_a
from support.clocks import ManualClock
from support.service import (
    MAUVE,
    bearer,
    clean_environment,
    eventually,
    mauve,
    mauve_json,
    running,
    stored_events,
    token_for,
)

NO_CACHE = {"MAUVE_READ_CACHE_SECONDS": "0"}
ITEMS = [
    {"name": "view", "user": "ann", "id": "1"},
    {"name": "payment", "id": "p1", "props": {"amount": 500, "currency": "eur"}},
]
SUBSCRIPTION = {"type": "subscription", "id": "s1", "status": "active", "mrr": 9, "currency": "eur"}
JSON = {"content-type": "application/json"}
DELETE_DATA = """
import sys
from mauve.config import settings_from
from mauve.server.admin_client import store_operations
with store_operations(settings_from({"MAUVE_DATA": sys.argv[1]})) as stores:
    assert stores.delete_projects(sys.argv[2:]).events == 1
"""


@pytest.fixture
def data(tmp_path):
    return tmp_path / "data"


class Caller:
    """A client of a running service, with a token of one organization."""

    def __init__(self, service):
        self.service = service
        self.token = bearer(token_for(service.data))

    def create(self, name):
        app = httpx.post(f"{self.service.url}/v1/apps", json={"name": name}, headers=self.token).json()
        secret = {"secret": SECRET_A}
        httpx.put(f"{self.service.url}/v1/apps/{app['app_id']}/webhooks/biller_a", json=secret, headers=self.token)
        return app

    def send(self, app, items=None, path="/v1/events"):
        url = f"{self.service.ingest_url}{path}"
        return httpx.post(url, json=ITEMS if items is None else items, headers=bearer(app["sk_key"])).status_code

    def read(self, app, metric="mau"):
        return httpx.get(f"{self.service.url}/v1/metrics/{metric}", headers=bearer(app["sk_key"]))

    def read_by_token(self, app):
        address = f"{self.service.url}/v1/metrics/mrr"
        return httpx.get(address, params={"project": app["public_id"]}, headers=self.token).status_code

    def deliver(self, app):
        url = f"{self.service.ingest_url}/v1/webhooks/biller_a/{app['public_id']}"
        return httpx.post(url, content=b"{}", headers=JSON | signed_a(b"{}", at=1)).status_code

    def listed(self):
        return [app["app_id"] for app in httpx.get(f"{self.service.url}/v1/apps", headers=self.token).json()]

    def get_app(self, app):
        return httpx.get(f"{self.service.url}/v1/apps/{app['app_id']}", headers=self.token).status_code


def test_an_archived_app_is_refused_on_every_port_and_restored_as_it_was(data):
    with running(data, "--workers", "1", environment=NO_CACHE) as service:
        caller = Caller(service)
        app, other = caller.create("Gone"), caller.create("Stays")
        assert caller.send(app) == 202
        eventually(lambda: caller.read(app).json().get("data") == [{"mau": 1}])

        mauve_json(data, "app", "archive", app["app_id"])
        eventually(lambda: caller.send(app) == 401)
        eventually(lambda: caller.read(app).status_code == 401)
        eventually(lambda: caller.deliver(app) == 404)
        eventually(lambda: caller.read_by_token(app) == 404)
        assert (caller.get_app(app), caller.listed()) == (404, [other["app_id"]])
        assert caller.send(other) == 202
        assert mauve(data, "key", "mint", "--app", app["app_id"], "--kind", "sk").returncode == 2
        org = mauve_json(data, "org", "list")[0]["org_id"]
        assert [each["name"] for each in mauve_json(data, "app", "list", "--org", org)] == ["Stays"]
        assert [each["name"] for each in mauve_json(data, "app", "list", "--org", org, "--archived")] == ["Gone"]
        (archived,) = mauve_json(data, "app", "list", "--org", org, "--archived")
        assert time.time() * 1000 >= archived["archived_at"] > 1_700_000_000_000
        assert "ARCHIVED" in mauve(data, "app", "list", "--org", org, "--archived").stdout

        mauve_json(data, "app", "restore", app["app_id"])
        eventually(lambda: caller.send(app) == 202)
        eventually(lambda: caller.read(app).json().get("data") == [{"mau": 1}])
        eventually(lambda: caller.deliver(app) == 401)  # known again, and the signature is old
        eventually(lambda: caller.read_by_token(app) == 200)
        assert caller.listed() == [app["app_id"], other["app_id"]]


def test_an_app_is_deleted_with_all_its_data_while_the_service_runs(data):
    with running(data, "--workers", "1", environment={"MAUVE_READ_CACHE_SECONDS": "1"}) as service:
        caller = Caller(service)
        app, other = caller.create("It's gone"), caller.create("Stays")
        for each in (app, other):
            assert caller.send(each) == 202
            assert caller.send(each, SUBSCRIPTION, "/v1/objects") == 202
            eventually(lambda each=each: caller.read(each).json().get("data") == [{"mau": 1}])
        archive_long_ago(data, app["app_id"])
        eventually(lambda: caller.send(app, []) == 401)

        wrong = mauve(data, "app", "delete", app["app_id"], "--name", "Stays")
        assert (wrong.returncode, wrong.stdout) == (2, "")
        assert "has a different name" in wrong.stderr
        deleted = mauve_json(data, "app", "delete", app["app_id"], "--name", "It's gone")
        assert deleted["events"] == 1
        assert (deleted["payments"], deleted["subscription_versions"]) == (1, 1)

        again = mauve(data, "app", "delete", app["app_id"], "--name", "It's gone")
        assert (again.returncode, "there is no app" in again.stderr) == (2, True)
        assert caller.send(app) == 401
        assert caller.deliver(app) == 404
        assert caller.read(other).json()["data"] == [{"mau": 1}]
        assert caller.read(other, "mrr").json()["data"] == [{"currency": "eur", "mrr": 9}]
    # Workers may still have noted the last use of a key: the command did not wait for them here.
    assert projects_in_the_ledger(data, without={"arrivals"}) == {other["public_id"]}
    assert {project for project, *_ in stored_events(data)} == {other["public_id"]}


def test_an_interrupted_deletion_is_finished_by_running_it_again(data):
    with running(data, environment=NO_CACHE) as service:
        caller = Caller(service)
        app = caller.create("Gone")
        assert caller.send(app) == 202
    with ledger_transaction(data) as tx:
        assert tx.execute(sa.select(arrivals.c.project)).scalars().all(), "the last uses of keys and counts go, too"
    # As if the command was killed after the data was deleted.
    archive_long_ago(data, app["app_id"])
    # In a separate process: the embedded engine opens only one path per process.
    subprocess.run([sys.executable, "-c", DELETE_DATA, str(data), app["public_id"]], check=True)
    assert projects_in_the_ledger(data) == set()
    with control_parts(settings_from({"MAUVE_DATA": str(data)})) as parts:
        assert operator.find_app(parts, app["app_id"]).is_archived
    assert mauve_json(data, "app", "delete", app["app_id"], "--name", "Gone")["events"] == 0
    assert projects_in_the_ledger(data) == set()
    with control_parts(settings_from({"MAUVE_DATA": str(data)})) as parts, pytest.raises(operator.RefusedError):
        operator.find_app(parts, app["app_id"])


def test_the_delete_command_waits_for_requests_that_began_before(data):
    with running(data, "--workers", "1", environment=NO_CACHE) as service:
        caller = Caller(service)
        app = caller.create("Gone")
        assert caller.send(app) == 202
        eventually(lambda: caller.read(app).json().get("data") == [{"mau": 1}])
        command = [str(MAUVE), "app", "delete", app["app_id"], "--name", "Gone", "--data", str(data)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=clean_environment(data)) as deleting:
            try:
                assert "waiting" in deleting.stderr.readline()
                assert deleting.poll() is None
            finally:
                deleting.kill()
    assert projects_in_the_ledger(data) == {app["public_id"]}
    assert len(stored_events(data)) == 1


@pytest.fixture
def app(parts, organization):
    return create_app(parts, organization.org_id, NewAppBody("Gone"))[0]


def test_the_wait_ends_once_no_request_from_before_can_be_in_progress(parts, clock, app):
    waits = []

    def sleep(seconds):
        waits.append(seconds)
        clock.advance(int(seconds * 1000))

    archive_app(parts, app)
    clock.advance(60_000)
    wait_until_settled(parts, app.app_id, sleep)
    assert waits == [SETTLE_S - 60]
    wait_until_settled(parts, app.app_id, sleep)
    assert waits == [SETTLE_S - 60]


def test_an_app_restored_during_its_deletion_is_kept(parts, app):
    archive_app(parts, app)
    with pytest.raises(operator.RefusedError, match="was restored: nothing was deleted"):
        wait_until_settled(parts, app.app_id, lambda _seconds: restore_app(parts, app))
    with pytest.raises(operator.RefusedError, match="was restored: run"):
        operator.forget_app(parts, app)
    archive_app(parts, app)
    operator.forget_app(parts, app)
    with pytest.raises(operator.RefusedError, match="there is no app"):
        operator.forget_app(parts, app)


def archive_long_ago(data, app_id):
    """Archive the app as if it happened years ago, so that the deletion need not wait."""
    with control_parts(settings_from({"MAUVE_DATA": str(data)}), ManualClock(1_000_000_000_000)) as parts:
        archive_app(parts, operator.find_app(parts, app_id))


@contextmanager
def ledger_transaction(data):
    with closing(open_ledger_database(settings_from({"MAUVE_DATA": str(data)}))) as database, database.reading() as tx:
        yield tx


def projects_in_the_ledger(data, without=frozenset()):
    with ledger_transaction(data) as tx:
        tables = [table for table in metadata.sorted_tables if "project" in table.c and table.name not in without]
        return {project for table in tables for (project,) in tx.execute(sa.select(table.c.project))}
