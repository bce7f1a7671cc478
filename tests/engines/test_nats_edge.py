"""The edge on NATS: what holds while its servers fail, and what is refused."""

import asyncio
import base64
import gc
import math
import threading
import time
from contextlib import closing, suppress
from types import SimpleNamespace

import msgspec
import pytest
from nats.errors import Error

from mauve.access.keyring import FRESH_S
from mauve.cli.options import open_or_create
from mauve.config import settings_from
from mauve.control import operator
from mauve.core.app import Environment
from mauve.core.credential import KeyKind
from mauve.core.secret import Secret
from mauve.stores import ForeignDataError, StoreUnavailableError, UnsupportedServerError
from mauve.stores.edge import PublishedKey
from mauve.stores.localdisk.edge import SqliteEdge
from mauve.stores.nats import accepted, bucket, connection, edge
from mauve.stores.nats.edge import READ_EVERY_S, NatsEdgePublisher, NatsEdgeReader, key_of
from mauve.stores.nats.streams import LEADER_CONTACT_S_MAX, ApiError
from mauve.wiring.bootstrap import prepare
from mauve.wiring.edge import prepare_edge
from support.nats import Nats
from support.nats_edge import IDENTITY, create_buckets, delete_bucket, new_buckets, on_bucket, state_of
from support.nats_service import service_on
from support.nats_streams import request
from support.service import eventually, mauve_json, post_events

# The library leaves a socket to the garbage collector when a server accepts it and then does not answer.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning", "ignore:loop is closed:ResourceWarning")


@pytest.fixture(autouse=True)
def _garbage_is_collected():
    yield
    gc.collect()  # here, where its warnings are expected


def a_key(version=1, key_id="key_1", *, revoked=False):
    return PublishedKey(
        key_id, version, bytes(32), KeyKind.SERVER, Environment.LIVE, "proj_1", "app_1", "org_1", revoked=revoked
    )


def publisher_of(servers):
    return NatsEdgePublisher(Secret(servers.url), lambda: IDENTITY)


def reader_of(servers):
    return NatsEdgeReader(Secret(servers.url))


def when_possible(work):
    """Return the result of the work, which is tried again while NATS answers too late, as on a busy machine."""

    def result():
        with suppress(StoreUnavailableError):
            return [work()]
        return None

    return eventually(result)[0]


def versions_in(reader):
    return {record.key_id: record.version for record in reader.changes_since(0).records}


def is_out_of_touch(reader, revision):
    try:
        reader.changes_since(revision)
    except StoreUnavailableError:
        return True
    return False


def publish_when_possible(publisher, records):
    """Publish as the sweep does: again and again until it succeeds."""

    when_possible(lambda: publisher.publish(records))


@pytest.mark.parametrize(("leaves", "returns"), [(Nats.kill, Nats.start), (Nats.freeze, Nats.thaw)])
def test_readers_keep_what_they_know_while_nats_is_away_and_catch_up_afterwards(nats_server, opened, leaves, returns):
    new_buckets(nats_server.url)
    publisher, reader = opened(publisher_of(nats_server)), opened(reader_of(nats_server))
    publisher.publish([a_key(), a_key(key_id="key_2")])
    eventually(lambda: len(versions_in(reader)) == 2)
    revision = reader.changes_since(0).revision
    leaves(nats_server, 0)
    with pytest.raises(StoreUnavailableError):
        publisher.publish([a_key(2, revoked=True)])
    eventually(lambda: is_out_of_touch(reader, revision))
    assert versions_in(reader) == {"key_1": 1, "key_2": 1}
    late = opened(reader_of(nats_server))
    assert is_out_of_touch(late, 0)
    returns(nats_server, 0)
    publish_when_possible(publisher, [a_key(2, revoked=True)])
    eventually(lambda: versions_in(reader) == {"key_1": 2, "key_2": 1})
    changes = eventually(lambda: reader.changes_since(revision))
    assert changes.records == [a_key(2, revoked=True)]
    assert when_possible(lambda: reader.changes_since(changes.revision)) == ([], changes.revision)
    eventually(lambda: when_possible(lambda: versions_in(late)) == {"key_1": 2, "key_2": 1})


