"""Billing webhooks: signed deliveries per second of one worker on one CPU core, each durable before its reply.

`python -m bench.webhooks` runs this benchmark alone.
"""

import hmac
import http.client
import json
import os
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from bench.generator import drive
from bench.report import Figure, at_least, render
from bench.service import MAUVE, Running, service
from mauve.core.app import Environment
from mauve.core.biller import Provider
from mauve.core.secret import Secret
from mauve.ingest.webhooks.billers import parse_delivery
from mauve.ingest.webhooks.entries import Endpoint, map_delivery, near_arrival
from mauve.ingest.webhooks.signatures import check_biller_a_signature

SECRET = "whsec_only_for_measuring"
INVOICE = Path(__file__).parents[1] / "tests/samples/billing/stripe_invoice_paid_basic.json"
PER_SECOND_MIN = 1_000
SECONDS = 5.0
CONNECTIONS = 32
DELIVERIES = 20_000
_MAPPED = 5_000
WORKER_CORE, OTHER_CORE = 0, 1


def measure() -> Iterator[Figure]:
    yield Figure("verifying and mapping a delivery alone", f"{_mapping_alone():.0f} us")
    with service("--workers", "1", settings={"MAUVE_INGEST_FLUSH_SECONDS": "30"}) as running:
        requests = _signed_requests(_connected_project(running))
        for thread in Path(f"/proc/{running.pids['ingest-1']}/task").iterdir():
            os.sched_setaffinity(int(thread.name), {WORKER_CORE})
        os.sched_setaffinity(0, {OTHER_CORE})
        done = drive(running.ingest_port, requests, CONNECTIONS, SECONDS, 1e9)
        os.sched_setaffinity(0, {WORKER_CORE, OTHER_CORE})
        stored = _stored(running)
        if stored != min(done["requests"], DELIVERIES):
            raise AssertionError(f"{done['requests']} were answered but {stored} are stored")
    rate = done["requests"] / done["seconds"]
    yield Figure("one worker, signed deliveries", f"{rate:.0f} /s", floor=at_least(rate, PER_SECOND_MIN, "/s"))


def _signature(body: bytes, at: int) -> str:
    digest = hmac.digest(SECRET.encode(), f"{at}.".encode() + body, "sha256").hex()
    return f"t={at},v1={digest}"


def _mapping_alone() -> float:
    """Return the microseconds to verify and map one delivery, without I/O."""
    body, at, secret = INVOICE.read_bytes(), int(time.time()), Secret(SECRET)
    header = [_signature(body, at)]
    endpoint = Endpoint("proj_1", "org_1", Environment.LIVE, Provider.BILLER_A)
    began = time.perf_counter()
    for _ in range(_MAPPED):
        if check_biller_a_signature(lambda _name: header, body, secret, at) is not None:
            raise AssertionError("the signature is not good")
        map_delivery(parse_delivery(Provider.BILLER_A, body, Environment.LIVE), endpoint, at * 1000, near_arrival)
    return (time.perf_counter() - began) / _MAPPED * 1e6


def _signed_requests(project: str) -> list[bytes]:
    """Return signed deliveries, each of another invoice."""
    at, text = int(time.time()), INVOICE.read_bytes()
    bodies = [text.replace(b"in_1SmpBasic", b"in_%08d" % number) for number in range(DELIVERIES)]
    return [
        f"POST /v1/webhooks/biller_a/{project} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
        f"stripe-signature: {_signature(body, at)}\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        + body
        for body in bodies
    ]


def _connected_project(running: Running) -> str:
    org = running.operator("org", "create", "Bench")["org_id"]
    token = running.operator("token", "mint", "--org", org, "--scopes", "apps:write")["token"]
    connection = http.client.HTTPConnection("127.0.0.1", running.port)
    connection.request("POST", "/v1/apps", '{"name": "Bench"}', {"authorization": f"Bearer {token}"})
    app = json.loads(connection.getresponse().read())
    command = [MAUVE, "webhooks", "secret", "--app", app["app_id"], "--provider", "biller_a"]
    subprocess.run([*command, "--data", str(running.data)], input=SECRET.encode(), check=True, capture_output=True)
    return app["public_id"]


def _stored(running: Running) -> int:
    with closing(sqlite3.connect(f"file:{running.data}/ledger.db?mode=ro", uri=True)) as ledger:
        return ledger.execute("SELECT count(*) FROM payments").fetchone()[0]


if __name__ == "__main__":
    print(render(list(measure())))
