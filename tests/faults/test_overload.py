"""Overload: excess requests are refused at once, admitted ones are stored, and nothing else changes.

Proves: overload.
"""

import asyncio
import dataclasses
import json
import threading

import httpx2 as httpx
import pytest
from prometheus_client import CollectorRegistry

from mauve.control import operator
from mauve.control.apps import create_app
from mauve.control.bodies import NewAppBody
from mauve.control.webhook_secrets import save_secret
from mauve.core.app import Environment
from mauve.core.biller import Provider
from mauve.core.secret import Secret
from mauve.ingest.plane import IngestPlane
from mauve.overload.admission import IN_FLIGHT_MAX, Admission
from mauve.stores.disk import Disk
from mauve.stores.log.files.writer import SegmentLogWriter
from mauve.wiring.ingest import ingest_parts
from mauve.wiring.log import open_log_reader
from mauve.wiring.paths import log_path
from support.billing import SECRET_A, signed_a
from support.clocks import Ticks
from support.service import PATIENCE_S, bearer, ledger_rows

EXCESS = 7
SUBSCRIPTION = {"type": "subscription", "id": "s1", "status": "active", "mrr": 900, "currency": "eur"}
BUSY = {"ok": False, "error": "busy: nothing was stored, retry"}


class HeldDisk(Disk):
    """A disk whose syncs block until released."""

    def __init__(self):
        self.may_sync = threading.Event()

    def sync(self, descriptor):
        self.may_sync.wait()
        super().sync(descriptor)


@pytest.fixture
def apps(parts):
    """Two apps of different organizations, each with its key."""
    made = {}
    for name in ("noisy", "quiet"):
        organization = operator.create_organization(parts, name)
        made[name] = create_app(parts, organization.org_id, NewAppBody(name))
    return made


def timeless_admission():
    """Return admission control that the speed of the machine cannot affect: its clock stands still."""
    return Admission(lambda: 0.0, lambda: 0.0, Ticks())


class HeldPlane:
    """The ingest plane of one process on a disk that can be blocked."""

    def __init__(self, ingest, disk, apps):
        self.ingest, self.disk = ingest, disk
        self._keys = {name: key.reveal() for name, (_, key) in apps.items()}
        transport = httpx.ASGITransport(app=IngestPlane(ingest))
        self.client = httpx.AsyncClient(transport=transport, base_url="http://ingest", timeout=60)

    def send(self, name="noisy", path="/v1/events", items=({"name": "seen"},), **headers):
        body = json.dumps(list(items)).encode()
        headers = {"content-type": "application/json", **self.key_of(name), **headers}
        return asyncio.create_task(self.client.post(path, content=body, headers=headers))

    def key_of(self, name):
        return bearer(self._keys[name])

    async def send_many(self, count):
        """Send many requests at once, and return when each is answered or waits for the disk."""
        sent = [self.send() for _ in range(count)]
        waiting = min(count, IN_FLIGHT_MAX)
        async with asyncio.timeout(PATIENCE_S):
            while (  # noqa: ASYNC110 - nothing signals the last admission
                self.ingest.admission.total < waiting or sum(task.done() for task in sent) < count - waiting
            ):
                await asyncio.sleep(0.01)
        return sent

    async def release_disk(self, sent):
        self.disk.may_sync.set()
        return [(await task).status_code for task in sent]


@pytest.fixture
def held(settings, clock, apps):
    """Run a scenario against the plane in its own event loop; return the number of records in the log afterwards."""

    def run(scenario):
        async def play():
            disk = HeldDisk()
            async with ingest_parts(settings, 0, CollectorRegistry(), clock) as opened:
                disk.may_sync.set()
                log = SegmentLogWriter(log_path(settings.data), 1, segment_bytes=3 * 2**20, disk=disk)
                disk.may_sync.clear()
                try:
                    await scenario(
                        HeldPlane(dataclasses.replace(opened, log=log, admission=timeless_admission()), disk, apps)
                    )
                finally:
                    disk.may_sync.set()
                    await log.close()

        asyncio.run(play())
        reader = open_log_reader(settings)
        return len(reader.read(1, 0, 2**26))

    return run


