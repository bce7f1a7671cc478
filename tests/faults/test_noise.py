"""Send thousands of random requests to every route: none fails, and every accepted event is stored.

Proves: noise.
"""

import http.client
import json
import re
import socket
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, fields
from urllib.parse import urlencode

import httpx2 as httpx
import pytest

from mauve.control.routes import OPERATIONS
from mauve.dashboard.routes import MEMBER, PUBLIC
from mauve.metrics.registry import METRICS
from support.billing import SAMPLES, SECRET_A, SECRET_B, signed_a, signed_b
from support.browser import PASSWORD
from support.noise import Noise
from support.service import (
    PATIENCE_S,
    bearer,
    eventually,
    ledger_rows,
    mauve_json,
    running,
    stored_events,
    token_for,
    until_loaded,
)

REQUESTS, PROVEN = 5_000, 100_000
SENDERS = 4
SEED = 20261115
DELIVERIES = {
    "biller_a": [json.loads(path.read_text()) for path in sorted(SAMPLES.glob("stripe_*.json"))],
    "biller_b": [json.loads(path.read_text()) for path in sorted(SAMPLES.glob("polar_*.json"))],
}
OPERATIONS_BODY = {"name": "App", "type": "saas", "ownership": "mine", "kind": "pk", "secret": "whsec_x"}
FORM = {
    "name": "App",
    "type": "saas",
    "ownership": "mine",
    "choice": "pk_live",
    "secret": "whsec_x",
    "scopes": "apps:read",
    "email": "bo@example.com",
    "role": "viewer",
    "cap": "7",
    "organization": "Acme",
}
UNSENT = (
    "/signout",
    "/signout-everywhere",
    "/account/password",
)  # they end the session or hash a password


@dataclass
class Target:
    """A running service, credentials for it, and the results."""

    service: object
    noise: Noise
    token: str
    app: dict
    billed: dict
    cookie: str
    statuses: Counter = field(default_factory=Counter)
    accepted: Counter = field(default_factory=Counter)
    failures: list = field(default_factory=list)
    connections: dict = field(default_factory=dict)

    def ask(self, endpoint, method, path, body=b"", headers=None):
        """Send one request on a keep-alive connection; record a failure with all its details."""
        for _ in range(2):
            connection = self.connections.get(endpoint) or http.client.HTTPConnection(*endpoint, timeout=PATIENCE_S)
            self.connections[endpoint] = connection
            try:
                connection.request(method, path, body, headers or {})
                reply = connection.getresponse()
                status, content = reply.status, reply.read()
                break
            except (OSError, http.client.HTTPException):
                connection.close()  # The server may have closed it while idle.
        else:
            status, content = 0, b""
        self.statuses[path.split("?")[0].split("/")[1] or "/", status] += 1
        if status >= 500 or status == 0:
            self.failures.append((status, method, path, headers, body, content))
        return status, content


def address(url):
    host, port = url.removeprefix("http://").split(":")
    return host, int(port)


def filled_path(path, target):
    """Fill the parameters of a path, with known or unknown values."""
    known = {"app_id": target.app["app_id"], "provider": "biller_a", "plane": "live"}

    def value_for(match):
        name = match[1]
        return known[name] if name in known and target.noise.chance.random() < 0.7 else target.noise.escaped() or "x"

    return re.sub(r"\{(\w+)\}", value_for, path)


