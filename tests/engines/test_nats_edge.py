"""The edge and the event caps on NATS: what holds while its servers fail, and what is refused."""

import base64
import os
import signal
import threading
import time
from contextlib import ExitStack, closing, contextmanager, suppress

import httpx2 as httpx
import msgspec
import pytest
from nats.errors import Error

from mauve.config import settings_from
from mauve.core.accepted import AcceptedCounts, OrgPeriod
from mauve.core.app import Environment
from mauve.core.credential import KeyKind
from mauve.core.secret import Secret
from mauve.stores import ForeignDataError, StoreUnavailableError, UnsupportedServerError
from mauve.stores.edge import PublishedKey
from mauve.stores.nats import accepted, edge
from mauve.stores.nats.accepted import NatsAcceptedCounts
from mauve.stores.nats.bucket import CHECK_EVERY_S
from mauve.stores.nats.edge import NatsEdgePublisher, NatsEdgeReader, key_of
from mauve.wiring.edge import prepare_edge
from support.clocks import Ticks
from support.nats import Nats
from support.nats_edge import IDENTITY, create_buckets, delete_bucket, new_buckets, on_bucket, state_of
from support.service import SERVERS, bearer, eventually, is_alive, ledger_rows, mauve_json, post_events, running

CAP, BATCH, WORKERS, CONNECTIONS = 300, 10, 2, 16
LAG_BATCHES = 10  # at one a second: far longer than counts take to reach the other process


@pytest.fixture(scope="module")
def cluster():
    with Nats(3) as servers:
        yield servers


@pytest.fixture(scope="module")
def server():
    with Nats(1) as servers:
        yield servers


@pytest.fixture
def own_server():
    """A server without the data of another installation."""
    with Nats(1) as servers:
        yield servers


@pytest.fixture
def opened():
    with ExitStack() as stack:
        yield lambda each: stack.enter_context(closing(each))


def a_key(version=1, key_id="key_1", *, revoked=False):
    return PublishedKey(
        key_id, version, bytes(32), KeyKind.SERVER, Environment.LIVE, "proj_1", "app_1", "org_1", revoked=revoked
    )


def publisher_of(servers):
    return NatsEdgePublisher(Secret(servers.url))


def reader_of(servers):
    return NatsEdgeReader(Secret(servers.url))


def versions_in(reader):
    return {record.key_id: record.version for record in reader.changes_since(0).records}


def publish_when_possible(publisher, records):
    """Publish as the sweep does: again and again until it succeeds."""

    def publish():
        try:
            publisher.publish(records)
        except StoreUnavailableError:
            return False
        return True

    eventually(publish)


def test_readers_keep_what_they_know_while_nats_is_away_and_catch_up_afterwards(server, opened):
    new_buckets(server.url)
    publisher, reader = opened(publisher_of(server)), opened(reader_of(server))
    publisher.publish([a_key(), a_key(key_id="key_2")])
    eventually(lambda: len(versions_in(reader)) == 2)
    revision = reader.changes_since(0).revision
    server.kill(0)
    with pytest.raises(StoreUnavailableError):
        publisher.publish([a_key(2, revoked=True)])

    def is_reported():
        try:
            return reader.changes_since(revision) is None
        except StoreUnavailableError:
            return True

    eventually(is_reported)
    assert versions_in(reader) == {"key_1": 1, "key_2": 1}
    with pytest.raises(StoreUnavailableError):
        reader_of(server)
    server.start(0)
    publish_when_possible(publisher, [a_key(2, revoked=True)])
    eventually(lambda: versions_in(reader) == {"key_1": 2, "key_2": 1})
    changes = eventually(lambda: reader.changes_since(revision))
    assert changes.records == [a_key(2, revoked=True)]
    assert reader.changes_since(changes.revision) == ([], changes.revision)


def test_nothing_is_missed_while_leaders_are_killed(cluster, opened):
    new_buckets(cluster.url)
    publisher, reader = opened(publisher_of(cluster)), opened(reader_of(cluster))
    followed, revision = {}, 0
    for number in range(3):
        leader = cluster.index_of(leader_when_complete(cluster.url))
        publish_when_possible(publisher, [a_key(2 * number + 1, f"key_{each}") for each in range(20)])
        cluster.kill(leader)
        publish_when_possible(publisher, [a_key(2 * number + 2, f"key_{each}") for each in range(10)])
        cluster.start(leader)
        expected = {f"key_{each}": 2 * number + (2 if each < 10 else 1) for each in range(20)}
        eventually(lambda expected=expected: versions_in(reader) == expected)
        changes = reader.changes_since(revision)
        revision = changes.revision
        followed |= {record.key_id: record.version for record in changes.records}
        assert followed == expected
    assert versions_in(opened(reader_of(cluster))) == followed