def test_requests_over_the_limit_get_503_and_the_others_are_stored(held):
    statuses = []

    async def scenario(plane):
        sent = await plane.send_many(IN_FLIGHT_MAX + EXCESS)
        refused = [await task for task in sent if task.done()]
        assert [reply.json() for reply in refused] == [BUSY] * EXCESS
        assert {(reply.status_code, reply.headers["retry-after"]) for reply in refused} == {(503, "1")}
        statuses.extend(await plane.release_disk(sent))
        assert (await plane.send()).status_code == 202, "back to normal"
        assert plane.ingest.admission.total == 0
        assert plane.ingest.counters.refused["busy"] == EXCESS

    assert held(scenario) == IN_FLIGHT_MAX + 1
    assert (statuses.count(202), statuses.count(503)) == (IN_FLIGHT_MAX, EXCESS)


def test_a_noisy_organization_does_not_displace_another(held):
    async def scenario(plane):
        sent = await plane.send_many(IN_FLIGHT_MAX)
        quiet = plane.send("quiet")
        assert (await plane.send("noisy")).status_code == 503
        assert plane.ingest.admission.total == IN_FLIGHT_MAX + 1
        assert not quiet.done(), "it was admitted and waits for the disk like the others"
        assert set(await plane.release_disk([*sent, quiet])) == {202}

    assert held(scenario) == IN_FLIGHT_MAX + 1


def test_every_endpoint_of_the_plane_refuses_alike(held, parts, apps, settings):
    app = apps["noisy"][0]
    save_secret(parts, app, Environment.LIVE, Provider.BILLER_A, Secret(SECRET_A))

    async def scenario(plane):
        sent = await plane.send_many(IN_FLIGHT_MAX)
        delivery = plane.send(path=f"/v1/webhooks/biller_a/{app.public_id}", **signed_a(b"[]"))
        replies = [await plane.send(), await plane.send(path="/v1/objects", items=[SUBSCRIPTION]), await delivery]
        assert [(reply.status_code, reply.json()) for reply in replies] == [(503, BUSY)] * 3
        assert {reply.headers["retry-after"] for reply in replies} == {"1"}
        assert replies[0].headers["access-control-allow-origin"] == "*"
        await plane.release_disk(sent)

    held(scenario)
    assert ledger_rows(settings.data, "SELECT count(*) FROM subscription_versions") == [(0,)]


def test_an_unknown_caller_is_refused_before_overload_is_reported(held):
    async def scenario(plane):
        sent = await plane.send_many(IN_FLIGHT_MAX)
        assert (await plane.send(authorization="Bearer sk_live_unknown")).status_code == 401
        assert (await plane.send(path="/v1/webhooks/biller_a/proj_unknown")).status_code == 404
        await plane.release_disk(sent)

    held(scenario)


def test_the_body_of_a_refused_request_is_not_read(held):
    async def scenario(plane):
        sent = await plane.send_many(IN_FLIGHT_MAX)
        read = []

        async def body(size):
            read.append(size)
            yield b" " * size

        for size in (10_000, 500_000):
            reply = await plane.client.post(
                "/v1/events",
                content=body(size),
                headers={"content-length": str(size), "content-type": "text/plain", **plane.key_of("noisy")},
            )
            assert reply.status_code == 503, "before the content type is checked"
            assert reply.headers.get("connection") == ("close" if size > 16_384 else None)
        assert read == []
        await plane.release_disk(sent)

    held(scenario)


def test_a_cancelled_request_counts_until_its_write_ends(held):
    async def scenario(plane):
        sent = await plane.send_many(50)
        for task in sent[:20]:
            task.cancel()
        await asyncio.gather(*sent[:20], return_exceptions=True)
        assert plane.ingest.admission.total == 50
        await plane.release_disk(sent[20:])
        assert plane.ingest.admission.total == 0

    held(scenario)
