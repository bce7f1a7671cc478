"""The control plane: timing of refusals, which must reveal nothing; start-up time and memory of idle processes."""

import http.client
import statistics
import time
from collections.abc import Iterator

from bench.report import Figure, at_most
from bench.service import Running, service
from mauve.access import tokens
from mauve.core.ids import SystemRandomness, new_id

PAIRS = 5_000
RATIO_MAX = 1.05
SCOPES = "apps:read,apps:write"


def measure() -> Iterator[Figure]:
    with service() as running:
        yield Figure("start-up, empty data directory", f"{running.started_in_s:.2f} s")
        for name in running.pids:
            yield Figure(f"resident memory at rest, {name}", f"{running.resident_mb(name):.0f} MB")
        yield from _refusal_timing(running)


def _refusal_timing(running: Running) -> Iterator[Figure]:
    mine = running.operator("org", "create", "Mine")["org_id"]
    other = running.operator("org", "create", "Other")["org_id"]
    token = running.operator("token", "mint", "--org", mine, "--scopes", SCOPES)["token"]
    foreign_token = running.operator("token", "mint", "--org", other, "--scopes", SCOPES)["token"]
    connection = http.client.HTTPConnection("127.0.0.1", running.port)
    connection.request("POST", "/v1/apps", '{"name": "Foreign"}', {"authorization": f"Bearer {foreign_token}"})
    app_id = connection.getresponse().read().split(b'"app_id":"')[1][:24].decode()

    wrong_secret = token[:25] + SystemRandomness().base62(40)

    def unknown_id() -> tuple[str, str]:
        return "/v1/apps", tokens.mint(SystemRandomness()).token.reveal()

    yield _compare(connection, "401: unknown id / wrong secret", unknown_id, lambda: ("/v1/apps", wrong_secret), 401)
    yield _compare(
        connection,
        "404: never-existing app / foreign app",
        lambda: (f"/v1/apps/{new_id('app', SystemRandomness())}", token),
        lambda: (f"/v1/apps/{app_id}", token),
        404,
    )


def _compare(connection, name, one, other, status) -> Figure:
    """Alternate between both requests and compare the medians."""
    times = ([], [])
    for _ in range(PAIRS):
        for make_request, samples in ((one, times[0]), (other, times[1])):
            path, credential = make_request()
            began = time.perf_counter_ns()
            connection.request("GET", path, headers={"authorization": f"Bearer {credential}"})
            reply = connection.getresponse()
            reply.read()
            samples.append(time.perf_counter_ns() - began)
            if reply.status != status:
                raise AssertionError(f"{name}: {reply.status} instead of {status}")
    medians = [statistics.median(each) / 1000 for each in times]
    ratio = max(medians) / min(medians)
    return Figure(name, f"{medians[0]:.0f} / {medians[1]:.0f} us", ratio, at_most(ratio, RATIO_MAX))
