"""No owner can fill a queue that all share."""

import asyncio
from collections import Counter

import httpx
import pytest
from starlette.responses import Response
from structlog.testing import capture_logs

from mauve.control.plane import _IN_FLIGHT_MAX, ControlPlane
from mauve.overload.fair_share import _OWNERS_MAX, FairShare, OwnerSemaphore
from support.clocks import Ticks
from support.service import PATIENCE_S, bearer


def test_an_owner_at_its_limit_is_refused_until_one_leaves_and_others_are_not():
    share = FairShare(2, "pages")
    assert [share.enter("org_1") for _ in range(3)] == [True, True, False]
    assert share.enter("org_2")
    share.leave("org_1")
    assert [share.enter("org_1") for _ in range(2)] == [True, False]


def test_credentials_of_one_organization_share_its_limit_once_they_are_known():
    share = FairShare(1, "pages")
    assert share.owner_of("cookie a") != share.owner_of("cookie b")
    share.learn("cookie a", "org_1")
    share.learn("cookie b", "org_1")
    assert share.owner_of("cookie a") == share.owner_of("cookie b") == "org_1"


def test_few_owners_are_remembered_however_many_come():
    share = FairShare(1, "pages")
    for number in range(2 * _OWNERS_MAX):
        share.learn(f"cookie {number}", "org_1")
        assert share.owner_of(f"cookie {number}") == "org_1"
    assert share.owner_of("cookie 0") != "org_1"


def test_a_flood_is_logged_once_a_minute():
    ticks = Ticks()
    share = FairShare(0, "pages", ticks)
    with capture_logs() as logged:
        for _ in range(100):
            assert not share.enter("org_1")
        ticks.now_s += 61
        assert not share.enter("org_1")
    assert [entry["event"] for entry in logged] == ["share_exceeded"] * 2


def test_a_token_that_floods_the_control_plane_leaves_room_for_others():
    waiting = []

    class WaitingPlane(ControlPlane):
        async def answer_in_time(self, operation, request, body):
            waiting.append(asyncio.get_running_loop().create_future())
            await waiting[-1]
            return Response()

    plane = WaitingPlane(None, timeout_s=60, refresh_keys=lambda: None)

    async def until_waiting(count):
        while len(waiting) < count:  # noqa: ASYNC110 - a few rounds of the event loop
            await asyncio.sleep(0)

    async def scenario():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(plane.app), base_url="http://test") as client:

            def ask(token):
                return asyncio.create_task(client.get("/v1/apps", headers=bearer(token)))

            flood = [ask("a") for _ in range(_IN_FLIGHT_MAX)]
            await until_waiting(_IN_FLIGHT_MAX)
            refused = await ask("a")
            assert (refused.status_code, refused.json()["error"]["code"]) == (502, "upstream_unavailable")
            other = ask("b")
            await until_waiting(_IN_FLIGHT_MAX + 1)
            for each in waiting:
                each.set_result(None)
            assert {reply.status_code for reply in await asyncio.gather(*flood, other)} == {200}

    asyncio.run(scenario())


def test_an_owner_runs_a_few_at_once_and_others_do_not_wait_for_it():
    async def scenario():
        turns, running, most = OwnerSemaphore(2), Counter(), Counter()
        release, has_begun = asyncio.Event(), asyncio.Event()

        async def request(owner):
            async with turns.acquired(owner, wait_s=PATIENCE_S):
                running[owner] += 1
                if owner == "other":
                    has_begun.set()
                most[owner] = max(most[owner], running[owner])
                await release.wait()
                running[owner] -= 1

        requests = [asyncio.create_task(request("busy")) for _ in range(10)]
        await asyncio.sleep(0)
        other = asyncio.create_task(request("other"))
        await has_begun.wait()
        with pytest.raises(TimeoutError):
            async with turns.acquired("busy", wait_s=0.001):
                pass
        release.set()
        await asyncio.gather(*requests, other)
        return most, turns._gates  # noqa: SLF001 - nothing is left behind

    most, left = asyncio.run(scenario())
    assert most == {"busy": 2, "other": 1}
    assert left == {}