def test_a_reader_that_starts_without_nats_has_the_records_of_its_last_run_which_are_stale(
    nats_server, opened, tmp_path
):
    def started():
        copy = SqliteEdge(tmp_path / "copy.db", busy_timeout_s=1)
        return NatsEdgeReader(Secret(nats_server.url), copy=copy)

    new_buckets(nats_server.url)
    opened(publisher_of(nats_server)).publish([a_key(3)])
    with closing(started()) as first:
        assert versions_in(first) == {"key_1": 3}
    new_buckets(nats_server.url)  # as after a restore of an older catalog
    opened(publisher_of(nats_server)).publish([a_key(2)])
    with closing(started()) as second:
        assert versions_in(second) == {"key_1": 2}
    nats_server.kill(0)
    try:
        last = opened(started())
        assert versions_in(last) == {"key_1": 2}
        assert staleness_of(last) == math.inf
    finally:
        nats_server.start(0)
    eventually(lambda: staleness_of(last) <= FRESH_S)


def test_nothing_is_missed_while_leaders_are_killed(nats_cluster, opened):
    new_buckets(nats_cluster.url)
    publisher, reader = opened(publisher_of(nats_cluster)), opened(reader_of(nats_cluster))
    followed, revision = {}, 0
    for number in range(3):
        leader = nats_cluster.index_of(leader_when_complete(nats_cluster.url))
        publish_when_possible(publisher, [a_key(2 * number + 1, f"key_{each}") for each in range(20)])
        nats_cluster.kill(leader)
        publish_when_possible(publisher, [a_key(2 * number + 2, f"key_{each}") for each in range(10)])
        nats_cluster.start(leader)
        expected = {f"key_{each}": 2 * number + (2 if each < 10 else 1) for each in range(20)}
        eventually(lambda expected=expected: versions_in(reader) == expected)
        changes = reader.changes_since(revision)
        revision = changes.revision
        followed |= {record.key_id: record.version for record in changes.records}
        assert followed == expected
    assert versions_in(opened(when_possible(lambda: reader_of(nats_cluster)))) == followed


def test_a_reader_of_the_only_server_left_is_out_of_touch_until_there_is_a_quorum_again(nats_cluster, opened):
    """It still answers reads, and misses every change."""
    new_buckets(nats_cluster.url)
    publisher, reader = opened(publisher_of(nats_cluster)), opened(reader_of(nats_cluster))
    publish_when_possible(publisher, [a_key()])
    eventually(lambda: versions_in(reader) == {"key_1": 1})
    leader_when_complete(nats_cluster.url)
    revision = reader.changes_since(0).revision
    for index in (0, 1):
        nats_cluster.kill(index)
    eventually(lambda: is_out_of_touch(reader, revision))
    assert versions_in(reader) == {"key_1": 1}
    for index in (0, 1):
        nats_cluster.start(index)
    eventually(lambda: not is_out_of_touch(reader, revision))
    publish_when_possible(publisher, [a_key(2)])
    eventually(lambda: versions_in(reader) == {"key_1": 2})


def staleness_of(reader):
    return reader.staleness_s(reader.changes_since(0).revision)


def stream_of_the_edge(url):
    async def ask(_, connection):
        return (await (await connection.client()).jsm().stream_info(f"KV_{edge.BUCKET}")).cluster

    return on_bucket(url, edge.BUCKET, ask)


def leader_when_complete(url):
    """Return the leader once every server has all entries: a server that still copies them cannot replace it."""

    def leader():
        try:
            found = stream_of_the_edge(url)
        except (Error, StoreUnavailableError):  # while a leader is elected
            return None
        return found.leader if len(found.replicas) == 2 and all(each.current for each in found.replicas) else None

    return eventually(leader)


def test_a_change_whose_announcement_is_lost_is_seen(nats_server, opened):
    new_buckets(nats_server.url)
    reader = opened(reader_of(nats_server))
    content = msgspec.json.encode(a_key(3))
    on_bucket(nats_server.url, edge.BUCKET, lambda bucket, _: bucket.put(key_of(a_key()), content))
    eventually(lambda: versions_in(reader) == {"key_1": 3})


