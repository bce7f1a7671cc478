"""More is asked than can be done: what is over is refused at once, what was let in is stored, nothing else changes."""

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
from mauve.ingest.asgi import IngestApp
from mauve.ingest.plane import IngestPlane
from mauve.overload.admission import UNDER_WAY_MAX, Admission
from mauve.stores.localdisk.disk import LocalDisk
from mauve.stores.localdisk.log.writer import SegmentLogWriter
from mauve.wiring.ingest import ingest_parts
from mauve.wiring.paths import log_path
from mauve.wiring.warehouse import open_log_reader
from support.billing import SECRET_A, signed_a
from support.clocks import Ticks
from support.service import PATIENCE_S, bearer, ledger_rows

OVER = 7
SUBSCRIPTION = {"type": "subscription", "id": "s1", "status": "active", "mrr": 900, "currency": "eur"}
BUSY = {"ok": False, "error": "busy: nothing was stored, retry"}


class HeldDisk(LocalDisk):
    """A disk whose syncs take until they are let go."""

    def __init__(self):
        self.may_go = threading.Event()

    def sync(self, descriptor):
        self.may_go.wait()
        super().sync(descriptor)


@pytest.fixture
def apps(parts):
    """Two apps of different organizations, each with its key."""
    made = {}
    for name in ("noisy", "quiet"):
        organization = operator.create_organization(parts, name)
        made[name] = create_app(parts, organization.org_id, NewAppBody(name))
    return made


def unhurried():
    """Let in as many as can be, however slow the machine is: its clock stands still."""
    return Admission(lambda: 0.0, lambda: 0.0, Ticks())


class HeldPlane:
    """The ingest plane of one process on a disk that can be held up."""

    def __init__(self, ingest, disk, apps):
        self.ingest, self.disk = ingest, disk
        self._keys = {name: key.reveal() for name, (_, key) in apps.items()}
        transport = httpx.ASGITransport(app=IngestApp(IngestPlane(ingest)))
        self.client = httpx.AsyncClient(transport=transport, base_url="http://ingest", timeout=60)

    def send(self, name="noisy", path="/v1/events", items=({"name": "seen"},), **headers):
        body = json.dumps(list(items)).encode()
        headers = {"content-type": "application/json", **self.key_of(name), **headers}
        return asyncio.create_task(self.client.post(path, content=body, headers=headers))

    def key_of(self, name):
        return bearer(self._keys[name])

    async def crowd(self, count):
        """Send so many at once, and return when each is answered or waits for the disk."""
        sent = [self.send() for _ in range(count)]
        waiting = min(count, UNDER_WAY_MAX)
        async with asyncio.timeout(PATIENCE_S):
            while (  # noqa: ASYNC110 - nothing tells when the last of them has entered
                self.ingest.admission.under_way < waiting or sum(task.done() for task in sent) < count - waiting
            ):
                await asyncio.sleep(0.01)
        return sent

    async def let_go(self, sent):
        self.disk.may_go.set()
        return [(await task).status_code for task in sent]


@pytest.fixture
def held(settings, clock, apps):
    """Run a scenario against the plane, in an event loop of its own; return how many records the log has then."""

    def run(scenario):
        async def play():
            disk = HeldDisk()
            async with ingest_parts(settings, 0, CollectorRegistry(), clock) as opened:
                disk.may_go.set()
                log = SegmentLogWriter(log_path(settings.data), 1, segment_bytes=3 * 2**20, disk=disk)
                disk.may_go.clear()
                try:
                    await scenario(HeldPlane(dataclasses.replace(opened, log=log, admission=unhurried()), disk, apps))
                finally:
                    disk.may_go.set()
                    await log.close()

        asyncio.run(play())
        reader = open_log_reader(settings)
        return len(reader.read(1, 0, 2**26))

    return run


def test_what_is_over_the_bound_gets_503_and_the_others_are_stored(held):
    statuses = []

    async def scenario(plane):
        sent = await plane.crowd(UNDER_WAY_MAX + OVER)
        refused = [await task for task in sent if task.done()]
        assert [reply.json() for reply in refused] == [BUSY] * OVER
        assert {(reply.status_code, reply.headers["retry-after"]) for reply in refused} == {(503, "1")}
        statuses.extend(await plane.let_go(sent))
        assert (await plane.send()).status_code == 202, "it is as before"
        assert plane.ingest.admission.under_way == 0
        assert plane.ingest.counters.refused["busy"] == OVER

    assert held(scenario) == UNDER_WAY_MAX + 1
    assert (statuses.count(202), statuses.count(503)) == (UNDER_WAY_MAX, OVER)


def test_a_noisy_organization_does_not_push_out_another(held):
    async def scenario(plane):
        sent = await plane.crowd(UNDER_WAY_MAX)
        quiet = plane.send("quiet")
        assert (await plane.send("noisy")).status_code == 503
        assert plane.ingest.admission.under_way == UNDER_WAY_MAX + 1
        assert not quiet.done(), "it was let in and waits for the disk like those before it"
        assert set(await plane.let_go([*sent, quiet])) == {202}

    assert held(scenario) == UNDER_WAY_MAX + 1


def test_every_door_of_the_plane_refuses_alike(held, parts, apps, settings):
    app = apps["noisy"][0]
    save_secret(parts, app, Environment.LIVE, Provider.BILLER_A, Secret(SECRET_A))

    async def scenario(plane):
        sent = await plane.crowd(UNDER_WAY_MAX)
        delivery = plane.send(path=f"/v1/webhooks/biller_a/{app.public_id}", **signed_a(b"[]"))
        replies = [await plane.send(), await plane.send(path="/v1/objects", items=[SUBSCRIPTION]), await delivery]
        assert [(reply.status_code, reply.json()) for reply in replies] == [(503, BUSY)] * 3
        assert {reply.headers["retry-after"] for reply in replies} == {"1"}
        assert replies[0].headers["access-control-allow-origin"] == "*"
        await plane.let_go(sent)

    held(scenario)
    assert ledger_rows(settings.data, "SELECT count(*) FROM subscription_versions") == [(0,)]


def test_a_stranger_is_told_so_before_anything_else(held):
    async def scenario(plane):
        sent = await plane.crowd(UNDER_WAY_MAX)
        assert (await plane.send(authorization="Bearer sk_live_nobody")).status_code == 401
        assert (await plane.send(path="/v1/webhooks/biller_a/proj_nobody")).status_code == 404
        await plane.let_go(sent)

    held(scenario)


def test_the_body_of_what_is_refused_is_not_read(held):
    async def scenario(plane):
        sent = await plane.crowd(UNDER_WAY_MAX)
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
            assert reply.status_code == 503, "before the content type is looked at"
            assert reply.headers.get("connection") == ("close" if size > 16_384 else None)
        assert read == []
        await plane.let_go(sent)

    held(scenario)


def test_who_gives_up_while_waiting_is_no_longer_counted(held):
    async def scenario(plane):
        sent = await plane.crowd(50)
        for task in sent[:20]:
            task.cancel()
        await asyncio.gather(*sent[:20], return_exceptions=True)
        assert plane.ingest.admission.under_way == 30
        await plane.let_go(sent[20:])
        assert plane.ingest.admission.under_way == 0

    held(scenario)
