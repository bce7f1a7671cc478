"""Event caps on NATS: the counts that processes share, and a cap that holds over all of them."""

import os
import signal
import time
from contextlib import closing, suppress

import httpx2 as httpx
import pytest
from mauve.stores.log.nats.accepted import NatsAcceptedCounts
from mauve.stores.log.nats.bucket import CHECK_EVERY_S
from support.nats_edge import create_buckets, delete_bucket, new_buckets, state_of

from mauve.core.accepted import AcceptedCounts, OrgPeriod
from mauve.core.secret import Secret
from mauve.stores import StoreUnavailableError
from mauve.stores.log.nats import accepted
from support.clocks import Ticks
from support.nats_service import WORKERS, service_on
from support.service import bearer, eventually, freeze, is_alive, ledger_rows, mauve_json

CAP, BATCH, CONNECTIONS = 300, 10, 16
LAG_BATCHES = 10  # at one a second: far longer than counts take to reach the other process


def some_counts(*subtotals):
    return AcceptedCounts({OrgPeriod("org_1", "2026-11"): list(subtotals)})


def test_processes_of_several_machines_share_streams(nats_server, opened):
    new_buckets(nats_server.url)
    names = ("one.0", "one.1", "two.0")
    exchanges = {name: opened(NatsAcceptedCounts(Secret(nats_server.url), name)) for name in names}
    for number, exchange in enumerate(exchanges.values(), 1):
        exchange.share({240: some_counts((number, 10 * number)), 242: some_counts((1, number))})

    def sums(exchange):
        return sorted((stream, *counts.sums(0).values()) for stream, counts in exchange.others())

    eventually(lambda: sums(exchanges["one.0"]) == [(240, 20), (240, 30), (242, 2), (242, 3)])
    successor = opened(NatsAcceptedCounts(Secret(nats_server.url), "two.0"))
    assert {stream: sum(counts.sums(0).values()) for stream, counts in successor.own().items()} == {240: 30, 242: 3}
    successor.share({})
    eventually(lambda: sums(exchanges["one.0"]) == [(240, 20), (242, 2)])


def counts_seen_by_another(url):
    with closing(NatsAcceptedCounts(Secret(url), "another.0")) as exchange:
        return [(stream, dict(counts)) for stream, counts in exchange.others()]


def test_unchanged_counts_are_shared_again_only_before_they_expire(nats_server, opened):
    new_buckets(nats_server.url)
    ticks = Ticks()
    one = opened(NatsAcceptedCounts(Secret(nats_server.url), "one.0", ticks))
    for _ in range(3):
        one.share({240: some_counts((7, 500))})
    assert state_of(nats_server.url, accepted.BUCKET).last_sequence == 1
    ticks.now_s += 2 * 86_400
    one.share({240: some_counts((7, 500))})
    assert state_of(nats_server.url, accepted.BUCKET).last_sequence == 2


def test_counts_outlast_a_restart_of_nats_and_are_shared_again_if_they_are_lost(nats_server, opened):
    new_buckets(nats_server.url)
    ticks = Ticks()
    one = opened(NatsAcceptedCounts(Secret(nats_server.url), "one.0", ticks))
    counts = {240: some_counts((7, 500))}
    one.share(counts)
    nats_server.kill(0)
    assert one.others() == []
    with pytest.raises(StoreUnavailableError):
        one.share({})
    nats_server.start(0)
    assert counts_seen_by_another(nats_server.url) == [(240, dict(counts[240]))]
    delete_bucket(nats_server.url, accepted.BUCKET)
    create_buckets(nats_server.url)
    assert counts_seen_by_another(nats_server.url) == []

    def share():
        ticks.now_s += CHECK_EVERY_S
        one.others()
        with suppress(StoreUnavailableError):
            one.share(counts)
        return counts_seen_by_another(nats_server.url)

    assert eventually(share) == [(240, dict(counts[240]))]