@pytest.mark.parametrize("is_leader_silent", [False, True])
def test_a_reader_is_not_fresh_while_its_server_misses_a_change(nats_server, opened, monkeypatch, is_leader_silent):
    """A copy of the bucket may be behind for seconds, after its server was cut off from the leader.

    The leader may not be heard either, nor the announcement: after a cut, a connection may resume seconds later than
    another one.
    """
    new_buckets(nats_server.url)
    publisher, reader = opened(publisher_of(nats_server)), opened(reader_of(nats_server))
    publish_when_possible(publisher, [a_key()])
    eventually(lambda: versions_in(reader) == {"key_1": 1})
    revision, reads_in_vain = reader.changes_since(0).revision, []
    with monkeypatch.context() as behind:

        async def nothing_new(_bucket, _sequence):
            reads_in_vain.append(time.monotonic())
            return []

        async def silence(_bucket):
            await asyncio.sleep(2)
            raise StoreUnavailableError("no answer")

        behind.setattr(bucket.Bucket, "changes_after", nothing_new)
        if is_leader_silent:
            behind.setattr(bucket.Bucket, "state", silence)
        content = msgspec.json.encode(a_key(2, revoked=True))
        on_bucket(nats_server.url, edge.BUCKET, lambda bucket, _: bucket.put(key_of(a_key()), content))
        stored_at = time.monotonic()
        eventually(lambda: reads_in_vain and reads_in_vain[-1] > stored_at + 4 * READ_EVERY_S)
        assert staleness_of(reader) > 3 * READ_EVERY_S, "no read counts"
        assert not is_out_of_touch(reader, revision), "the server answers"
    eventually(lambda: versions_in(reader) == {"key_1": 2} and staleness_of(reader) <= FRESH_S)
    assert reader.staleness_s(revision) == math.inf, "who has not taken the change knows less than the reader"


def test_a_leader_that_has_lost_the_others_confirms_nothing(nats_cluster, opened):
    new_buckets(nats_cluster.url)
    leader = nats_cluster.index_of(leader_when_complete(nats_cluster.url))
    reader = opened(reader_of(nats_cluster))
    time.sleep(2 * LEADER_CONTACT_S_MAX)  # Nothing is stored, and the others are still heard.
    eventually(lambda: staleness_of(reader) <= FRESH_S)
    for index in {0, 1, 2} - {leader}:
        nats_cluster.freeze(index)
    eventually(lambda: staleness_of(reader) > 2 * FRESH_S)
    for index in {0, 1, 2} - {leader}:
        nats_cluster.thaw(index)
    eventually(lambda: staleness_of(reader) <= FRESH_S)


def test_a_wrong_announcement_keeps_a_reader_neither_stale_nor_slow(nats_server, opened):
    new_buckets(nats_server.url)
    publisher, reader = opened(publisher_of(nats_server)), opened(reader_of(nats_server))

    async def announce(_, connection):
        client = await connection.client()
        await client.publish(edge.ANNOUNCEMENTS, str(10**9).encode())
        await client.flush()

    for version in (1, 2):
        on_bucket(nats_server.url, edge.BUCKET, announce)
        publish_when_possible(publisher, [a_key(version)])
        eventually(lambda version=version: versions_in(reader) == {"key_1": version})
        eventually(lambda: staleness_of(reader) <= READ_EVERY_S)


def test_entries_that_this_release_cannot_read_are_skipped(nats_server, opened):
    new_buckets(nats_server.url)
    publisher, reader = opened(publisher_of(nats_server)), opened(reader_of(nats_server))
    for key, value in (("usage.org_1", b'{"type":"usage"}'), ("key.key_2", b"{}"), ("key.key_1", b"")):
        on_bucket(nats_server.url, edge.BUCKET, lambda bucket, _, key=key, value=value: bucket.put(key, value))
    publisher.publish([a_key()])
    eventually(lambda: versions_in(reader) == {"key_1": 1})
    assert reader.changes_since(0).records == [a_key()]


def test_a_bucket_that_was_replaced_is_read_from_its_start(nats_server, opened):
    new_buckets(nats_server.url)
    publisher, reader = opened(publisher_of(nats_server)), opened(reader_of(nats_server))
    edge_id = publisher.edge_id()
    for version in range(1, 6):
        publisher.publish([a_key(version), a_key(version, "key_2")])
    eventually(lambda: versions_in(reader) == {"key_1": 5, "key_2": 5})
    revision = reader.changes_since(0).revision
    delete_bucket(nats_server.url, edge.BUCKET)
    with pytest.raises(StoreUnavailableError):
        publisher.publish([a_key(6)])
    create_buckets(nats_server.url)
    assert publisher.edge_id() != edge_id, "so that the control plane publishes everything again"
    publisher.publish([a_key(6)])
    changes = eventually(lambda: reader.changes_since(revision).records and reader.changes_since(revision))
    assert changes.records == [a_key(6)]
    assert changes.revision > revision
    assert versions_in(reader) == {"key_1": 6, "key_2": 5}, "what was not published again stays"


