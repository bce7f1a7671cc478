"""Plant secrets and call every route with valid and invalid input: each secret is shown only where it was created.

Proves: secrets.
"""

import base64
import itertools
import json
import re
import sqlite3
import stat
import time
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from urllib.parse import quote_plus

import httpx2 as httpx
import pytest

from mauve.control.routes import OPERATIONS
from mauve.dashboard.routes import MEMBER, PUBLIC
from mauve.metrics.registry import METRICS
from support.billing import sample, signed_a, signed_b
from support.browser import Browser
from support.service import EVERY_SCOPE, PATIENCE_S, bearer, eventually, mauve, running, two_free_ports

PASSWORD = "canary of a password 5b1f0c"
SECRET_A = "whsec_canaryA" + "7" * 24
SECRET_B = "whsec_" + base64.b64encode(b"canary of biller B, 32 bytes long").decode()
MASTER_KEY = base64.b64encode(b"canary of a master key, 32 bytes"[:32]).decode()
CHANNEL = "canary-of-the-address-of-a-channel-93ab7c2d"
SMTP_PASSWORD = "canary-of-the-password-of-smtp-e410aa97"
PART = 12  # characters: more of a secret than any mask shows


@dataclass
class World:
    """A running service, all its secrets, and all its replies so far."""

    service: object
    metrics_port: int
    client: httpx.Client
    cookie: str = ""  # the name of the session's
    secrets: dict[str, str] = field(default_factory=dict)
    made_by: dict[str, str] = field(default_factory=dict)  # secret → the only reply that may hold it
    replies: dict[str, str] = field(default_factory=dict)
    numbers: itertools.count = field(default_factory=itertools.count)

    def ask(self, method, path, *, base_url=None, makes=None, **options):
        """Make a request and keep the reply; `makes` names the secret in the reply, and its field."""
        self.client.cookies.clear()
        reply = self.client.request(method, (base_url or self.service.url) + path, **options)
        label = f"{next(self.numbers)} {method} {path}"
        self.remember(label, reply)
        if makes is not None:
            self.plant(makes[0], reply.json()[makes[1]], label)
        return reply

    def remember(self, label, reply):
        self.replies[label] = f"{reply.status_code} {dict(reply.headers)} {reply.text}"

    def plant(self, name, text, label=""):
        self.secrets[name] = text
        self.made_by[name] = label

    def leaks(self, name, text):
        """Return whether a large part of a secret is in the text, plain or URL-encoded."""
        secret = self.secrets[name]
        core = secret[len(secret) // 2 - PART // 2 :][:PART]
        return core in text or quote_plus(core) in text


class RecordingClient:
    """The browser's client, which keeps every reply."""

    def __init__(self, world):
        self._world = world
        self.cookies = world.client.cookies

    def request(self, method, path, **options):
        reply = self._world.client.request(method, path, **options)
        self._world.remember(f"{next(self._world.numbers)} {method} {path} (page)", reply)
        return reply


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    port = two_free_ports()
    data = tmp_path_factory.mktemp("canaries") / "data"
    environment = {
        "MAUVE_METRICS_PORT": str(port),
        "MAUVE_MASTER_KEY": MASTER_KEY,
        "MAUVE_SMTP_URL": f"smtp://ann%40example.com:{SMTP_PASSWORD}@127.0.0.1:9",
        "MAUVE_ALERTS_ALLOW_PRIVATE": "1",
    }
    with (
        running(data, "--workers", "1", environment=environment) as service,
        httpx.Client(base_url=service.url) as client,
    ):
        world = World(service, port, client)
        _use_everything(world)
        yield world


def _use_everything(world):
    world.plant("master key", MASTER_KEY)
    world.plant("password", PASSWORD)
    world.plant("secret of biller A", SECRET_A)
    world.plant("secret of biller B", SECRET_B)
    world.plant("address of a channel", CHANNEL)
    world.plant("password of SMTP", SMTP_PASSWORD)
    world.plant("set-up link", world.service.setup_link.rpartition("/")[2])
    browser = Browser(RecordingClient(world))
    _create_an_organization(world, browser)
    _as_a_client(world)
    _as_a_member(world, browser)
    _as_an_attacker(world)
    assert not any(text.startswith("5") for text in world.replies.values())
    _while_a_store_is_down(world)


def _create_an_organization(world, browser):
    form = {"organization": "Acme", "email": "ann@example.com", "password": PASSWORD}
    browser.send("/setup/" + world.secrets["set-up link"], form)
    ((world.cookie, session),) = browser.cookies.items()
    world.plant("session", session)
    org = _operator(world, "org", "list")[0]["org_id"]
    world.plant("token", _operator(world, "token", "mint", "--org", org, "--scopes", EVERY_SCOPE)["token"])


def _operator(world, *command):
    done = mauve(world.service.data, *command, "--json", MAUVE_MASTER_KEY=MASTER_KEY)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _as_a_client(world):
    """Use every plane as intended."""
    token = bearer(world.secrets["token"])
    app = world.ask("POST", "/v1/apps", json={"name": "App"}, headers=token, makes=("server key", "sk_key")).json()
    path = f"/v1/apps/{app['app_id']}"
    makes = ("publishable key", "key")
    minted = world.ask("POST", f"{path}/keys", json={"kind": "pk"}, headers=token, makes=makes).json()
    for provider, secret in (("biller_a", SECRET_A), ("biller_b", SECRET_B)):
        assert world.ask("PUT", f"{path}/webhooks/{provider}", json={"secret": secret}, headers=token).is_success
    for method, where in (("GET", "/v1/apps"), ("GET", path), ("GET", f"{path}/keys"), ("PATCH", path)):
        world.ask(method, where, headers=token, json={"type": "library"} if method == "PATCH" else None)
    key = bearer(world.secrets["server key"])
    for base_url in (world.service.url, world.service.ingest_url):
        eventually(
            lambda base_url=base_url: (
                world.ask("POST", "/v1/events", base_url=base_url, json={"name": "x"}, headers=key).is_success
            )
        )
        world.ask("POST", "/v1/objects", base_url=base_url, json=[{"type": "subscription"}], headers=key)
        for provider, sign, secret in (("biller_a", signed_a, SECRET_A), ("biller_b", signed_b, SECRET_B)):
            body = json.dumps(sample("stripe_invoice_paid_basic")).encode()
            headers = {"content-type": "application/json", **sign(body, secret, at=int(time.time()))}
            where = f"/v1/webhooks/{provider}/{app['public_id']}"
            assert world.ask("POST", where, base_url=base_url, content=body, headers=headers).status_code == 200
    for metric in METRICS:
        world.ask("GET", f"/v1/metrics/{metric}?name=x", headers=key)
        world.ask("GET", f"/v1/metrics/{metric}?name=x&project={app['public_id']}", headers=token)
    world.ask("DELETE", f"{path}/keys/{minted['key_id']}", headers=token)
    for number in (0, 1):
        world.ask("GET", "/metrics", base_url=f"http://127.0.0.1:{world.metrics_port + number}")


def _as_a_member(world, browser):
    """Open every page and send every form, with valid and invalid values."""
    token = bearer(world.secrets["token"])
    app_id = world.client.get("/v1/apps", headers=token).json()[0]["app_id"]
    for action in MEMBER:
        if "signout" not in action.path:
            names = {"app_id": app_id, "plane": "live", "provider": "biller_a", "metric": "mau"}
            path = re.sub(r"\{(\w+)\}", lambda found, names=names: names.get(found[1], f"{found[1]}_x"), action.path)
            secret_fields = {"secret": SECRET_A, "current": "wrong", "password": PASSWORD[:5], "again": PASSWORD}
            browser.ask(action.method, path, secret_fields if action.method == "POST" else None)
    browser.ask("POST", "/account/password", {"current": PASSWORD, "password": "short"})
    _send_alerts_in_vain(world, browser)
    browser.ask("POST", "/signin", {"email": "ann@example.com", "password": PASSWORD + "x"})


def _send_alerts_in_vain(world, browser):
    """Add a channel and send tests, which fail: the history says why."""
    form = {"kind": "webhook", "name": "Ops", "address": f"http://127.0.0.1:9/{CHANNEL}"}
    page = browser.ask("POST", "/alerts/channels", form).text
    world.plant("secret of a channel", re.search(r"whsec_[\w+/=]+", page)[0], list(world.replies)[-1])
    channel = re.search(r"/alerts/channels/(\w+)/test", browser.ask("GET", "/alerts").text)[1]
    for path in (f"/alerts/channels/{channel}/test", "/alerts/wishes/test"):
        assert browser.ask("POST", path).status_code == 303
    eventually(lambda: browser.ask("GET", "/alerts").text.count("badge warn") >= 2)


def _as_an_attacker(world):
    """Send every secret where it does not belong, on every port."""
    for name, secret in list(world.secrets.items()):
        wrong = {"authorization": f"Bearer {secret}x", "cookie": f"{world.cookie}={secret}x"}
        json_wrong = {**wrong, "content-type": "application/json"}
        for operation in OPERATIONS:
            path = operation.path.format(app_id="app_x", key_id="key_x", provider="biller_a")
            world.ask(operation.method, path, headers=wrong, content=json.dumps({"name": {secret: secret}}).encode())
        for base_url in (world.service.url, world.service.ingest_url):
            for path in ("/v1/events", "/v1/objects", "/v1/webhooks/biller_a/proj_x", f"/v1/webhooks/biller_a/{name}"):
                world.ask("POST", path, base_url=base_url, headers=json_wrong, content=b'{"name":')
        world.ask("GET", "/v1/metrics/mau", headers=wrong)
        for route in PUBLIC:
            path = re.sub("{[a-z]+}", "nothing", route.path)
            world.ask(route.method, path, headers=wrong, data={"password": secret})


def _while_a_store_is_down(world):
    """Make the service fail and log errors."""
    token, key = bearer(world.secrets["token"]), bearer(world.secrets["server key"])
    payment = {"name": "payment", "id": "p1", "props": {"amount": 1, "currency": "eur"}}
    with _without(world, "ledger.db", "payments"):
        base_url = world.service.ingest_url
        assert world.ask("POST", "/v1/events", base_url=base_url, json=payment, headers=key).status_code == 503
    with _without(world, "catalog.db", "apps"):
        assert world.ask("POST", "/v1/apps", json={"name": "App"}, headers=token).status_code == 502


@contextmanager
def _without(world, name, table):
    """Remove a table for a while, so that the store fails at once."""
    with closing(sqlite3.connect(world.service.data / name, timeout=PATIENCE_S)) as database:
        database.execute(f"ALTER TABLE {table} RENAME TO elsewhere")
        yield
        database.execute(f"ALTER TABLE elsewhere RENAME TO {table}")


def test_there_are_many_secrets_and_replies(world):
    assert len(world.secrets) == 12
    assert len(world.replies) > 250
    statuses = {text[:3] for text in world.replies.values()}
    assert {"200", "201", "202", "204", "303", "400", "401", "403", "404", "502", "503"} <= statuses


def test_no_reply_holds_a_secret_except_the_one_that_created_it(world):
    leaked = {
        (name, label) for name in world.secrets for label, text in world.replies.items() if world.leaks(name, text)
    }
    made = {(name, label) for name, label in world.made_by.items() if label}
    cookies = {(name, label) for name, label in leaked if name == "session" and "set-cookie" in world.replies[label]}
    assert len(made) == 3
    assert len(cookies) == 1
    assert leaked == made | cookies


def test_no_log_holds_a_secret(world):
    log = world.service.log()
    assert {"not_durable", "catalog_unavailable"} <= {json.loads(line)["event"] for line in log.splitlines()}
    assert [name for name in world.secrets if world.leaks(name, log)] == []


def test_no_file_holds_a_secret(world):
    """A stolen copy of the data directory is useless. The master key is in the environment here."""
    token = bearer(world.secrets["token"])
    eventually(lambda: world.client.get("/v1/apps", headers=token).json()[0]["first_event_at"])
    files = [path for path in world.service.data.rglob("*") if path.is_file()]
    texts = {path: path.read_bytes().decode("latin-1") for path in files}
    assert {"catalog.db", "ledger.db"} <= {path.name for path in files}
    assert any("/log/" in str(path) for path in files)
    assert any("ann@example.com" in text for text in texts.values()), "the search covers the data"
    assert [(name, str(path)) for name in world.secrets for path in files if world.leaks(name, texts[path])] == []


def test_the_files_are_private(world):
    data = world.service.data
    assert stat.S_IMODE(data.stat().st_mode) == 0o700
    below = list((data / "log").rglob("*"))
    assert below
    assert [path for path in below if stat.S_IMODE(path.stat().st_mode) & 0o077] == []
