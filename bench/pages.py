"""The dashboard: the overview of fifty apps with cold and warm caches, and the size of its pages."""

import gzip
import http.client
import json
import re
import statistics
import time
from collections.abc import Iterator
from urllib.parse import urlencode, urlsplit

from bench.report import Figure, at_most
from bench.service import Running, service
from mauve.core.times import DAY_MS

APPS = 50
WARM_ROUNDS = 15
TRIES = 10
WARM_MS_MAX = 300
PAGE_KB_MAX = 200
PASSWORD = "correct horse battery staple"


def measure() -> Iterator[Figure]:
    with service("--workers", "1") as running:
        core = http.client.HTTPConnection("127.0.0.1", running.port)
        org = running.operator("org", "create", "Bench")["org_id"]
        token = running.operator("token", "mint", "--org", org, "--scopes", "apps:write")["token"]
        apps = [_app(core, token, number) for number in range(APPS)]
        for number, app in enumerate(apps):
            _send(running, app["sk_key"], number)
        time.sleep(4)  # Events are stored within two seconds; then past days are closed.
        cookie = _signed_in(
            core, running.operator("user", "create", "--org", org, "--email", "a@b.co", "--role", "owner")
        )
        cold_ms, page = _timed(core, "/", cookie)
        for _ in range(TRIES):  # A number not read in time is shown as a dash, and read on for the next visitor.
            if b"cannot be read" not in page:
                break
            page = _timed(core, "/", cookie)[1]
        if page.count(b'class="spark"') < APPS:
            raise AssertionError("the overview shows too little")
        warm_ms = statistics.median(_timed(core, "/", cookie)[0] for _ in range(WARM_ROUNDS))
        own = f"/apps/{apps[0]['app_id']}"
        pages = {
            "overview": page,
            "app": _timed(core, own, cookie)[1],
            "events": _timed(core, f"{own}/events", cookie)[1],
        }
        yield Figure(f"overview of {APPS} apps, cold caches", f"{cold_ms:.0f} ms")
        floor = at_most(warm_ms, WARM_MS_MAX, "ms")
        yield Figure(f"overview of {APPS} apps, warm caches", f"{warm_ms:.0f} ms", floor=floor)
        for name, text in pages.items():
            kilobytes = _first_visit_bytes(core, text) / 1024
            floor = at_most(kilobytes, PAGE_KB_MAX, "KB")
            yield Figure(f"size of the {name} page", f"{kilobytes:.0f} KB", floor=floor)


def _app(core: http.client.HTTPConnection, token: str, number: int) -> dict[str, str]:
    core.request("POST", "/v1/apps", json.dumps({"name": f"App {number}"}), {"authorization": f"Bearer {token}"})
    return json.loads(core.getresponse().read())


def _send(running: Running, key: str, number: int) -> None:
    """Send events, payments and subscriptions of the last seven days."""
    ingest = http.client.HTTPConnection("127.0.0.1", running.ingest_port)
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    now_ms = time.time_ns() // 1_000_000
    events = [
        {"name": "view", "user": f"user {place % (20 + number)}", "at": now_ms - place % 7 * DAY_MS}
        for place in range(300)
    ]
    events += [
        {"name": "user_signup", "user": f"user {place}", "at": now_ms - place % 7 * DAY_MS} for place in range(50)
    ]
    events += [
        {"name": "payment", "id": str(place), "props": {"amount": 1999, "currency": ("eur", "usd")[place % 2]}}
        for place in range(20)
    ]
    objects = [
        {"type": "subscription", "id": f"sub_{place}", "status": "active", "mrr": 1900, "currency": "eur"}
        for place in range(9)
    ]
    for path, items in (("/v1/events", events), ("/v1/objects", objects)):
        ingest.request("POST", path, json.dumps(items), headers)
        reply = ingest.getresponse()
        if reply.status != 202:
            raise AssertionError(reply.read())
        reply.read()


def _signed_in(core: http.client.HTTPConnection, made: dict[str, str]) -> str:
    form = urlencode({"password": PASSWORD})
    headers = {"content-type": "application/x-www-form-urlencoded", "sec-fetch-site": "same-origin"}
    core.request("POST", urlsplit(made["link"]).path, form, headers)
    reply = core.getresponse()
    reply.read()
    return reply.headers["set-cookie"].partition(";")[0]


def _timed(core: http.client.HTTPConnection, path: str, cookie: str) -> tuple[float, bytes]:
    began = time.perf_counter()
    core.request("GET", path, headers={"cookie": cookie, "accept": "text/html", "accept-encoding": "gzip"})
    reply = core.getresponse()
    body = reply.read()
    took_ms = (time.perf_counter() - began) * 1000
    if reply.status != 200:
        raise AssertionError(f"{path}: {reply.status}")
    return took_ms, gzip.decompress(body)


def _first_visit_bytes(core: http.client.HTTPConnection, page: bytes) -> int:
    """Return the bytes that a first visit loads, compressed."""
    total = len(gzip.compress(page, 5))
    for address in sorted(set(re.findall(rb'(?:src|href)="(/static/[^"]+)"', page))):
        core.request("GET", address.decode(), headers={"accept-encoding": "gzip"})
        total += len(core.getresponse().read())
    return total