def test_a_bucket_that_was_deleted_is_created_again_with_another_id(nats_server, opened):
    new_buckets(nats_server.url)
    publisher = opened(publisher_of(nats_server))
    before = publisher.edge_id()
    delete_bucket(nats_server.url, edge.BUCKET)
    assert publisher.edge_id() not in {"", before}
    assert state_of(nats_server.url).identity == IDENTITY


def test_a_bucket_cannot_be_purged(nats_server):
    new_buckets(nats_server.url)
    with pytest.raises(ApiError, match="purge"):
        request(nats_server, f"STREAM.PURGE.KV_{edge.BUCKET}")


def test_a_bucket_of_another_installation_is_not_followed(nats_server, opened):
    new_buckets(nats_server.url)
    publisher, reader = opened(publisher_of(nats_server)), opened(reader_of(nats_server))
    publisher.publish([a_key()])
    eventually(lambda: versions_in(reader) == {"key_1": 1})
    delete_bucket(nats_server.url, edge.BUCKET)
    on_bucket(nats_server.url, edge.BUCKET, lambda bucket, _: bucket.create("another installation"))
    publisher.publish([a_key(2, revoked=True)])
    revision = reader.changes_since(0).revision
    eventually(lambda: is_out_of_touch(reader, revision))
    assert versions_in(reader) == {"key_1": 1}


def test_thousands_of_keys_are_published_and_loaded(nats_cluster, opened):
    new_buckets(nats_cluster.url)
    publisher = opened(publisher_of(nats_cluster))
    keys = [a_key(key_id=f"key_{number:05d}") for number in range(5_000)]
    for start in range(0, len(keys), 1_000):
        publish_when_possible(publisher, keys[start : start + 1_000])
    last = state_of(nats_cluster.url).last_sequence
    publish_when_possible(publisher, keys[:1_000])
    assert state_of(nats_cluster.url).last_sequence == last, "what is stored already is not stored again"
    loaded = opened(when_possible(lambda: reader_of(nats_cluster))).changes_since(0).records
    assert sorted(loaded, key=lambda key: key.key_id) == keys