def stream_of_the_edge(url):
    async def ask(_, connection):
        return (await (await connection.client()).jsm().stream_info(f"KV_{edge.BUCKET}")).cluster

    return on_bucket(url, edge.BUCKET, ask)


def leader_when_complete(url):
    """Return the leader once every server has all entries: a server that still copies them cannot replace it."""

    def leader():
        try:
            found = stream_of_the_edge(url)
        except Error:
            return None
        return found.leader if len(found.replicas) == 2 and all(each.current for each in found.replicas) else None

    return eventually(leader)


def test_a_change_whose_announcement_is_lost_is_seen(server, opened):
    new_buckets(server.url)
    reader = opened(reader_of(server))
    content = msgspec.json.encode(a_key(3))
    on_bucket(server.url, edge.BUCKET, lambda bucket, _: bucket.put(key_of(a_key()), content))
    eventually(lambda: versions_in(reader) == {"key_1": 3})


def test_entries_that_this_release_cannot_read_are_skipped(server, opened):
    new_buckets(server.url)
    publisher, reader = opened(publisher_of(server)), opened(reader_of(server))
    for key, value in (("usage.org_1", b'{"type":"usage"}'), ("key.key_2", b"{}"), ("key.key_1", b"")):
        on_bucket(server.url, edge.BUCKET, lambda bucket, _, key=key, value=value: bucket.put(key, value))
    publisher.publish([a_key()])
    eventually(lambda: versions_in(reader) == {"key_1": 1})
    assert reader.changes_since(0).records == [a_key()]


def test_a_bucket_that_was_replaced_is_read_from_its_start(server, opened):
    new_buckets(server.url)
    publisher, reader = opened(publisher_of(server)), opened(reader_of(server))
    edge_id = publisher.edge_id()
    for version in range(1, 6):
        publisher.publish([a_key(version), a_key(version, "key_2")])
    eventually(lambda: versions_in(reader) == {"key_1": 5, "key_2": 5})
    revision = reader.changes_since(0).revision
    delete_bucket(server.url, edge.BUCKET)
    with pytest.raises(StoreUnavailableError):
        publisher.publish([a_key(6)])
    create_buckets(server.url)
    assert publisher.edge_id() != edge_id, "so that the control plane publishes everything again"
    publisher.publish([a_key(6)])
    changes = eventually(lambda: reader.changes_since(revision).records and reader.changes_since(revision))
    assert changes.records == [a_key(6)]
    assert changes.revision > revision
    assert versions_in(reader) == {"key_1": 6, "key_2": 5}, "what was not published again stays"


def test_a_bucket_of_another_installation_is_not_followed(server, opened):
    new_buckets(server.url)
    publisher, reader = opened(publisher_of(server)), opened(reader_of(server))
    publisher.publish([a_key()])
    eventually(lambda: versions_in(reader) == {"key_1": 1})
    delete_bucket(server.url, edge.BUCKET)
    on_bucket(server.url, edge.BUCKET, lambda bucket, _: bucket.create("another installation"))
    publisher.publish([a_key(2, revoked=True)])
    revision = reader.changes_since(0).revision

    def is_refused():
        try:
            reader.changes_since(revision)
        except StoreUnavailableError:
            return True
        return False

    eventually(is_refused)
    assert versions_in(reader) == {"key_1": 1}


def test_thousands_of_keys_are_published_and_loaded(cluster, opened):
    new_buckets(cluster.url)
    publisher = opened(publisher_of(cluster))
    keys = [a_key(key_id=f"key_{number:05d}") for number in range(5_000)]
    for start in range(0, len(keys), 1_000):
        publish_when_possible(publisher, keys[start : start + 1_000])
    last = state_of(cluster.url).last_sequence
    publisher.publish(keys[:1_000])
    assert state_of(cluster.url).last_sequence == last, "what is stored already is not stored again"
    loaded = opened(reader_of(cluster)).changes_since(0).records
    assert sorted(loaded, key=lambda key: key.key_id) == keys