def ingest(target):
    noise, chance = target.noise, target.noise.chance
    stamp = f"{chance.getrandbits(60):x}"
    event = {
        "name": "view",
        "user": f"u{chance.randrange(50)}",
        "id": stamp,
        "at": "2026-11-15T03:20:00Z",
        "sent_at": 1_794_700_000_000,
        "props": {"plan": "pro", "count": 1, "beta": True},
    }
    props = {"amount": chance.randrange(2**40), "currency": "eur", "earned": True, "stamp": stamp}
    payment = {"name": "payment", "id": f"p{stamp}", "props": props}
    subscription = {"type": "subscription", "id": f"s{stamp}", "status": "active", "mrr": 5, "currency": "eur"}
    path = chance.choice(["/v1/events"] * 4 + ["/v1/objects"])
    items = [subscription] if path == "/v1/objects" else [event, payment, {"name": "user_signup", "user": "x"}]
    batch = noise.some_of(chance.choice([items, items[0], items + [event] * 20]))
    headers = {"content-type": noise.content_type(), **bearer(target.app["sk_key"])}
    if chance.random() < 0.05:
        headers["authorization"] = f"Bearer {noise.escaped()}"
    body, headers = noise.packed(noise.encoded(batch), headers)
    endpoint = address(chance.choice([target.service.url, target.service.ingest_url]))
    status, content = target.ask(endpoint, "POST", path, body, headers)
    if status == 202:
        target.accepted[path] += json.loads(content)["accepted"]


def deliver(target):
    noise, chance = target.noise, target.noise.chance
    provider = chance.choice(sorted(DELIVERIES))
    body = noise.encoded(noise.some_of(chance.choice(DELIVERIES[provider])))
    sign, secret = (signed_a, SECRET_A) if provider == "biller_a" else (signed_b, SECRET_B)
    headers = {"content-type": noise.content_type(), **sign(body, secret, at=int(time.time()))}
    if chance.random() < 0.1:
        name = chance.choice(sorted(headers))
        headers[name] = noise.damaged(headers[name].encode()).decode("latin-1").translate(_NO_CONTROLS)
    project = target.billed["public_id"] if chance.random() < 0.95 else noise.escaped()
    endpoint = address(chance.choice([target.service.url, target.service.ingest_url]))
    target.ask(endpoint, "POST", f"/v1/webhooks/{provider}/{project}", body, headers)


def control(target):
    noise, chance = target.noise, target.noise.chance
    operation = chance.choice(OPERATIONS)
    body = noise.encoded(noise.some_of(OPERATIONS_BODY))
    path = filled_path(operation.path, target)
    target.ask(address(target.service.url), operation.method, path, body, bearer(target.token))


def read(target):
    noise, chance = target.noise, target.noise.chance
    asked = {
        "project": target.app["public_id"],
        "name": "view",
        "date_from": "2026-11-01",
        "date_to": "2026-11-30",
    }
    metric = chance.choice(sorted(METRICS)) if chance.random() < 0.9 else noise.escaped()
    query = urlencode({name: str(value) for name, value in noise.some_of(asked).items()}, errors="replace")
    if chance.random() < 0.1:
        query += "&" + noise.damaged(query.encode()).hex()
    credential = chance.choice([target.token, target.app["sk_key"]])
    target.ask(address(target.service.url), "GET", f"/v1/metrics/{metric}?{query}", headers=bearer(credential))


def open_page(target):
    noise, chance = target.noise, target.noise.chance
    route = chance.choice([route for route in (*MEMBER, *PUBLIC) if route.path not in UNSENT])
    if (route.method, route.path) == ("POST", "/signin") and chance.random() < 0.9:
        return
    form = noise.some_of(FORM)
    body = urlencode(form, errors="replace", doseq=True).encode() if isinstance(form, dict) else noise.encoded(form)
    headers = {
        "accept": "text/html",
        "sec-fetch-site": "same-origin",
        "content-type": "application/x-www-form-urlencoded",
        "cookie": target.cookie,
    }
    body = noise.damaged(body) if chance.random() < 0.2 else body
    path = filled_path(route.path, target) + ("?" + noise.escaped() if chance.random() < 0.2 else "")
    target.ask(address(target.service.url), route.method, path, body if route.method == "POST" else b"", headers)