def test_of_publishers_that_race_the_highest_version_wins(nats_cluster, opened):
    new_buckets(nats_cluster.url)
    publishers = [opened(publisher_of(nats_cluster)) for _ in range(3)]

    def publish(place):
        for version in range(place + 1, 31, len(publishers)):
            publish_when_possible(publishers[place], [a_key(version), a_key(31 - version, "key_2")])

    threads = [threading.Thread(target=publish, args=(place,)) for place in range(len(publishers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert versions_in(opened(when_possible(lambda: reader_of(nats_cluster)))) == {"key_1": 30, "key_2": 30}


def test_odd_record_ids_have_distinct_keys_that_nats_accepts(nats_server, opened):
    new_buckets(nats_server.url)
    publisher = opened(publisher_of(nats_server))
    ids = ["a.b", "a=2Eb", "a/b", "a%b", "a b", "é", "*", ">", "a~b", ".", "=", "_-", "a\r\nb"]
    publisher.publish([a_key(number, key_id) for number, key_id in enumerate(ids, 1)])
    assert versions_in(opened(reader_of(nats_server))) == {key_id: number for number, key_id in enumerate(ids, 1)}


def settings_on(servers, tmp_path):
    environment = servers.settings() | {"MAUVE_MASTER_KEY": base64.b64encode(bytes(32)).decode()}
    return settings_from(environment | {"MAUVE_DATA": str(tmp_path)})


def test_the_buckets_of_another_installation_are_refused(nats_server, tmp_path):
    new_buckets(nats_server.url)
    settings = settings_on(nats_server, tmp_path)
    prepare_edge(settings, IDENTITY)
    with pytest.raises(ForeignDataError, match="belongs to another installation"):
        prepare_edge(settings, "another")


def test_the_buckets_of_a_cluster_have_three_replicas(nats_cluster, tmp_path):
    for name in (edge.BUCKET, accepted.BUCKET):
        delete_bucket(nats_cluster.url, name)
    prepare_edge(settings_on(nats_cluster, tmp_path), IDENTITY)
    assert replicas_on(nats_cluster) == [3, 3]


def replicas_on(servers):
    async def replicas(_, connection):
        manager = (await connection.client()).jsm()
        return [
            (await manager.stream_info(f"KV_{name}")).config.num_replicas for name in (edge.BUCKET, accepted.BUCKET)
        ]

    return on_bucket(servers.url, edge.BUCKET, replicas)


def state_or_none(url):
    """Return the state, or None while the stream's servers elect a leader."""
    try:
        return state_of(url)
    except StoreUnavailableError:
        return None


def test_buckets_that_were_created_on_one_server_get_three_replicas(nats_cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(bucket, "_REPLICAS", 1)
    new_buckets(nats_cluster.url)
    before = state_of(nats_cluster.url)
    assert replicas_on(nats_cluster) == [1, 1]
    monkeypatch.undo()
    prepare_edge(settings_on(nats_cluster, tmp_path), IDENTITY)
    assert replicas_on(nats_cluster) == [3, 3]
    assert eventually(lambda: state_or_none(nats_cluster.url))[:3] == before[:3]


def test_servers_that_do_not_answer_are_refused_in_one_sentence(own_nats_server, tmp_path):
    own_nats_server.kill(0)
    with pytest.raises(UnsupportedServerError, match="MAUVE_STREAM_URL") as refused:
        prepare_edge(settings_on(own_nats_server, tmp_path), IDENTITY)
    assert "password" not in str(refused.value)


def test_a_key_works_in_every_process_soon_after_it_is_minted_and_not_after_it_is_revoked(own_nats_server, tmp_path):
    with service_on(own_nats_server, tmp_path) as (service, _, app):
        minted = mauve_json(service.data, "key", "mint", "--app", app["app_id"], "--kind", "sk")
        for url in (service.url, service.ingest_url):
            eventually(lambda url=url: post_events(url, minted["key"]) == 202)
        mauve_json(service.data, "key", "revoke", "--app", app["app_id"], minted["key_id"])
        for url in (service.url, *[service.ingest_url] * 4):  # each is a new connection, to any of the workers
            eventually(lambda url=url: post_events(url, minted["key"]) == 401)
        assert post_events(service.ingest_url, app["sk_key"]) == 202


@pytest.mark.parametrize(
    ("leave", "return_"), [(Nats.kill, Nats.start), (Nats.freeze, Nats.thaw)], ids=["down", "hangs"]
)
def test_without_nats_a_command_tries_once_and_says_that_its_change_is_delayed(
    own_nats_server, tmp_path, monkeypatch, capsys, leave, return_
):
    settings = settings_on(own_nats_server, tmp_path)
    prepare(settings)
    leave(own_nats_server, 0)
    attempts, new_client = [], connection._new_client  # noqa: SLF001 - to count them
    monkeypatch.setattr(connection, "_new_client", lambda: attempts.append(1) or new_client())
    with open_or_create(settings) as parts:
        assert parts.catalog.organizations.list_all() == []
    assert capsys.readouterr().err == "", "nothing was changed"
    with open_or_create(settings) as parts:
        operator.create_organization(parts, "Acme")
    (sentence,) = capsys.readouterr().err.splitlines()
    assert sentence.startswith("mauve: the change is saved, but not in force everywhere until NATS is back (")
    assert len(attempts) == 2, "one for each command"
    return_(own_nats_server, 0)
    own_nats_server.wait_until_ready()
    with open_or_create(settings) as parts:
        assert parts.publisher.unpublished() == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("led_for_s", "waits_s"), [(math.inf, 0.0), (0.9, 0.1), (-3600.0, 1.0)])
def test_a_publication_waits_until_its_leader_is_the_only_one(opened, monkeypatch, led_for_s, waits_s):
    """Its clock may have been set back since it was elected."""

    class Led:
        async def state(self):
            return bucket.BucketState(IDENTITY, "bucket", 1, led_for_s)

        async def entries(self, _keys):
            return {}

        async def put(self, *_arguments):
            return 1

    pauses = []

    async def note(seconds):
        pauses.append(seconds)

    monkeypatch.setattr(edge, "LEADER_CONTACT_S_MAX", 1.0)
    publisher = opened(NatsEdgePublisher(Secret("nats://127.0.0.1:1"), lambda: IDENTITY))
    monkeypatch.setattr(publisher, "_bucket", Led())
    monkeypatch.setattr(publisher, "_announce", note)
    monkeypatch.setattr(edge, "asyncio", SimpleNamespace(**vars(asyncio) | {"sleep": note}))
    assert publisher.publish([a_key()]) == "bucket"
    assert max(0.0, pauses[-1]) == pytest.approx(waits_s)