def test_counts_of_thousands_of_organizations_are_shared(nats_server, opened):
    new_buckets(nats_server.url)
    subtotals = [(number << 30, 10**6 + number) for number in range(64)]
    many = AcceptedCounts({OrgPeriod(f"org_{number:020d}", "2026-11"): subtotals for number in range(7_000)})
    one, two = (opened(NatsAcceptedCounts(Secret(nats_server.url), f"{name}.0")) for name in ("one", "two"))
    one.share({240: many})
    ((stream, counts),) = eventually(two.others)
    assert (stream, dict(counts)) == (240, dict(many))
    far_more = AcceptedCounts({OrgPeriod(f"org_{number:020d}", "2026-11"): subtotals for number in range(20_000)})
    with pytest.raises(StoreUnavailableError):
        one.share({240: far_more})
    assert two.others()


def test_counts_of_a_process_that_is_gone_are_forgotten(nats_server, opened):
    new_buckets(nats_server.url)
    ticks = Ticks()
    one = opened(NatsAcceptedCounts(Secret(nats_server.url), "one.0", ticks))
    opened(NatsAcceptedCounts(Secret(nats_server.url), "two.0")).share({240: some_counts((7, 500))})
    assert len(one.others()) == 1
    ticks.now_s += accepted.TTL_S + 1
    assert one.others() == []


class Sender:
    """Send batches over connections to all workers, and count what was accepted."""

    def __init__(self, service, key):
        self._url = f"{service.ingest_url}/v1/events"
        self._clients = [httpx.Client(headers=bearer(key)) for _ in range(CONNECTIONS)]
        self._sent = 0
        self.accepted = 0

    def send(self):
        self._sent += 1
        batch = [{"name": "view", "id": f"{self._sent}/{number}"} for number in range(BATCH)]
        try:
            status = self._clients[self._sent % CONNECTIONS].post(self._url, json=batch).status_code
        except httpx.TransportError:
            return None
        self.accepted += BATCH if status == 202 else 0
        return status

    def wait_until_known(self):
        """Wait until every worker knows the key. An empty batch is refused, and counts nothing."""
        eventually(lambda: all(client.post(self._url, json=[]).status_code != 401 for client in self._clients))

    def statuses(self, batches):
        return {eventually(self.send) for _ in range(batches)}

    def close(self):
        for client in self._clients:
            client.close()


def shared(servers):
    """Return how many events the processes share that are not loaded."""
    with closing(NatsAcceptedCounts(Secret(servers.url), "observer.0")) as exchange:
        return sum(sum(counts.sums(0).values()) for _, counts in exchange.others())


def reach_the_cap(sender):
    """Send one batch a second until several in a row are refused, and check that few are accepted before."""
    refused, accepted_max = 0, CAP + (WORKERS + LAG_BATCHES) * BATCH
    while refused < 2 * WORKERS:
        refused = refused + 1 if sender.send() == 403 else 0
        assert sender.accepted <= accepted_max
        time.sleep(1)


def test_a_cap_holds_over_all_processes_without_the_core(own_nats_server, tmp_path, opened):
    with service_on(own_nats_server, tmp_path, MAUVE_HANG_SECONDS="0") as (service, org, app):
        mauve_json(service.data, "org", "limits", org, "--event-cap", str(CAP))
        # A worker that knows this key knows the cap, which was published before it.
        key = mauve_json(service.data, "key", "mint", "--app", app["app_id"], "--kind", "sk")["key"]
        sender = opened(Sender(service, key))
        sender.wait_until_known()
        core = service.child_pids()["core"]
        freeze(core)
        try:
            assert sender.statuses((CAP - 50) // BATCH) == {202}
            eventually(lambda: shared(own_nats_server) == sender.accepted)
            reach_the_cap(sender)
            assert sender.accepted >= CAP
            assert sender.statuses(50) == {403}
            eventually(lambda: shared(own_nats_server) == sender.accepted)

            workers = [pid for name, pid in service.child_pids().items() if name != "core"]
            for pid in workers:
                os.kill(pid, signal.SIGKILL)
            eventually(lambda: not any(map(is_alive, workers)))
            assert sender.statuses(50) == {403}, "the new workers know what the old ones had shared"
        finally:
            os.kill(core, signal.SIGCONT)
        eventually(lambda: ledger_rows(service.data, "SELECT sum(events) FROM usage") == [(sender.accepted,)])
        eventually(lambda: shared(own_nats_server) == 0)
        assert sender.statuses(20) == {403}