def send_damaged(target):
    """Send a badly damaged request, and read any reply."""
    noise, chance = target.noise, target.noise.chance
    head = (
        f"POST /v1/events HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {target.token[:20]}\r\n"
        "content-type: application/json\r\ncontent-length: 2\r\nconnection: close\r\n\r\n[]"
    )
    endpoint = address(chance.choice([target.service.url, target.service.ingest_url]))
    with closing(socket.create_connection(endpoint, timeout=PATIENCE_S)) as connection:
        connection.sendall(noise.damaged(head.encode()))
        connection.shutdown(socket.SHUT_WR)
        try:
            reply = connection.recv(4096)
        except OSError:
            reply = b""
    target.statuses["damaged", int(reply[9:12] or 0)] += 1
    if reply[9:10] == b"5":
        target.failures.append(("damaged", reply))


_NO_CONTROLS = dict.fromkeys((*range(32), 127), "?")
KINDS = [ingest] * 10 + [deliver] * 5 + [control, control, read, open_page, open_page, send_damaged]


@pytest.fixture(scope="module")
def target(tmp_path_factory, rounds):
    data = tmp_path_factory.mktemp("noise") / "data"
    seed = SEED if rounds(0, 1) == 0 else int(time.time())
    print("seed", seed)  # noqa: T201 - to reproduce a failure
    with running(data, "--workers", "1") as service:
        form = {"organization": "Pages", "email": "ann@example.com", "password": PASSWORD}
        headers = {"sec-fetch-site": "same-origin"}
        cookie = httpx.post(service.setup_link, data=form, headers=headers).headers["set-cookie"]
        org = mauve_json(data, "org", "create", "Acme")["org_id"]
        mauve_json(data, "org", "limits", org, "--reads-per-minute", "1000000", "--raw-scans", "1000000")
        token = token_for(data, org=org)
        with httpx.Client(base_url=service.url, headers=bearer(token)) as api:
            app, billed = (api.post("/v1/apps", json={"name": name}).json() for name in ("App", "Billed"))
            for provider, secret in (("biller_a", SECRET_A), ("biller_b", SECRET_B)):
                api.put(f"/v1/apps/{billed['app_id']}/webhooks/{provider}", json={"secret": secret})
        made = Target(service, Noise(seed), token, app, billed, cookie.partition(";")[0])
        eventually(lambda: made.ask(address(service.ingest_url), "GET", "/readyz")[0] == 200)
        yield made
        for connection in made.connections.values():
            connection.close()


def senders_for(target):
    """Return several concurrent senders, each with its own seed: most of the time is spent waiting for the disk."""
    own = {"statuses", "accepted", "failures", "connections"}
    shared = {each.name: getattr(target, each.name) for each in fields(target) if each.name not in own}
    return [Target(**shared | {"noise": Noise(target.noise.seed + number)}) for number in range(SENDERS)]


def send(sender, count):
    for _ in range(count):
        sender.noise.chance.choice(KINDS)(sender)
    for connection in sender.connections.values():
        connection.close()


@pytest.mark.prove
@pytest.mark.timeout(3_600)
def test_no_random_request_fails_and_every_accepted_event_is_stored(target, rounds):
    senders = senders_for(target)
    with ThreadPoolExecutor(SENDERS) as pool:
        list(pool.map(send, senders, [rounds(REQUESTS, PROVEN) // SENDERS] * SENDERS))
    for sender in senders:
        target.accepted += sender.accepted
        target.failures += sender.failures
    assert target.failures == [], f"seed {target.noise.seed}"
    data, project = target.service.data, target.app["public_id"]
    accepted = target.accepted["/v1/events"]
    assert min(accepted, target.accepted["/v1/objects"]) > REQUESTS / 50, "enough requests are nearly valid"
    until_loaded(target.service)
    assert ledger_rows(data, "SELECT reason FROM dead_letters") == []
    assert "Traceback" not in target.service.log()
    assert target.service.stop() == 0
    events = [row for row in stored_events(data) if row[0] == project]
    (payments,) = ledger_rows(data, f"SELECT count(*) FROM payments WHERE project = '{project}'")[0]
    assert len(events) + payments == accepted, f"seed {target.noise.seed}"