def test_of_publishers_that_race_the_highest_version_wins(cluster, opened):
    new_buckets(cluster.url)
    publishers = [opened(publisher_of(cluster)) for _ in range(3)]

    def publish(place):
        for version in range(place + 1, 31, len(publishers)):
            publish_when_possible(publishers[place], [a_key(version), a_key(31 - version, "key_2")])

    threads = [threading.Thread(target=publish, args=(place,)) for place in range(len(publishers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert versions_in(opened(reader_of(cluster))) == {"key_1": 30, "key_2": 30}


def test_odd_record_ids_have_distinct_keys_that_nats_accepts(server, opened):
    new_buckets(server.url)
    publisher = opened(publisher_of(server))
    ids = ["a.b", "a=2Eb", "a/b", "a%b", "a b", "é", "*", ">", "a~b", ".", "=", "_-", "a\r\nb"]
    publisher.publish([a_key(number, key_id) for number, key_id in enumerate(ids, 1)])
    assert versions_in(opened(reader_of(server))) == {key_id: number for number, key_id in enumerate(ids, 1)}


def settings_on(servers, tmp_path):
    environment = servers.settings() | {"MAUVE_MASTER_KEY": base64.b64encode(bytes(32)).decode()}
    return settings_from(environment | {"MAUVE_DATA": str(tmp_path)})


def test_the_buckets_of_another_installation_are_refused(server, tmp_path):
    new_buckets(server.url)
    settings = settings_on(server, tmp_path)
    prepare_edge(settings, IDENTITY)
    with pytest.raises(ForeignDataError, match="belongs to another installation"):
        prepare_edge(settings, "another")


def test_the_buckets_of_a_cluster_have_three_replicas(cluster, tmp_path):
    for name in (edge.BUCKET, accepted.BUCKET):
        delete_bucket(cluster.url, name)
    prepare_edge(settings_on(cluster, tmp_path), IDENTITY)

    async def replicas(_, connection):
        manager = (await connection.client()).jsm()
        return [
            (await manager.stream_info(f"KV_{name}")).config.num_replicas for name in (edge.BUCKET, accepted.BUCKET)
        ]

    assert on_bucket(cluster.url, edge.BUCKET, replicas) == [3, 3]


def test_servers_that_do_not_answer_are_refused_in_one_sentence(tmp_path):
    servers = Nats(1)  # not started
    with pytest.raises(UnsupportedServerError, match="MAUVE_STREAM_URL") as refused:
        prepare_edge(settings_on(servers, tmp_path), IDENTITY)
    assert "password" not in str(refused.value)


def some_counts(*subtotals):
    return AcceptedCounts({OrgPeriod("org_1", "2026-11"): list(subtotals)})


def test_processes_of_several_machines_share_streams(cluster, opened):
    new_buckets(cluster.url)
    names = ("one.0", "one.1", "two.0")
    exchanges = {name: opened(NatsAcceptedCounts(Secret(cluster.url), name)) for name in names}
    for number, exchange in enumerate(exchanges.values(), 1):
        exchange.share({240: some_counts((number, 10 * number)), 242: some_counts((1, number))})

    def sums(exchange):
        return sorted((stream, *counts.sums(0).values()) for stream, counts in exchange.others())

    eventually(lambda: sums(exchanges["one.0"]) == [(240, 20), (240, 30), (242, 2), (242, 3)])
    successor = opened(NatsAcceptedCounts(Secret(cluster.url), "two.0"))
    assert {stream: sum(counts.sums(0).values()) for stream, counts in successor.own().items()} == {240: 30, 242: 3}
    successor.share({})
    eventually(lambda: sums(exchanges["one.0"]) == [(240, 20), (242, 2)])


def counts_seen_by_another(url):
    with closing(NatsAcceptedCounts(Secret(url), "another.0")) as exchange:
        return [(stream, dict(counts)) for stream, counts in exchange.others()]


def test_unchanged_counts_are_shared_again_only_before_they_expire(server, opened):
    new_buckets(server.url)
    ticks = Ticks()
    one = opened(NatsAcceptedCounts(Secret(server.url), "one.0", ticks))
    for _ in range(3):
        one.share({240: some_counts((7, 500))})
    assert state_of(server.url, accepted.BUCKET).last_sequence == 1
    ticks.now_s += 2 * 86_400
    one.share({240: some_counts((7, 500))})
    assert state_of(server.url, accepted.BUCKET).last_sequence == 2


def test_counts_outlast_a_restart_of_nats_and_are_shared_again_if_they_are_lost(server, opened):
    new_buckets(server.url)
    ticks = Ticks()
    one = opened(NatsAcceptedCounts(Secret(server.url), "one.0", ticks))
    counts = {240: some_counts((7, 500))}
    one.share(counts)
    server.kill(0)
    assert one.others() == []
    with pytest.raises(StoreUnavailableError):
        one.share({})
    server.start(0)
    assert counts_seen_by_another(server.url) == [(240, dict(counts[240]))]
    delete_bucket(server.url, accepted.BUCKET)
    create_buckets(server.url)
    assert counts_seen_by_another(server.url) == []

    def share():
        ticks.now_s += CHECK_EVERY_S
        one.others()
        with suppress(StoreUnavailableError):
            one.share(counts)
        return counts_seen_by_another(server.url)

    assert eventually(share) == [(240, dict(counts[240]))]


def test_counts_of_a_process_that_is_gone_are_forgotten(server, opened):
    new_buckets(server.url)
    ticks = Ticks()
    one = opened(NatsAcceptedCounts(Secret(server.url), "one.0", ticks))
    opened(NatsAcceptedCounts(Secret(server.url), "two.0")).share({240: some_counts((7, 500))})
    assert len(one.others()) == 1
    ticks.now_s += accepted.TTL_S + 1
    assert one.others() == []


@contextmanager
def service_on(servers, tmp_path, **settings):
    data = tmp_path / "data"
    SERVERS[data] = servers.settings() | {"MAUVE_MASTER_KEY": base64.b64encode(bytes(32)).decode()} | settings
    with running(data, "--workers", str(WORKERS)) as service:
        org = mauve_json(data, "org", "create", "Acme")["org_id"]
        scopes = "apps:write,keys:write,keys:read"
        token = mauve_json(data, "token", "mint", "--org", org, "--scopes", scopes)["token"]
        app = eventually(lambda: created_app(service, token))
        yield service, org, app


def created_app(service, token):
    reply = httpx.post(f"{service.url}/v1/apps", headers=bearer(token), json={"name": "An app"})
    return reply.json() if reply.status_code == 201 else None


def test_a_key_works_in_every_process_soon_after_it_is_minted_and_not_after_it_is_revoked(own_server, tmp_path):
    with service_on(own_server, tmp_path) as (service, _, app):
        minted = mauve_json(service.data, "key", "mint", "--app", app["app_id"], "--kind", "sk")
        for url in (service.url, service.ingest_url):
            eventually(lambda url=url: post_events(url, minted["key"]) == 202)
        mauve_json(service.data, "key", "revoke", "--app", app["app_id"], minted["key_id"])
        for url in (service.url, *[service.ingest_url] * 4):  # each is a new connection, to any of the workers
            eventually(lambda url=url: post_events(url, minted["key"]) == 401)
        assert post_events(service.ingest_url, app["sk_key"]) == 202


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


def test_a_cap_holds_over_all_processes_without_the_core(own_server, tmp_path, opened):
    with service_on(own_server, tmp_path, MAUVE_HANG_SECONDS="0") as (service, org, app):
        mauve_json(service.data, "org", "limits", org, "--event-cap", str(CAP))
        sender = opened(Sender(service, app["sk_key"]))
        core = service.child_pids()["core"]
        os.kill(core, signal.SIGSTOP)
        try:
            assert sender.statuses((CAP - 50) // BATCH) == {202}
            eventually(lambda: shared(own_server) == sender.accepted)
            reach_the_cap(sender)
            assert sender.accepted >= CAP
            assert sender.statuses(50) == {403}
            eventually(lambda: shared(own_server) == sender.accepted)

            workers = [pid for name, pid in service.child_pids().items() if name != "core"]
            for pid in workers:
                os.kill(pid, signal.SIGKILL)
            eventually(lambda: not any(map(is_alive, workers)))
            assert sender.statuses(50) == {403}, "the new workers know what the old ones had shared"
        finally:
            os.kill(core, signal.SIGCONT)
        eventually(lambda: ledger_rows(service.data, "SELECT sum(events) FROM usage") == [(sender.accepted,)])
        eventually(lambda: shared(own_server) == 0)
        assert sender.statuses(20) == {403}
