"""The log on NATS: what is promised while servers fail, and what is refused at start.

Proves: nats-down, bad-server.
"""

import asyncio
import base64
import contextlib
import secrets
import threading
import time
from collections import Counter
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from urllib.parse import quote

import httpx2 as httpx
import pytest
from structlog.testing import capture_logs

from mauve.config import settings_from
from mauve.core.secret import Secret
from mauve.stores import ForeignDataError, StoreUnavailableError
from mauve.stores.log import LogFullError, LogUnavailableError, number_of, stream_of
from mauve.stores.log.nats import log_reader, log_writer
from mauve.stores.log.nats.log_reader import NatsLogMaintenance, NatsLogReader
from mauve.stores.log.nats.log_writer import NatsLogWriter
from mauve.stores.log.nats.servers import StreamPlan, prepare_streams
from mauve.stores.log.nats.streams import STREAM_ID, STREAMS, first_number, stream_name, subject_of
from mauve.wiring.bootstrap import prepare
from support.clocks import Ticks
from support.nats import PASSWORD, Nats
from support.nats_streams import delete_streams, info_of, publish, request
from support.service import (
    PATIENCE_S,
    SERVERS,
    bearer,
    clean_environment,
    eventually,
    ledger_rows,
    mauve,
    running,
    stored_events,
    token_for,
    until_loaded,
)
from support.traffic import Traffic

ANSWER_S_MAX = 20.0  # of an append while a server hangs
BYTES_MAX = 2**30
PLAN = StreamPlan("an installation", 2**30, {})


@pytest.fixture
def streams(nats_cluster):
    """New streams on three servers."""
    nats_cluster.wait_until_ready()
    delete_streams(nats_cluster)
    prepare_streams(Secret(nats_cluster.url), nats_cluster.count, PLAN)
    return nats_cluster


def settings_of(servers):
    return {**servers.settings(), "MAUVE_MASTER_KEY": base64.b64encode(bytes(32)).decode()}


def data_on(servers, tmp_path, name="data"):
    delete_streams(servers)
    SERVERS[tmp_path / name] = settings_of(servers)
    return tmp_path / name


def prepared_on(servers, tmp_path):
    """Prepare an installation as a start does; return its settings."""
    data = data_on(servers, tmp_path)
    settings = replace(settings_from(clean_environment(data)), data=data)
    prepare(settings)
    return settings


def read_all(servers):
    """Return every record that the loader would read, with its place."""
    with closing(NatsLogReader(Secret(servers.url))) as reader:
        found = []
        for stream in STREAMS:
            after = 0
            while batch := reader.read(stream, after, BYTES_MAX):
                found += [(stream, record.number, record.payload) for record in batch]
                after = batch[-1].number
        return found


def leader_of(servers, stream):
    return eventually(lambda: info_of(servers, stream).cluster.leader)


class Appender:
    """Appends numbered records from several coroutines, in a thread, and notes what was acknowledged."""

    def __init__(self, servers, senders=8, filling=b""):
        self._url = Secret(servers.url)
        self._filling = filling
        self._senders = senders
        self.acked = {}
        self.failed = Counter()
        self.longest_s = 0.0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_error):
        self._is_over.set()
        self._thread.join()

    def wait_for_more(self, count=50):
        before = len(self.acked)
        eventually(lambda: len(self.acked) >= before + count)

    async def _main(self):
        writer = NatsLogWriter(self._url)
        await writer.open()
        await asyncio.gather(*(self._send(writer, name) for name in range(self._senders)))
        assert not writer.has_failed
        await writer.close()

    async def _send(self, writer, name):
        number = 0
        while not self._is_over.is_set():
            payload, number = b"%d/%d" % (name, number), number + 1
            began = time.monotonic()
            try:
                self.acked[payload] = await writer.append([payload, b" ", self._filling])
            except LogUnavailableError:
                self.failed[payload] += 1
                await asyncio.sleep(0.02)
            self.longest_s = max(self.longest_s, time.monotonic() - began)

    def check(self, servers):
        """Every acknowledged record is read once, at its place; one that was not acknowledged at most once."""
        for stream in STREAMS:
            leader_of(servers, stream)  # After a kill one may still be elected.
        found = read_all(servers)
        places = {payload.partition(b" ")[0]: (stream, number) for stream, number, payload in found}
        times = Counter(payload.partition(b" ")[0] for _, _, payload in found)
        assert set(times.values()) == {1}, "nothing is stored twice"
        assert self.acked.keys() <= times.keys() <= self.acked.keys() | self.failed.keys()
        assert {payload: (stream_of(place), number_of(place)) for payload, place in self.acked.items()} == {
            payload: places[payload] for payload in self.acked
        }


class TestKills:
    def test_after_kills_of_a_leader_each_acknowledged_record_is_read_once(self, streams):
        with Appender(streams) as appender:
            for stream in STREAMS:
                appender.wait_for_more()
                index = streams.index_of(leader_of(streams, stream))
                streams.kill(index)
                appender.wait_for_more()
                streams.start(index)
            appender.wait_for_more()
        appender.check(streams)

    def test_after_a_kill_of_two_of_three_each_acknowledged_record_is_read_once(self, streams):
        with Appender(streams) as appender:
            appender.wait_for_more()
            for index in (0, 1):
                streams.kill(index)
            eventually(lambda: appender.failed)  # Nothing can be stored without a quorum.
            for index in (0, 1):
                streams.start(index)
            appender.wait_for_more()
        appender.check(streams)
        assert appender.longest_s < ANSWER_S_MAX

    def test_after_a_kill_of_all_three_each_acknowledged_record_is_read_once(self, streams):
        with Appender(streams) as appender:
            for _ in range(2):
                appender.wait_for_more()
                for index in range(3):
                    streams.kill(index)
                for index in range(3):
                    streams.start(index)
                appender.wait_for_more()
        appender.check(streams)

    def test_while_any_one_server_is_frozen_the_others_go_on(self, streams):
        # More than the socket of a frozen server takes: the client must not wait for it.
        with Appender(streams, filling=secrets.token_bytes(600_000)) as appender:
            for frozen in range(3):
                appender.wait_for_more(20)
                streams.freeze(frozen)
                try:
                    appender.wait_for_more(20)
                finally:
                    streams.thaw(frozen)
            appender.wait_for_more(20)
        streams.wait_until_ready()
        appender.check(streams)
        assert appender.longest_s < ANSWER_S_MAX

    def test_while_every_server_is_frozen_an_append_is_refused_in_time(self, streams):
        with Appender(streams, senders=4) as appender:
            appender.wait_for_more()
            for index in range(3):
                streams.freeze(index)
            try:
                eventually(lambda: sum(appender.failed.values()) >= 20)
            finally:
                for index in range(3):
                    streams.thaw(index)
            appender.wait_for_more()
        streams.wait_until_ready()
        appender.check(streams)
        assert appender.longest_s < ANSWER_S_MAX


class TestWriter:
    def test_concurrent_appends_share_messages(self, streams):
        async def main():
            writer = NatsLogWriter(Secret(streams.url))
            await writer.open()
            await asyncio.gather(*(writer.append([b"%d" % number]) for number in range(640)))
            await writer.close()

        asyncio.run(main())
        assert sum(info_of(streams, stream).state.messages for stream in STREAMS) < 64
        assert sorted(int(payload) for _, _, payload in read_all(streams)) == list(range(640))

    def test_a_full_log_refuses_and_accepts_again_once_there_is_room(self, nats_server):
        delete_streams(nats_server)
        prepare_streams(Secret(nats_server.url), 1, StreamPlan("an installation", 3 * 2**20, {}))
        block = secrets.token_bytes(200_000)

        async def main():
            writer = NatsLogWriter(Secret(nats_server.url))
            stored = 0
            with contextlib.suppress(LogFullError):
                while stored < 100:
                    await writer.append([block])
                    stored += 1
            assert 9 <= stored <= 15, "every stream is used before the log is full"
            request(nats_server, f"STREAM.PURGE.{stream_name(STREAMS[1])}")
            assert stream_of(await writer.append([block])) == STREAMS[1]
            await writer.close()

        asyncio.run(main())

    def test_more_than_fits_into_the_queue_is_refused_at_once(self, monkeypatch):
        monkeypatch.setattr("mauve.stores.log.nats.log_writer.WAITING_BYTES_MAX", 10_000)

        async def main():
            writer = NatsLogWriter(Secret("nats://127.0.0.1:1"))
            waiting = writer.append([bytes(9_000)])
            with pytest.raises(LogUnavailableError, match="waiting"):
                await writer.append([bytes(2_000)])
            with pytest.raises(LogUnavailableError):
                await waiting
            await writer.close()

        asyncio.run(main())


class TestReader:
    def append(self, servers, payloads):
        async def main():
            writer = NatsLogWriter(Secret(servers.url))
            for payload in payloads:
                await writer.append([payload])
            await writer.close()

        asyncio.run(main())

    def test_a_damaged_message_is_reported_once_and_the_others_are_read(self, nats_server):
        delete_streams(nats_server)
        prepare_streams(Secret(nats_server.url), 1, PLAN)
        self.append(nats_server, [b"before"])
        publish(nats_server, subject_of(STREAMS[0]), b"not a group of records")
        with closing(NatsLogReader(Secret(nats_server.url))) as reader:
            for _ in range(3):
                assert [record.payload for record in reader.read(STREAMS[0], 0, BYTES_MAX)] == [b"before"]
            assert reader.quarantined() == 1
            self.append(nats_server, [b"after"])
            assert [record.payload for record in reader.read(STREAMS[0], 0, BYTES_MAX)] == [b"before", b"after"]
            assert reader.quarantined() == 1

    def test_what_a_replica_does_not_have_comes_from_the_leader(self, nats_server, monkeypatch):
        delete_streams(nats_server)
        prepare_streams(Secret(nats_server.url), 1, PLAN)
        self.append(nats_server, [b"%d" % number for number in range(8)])
        request(nats_server, f"STREAM.MSG.DELETE.{stream_name(STREAMS[0])}", {"seq": 4, "no_erase": True})
        whole = log_reader.batch_from

        async def lagging(*arguments):
            return [message for message in await whole(*arguments) if message.sequence in {1, 3, 6}]

        monkeypatch.setattr(log_reader, "batch_from", lagging)
        with closing(NatsLogReader(Secret(nats_server.url))) as reader:
            found = [record.payload for record in reader.read(STREAMS[0], 0, BYTES_MAX)]
        assert found == [b"0", b"1", b"2", b"4", b"5", b"6", b"7"]

    @pytest.fixture
    def replaced(self, monkeypatch):
        """A replaced leader and a replica without messages: what a reader finds, by sequence."""
        lacking = set()
        found, whole = log_reader.from_leader, log_reader.batch_from

        async def from_leader(client, stream, sequence):
            return None if sequence in lacking else await found(client, stream, sequence)

        async def batch_from(*arguments):
            return [message for message in await whole(*arguments) if message.sequence not in lacking]

        monkeypatch.setattr(log_reader, "from_leader", from_leader)
        monkeypatch.setattr(log_reader, "batch_from", batch_from)
        return lacking

    def test_a_message_that_only_a_replaced_leader_lacks_is_not_skipped(self, nats_server, replaced):
        delete_streams(nats_server)
        prepare_streams(Secret(nats_server.url), 1, PLAN)
        self.append(nats_server, [b"%d" % number for number in range(4)])
        request(nats_server, f"STREAM.MSG.DELETE.{stream_name(STREAMS[0])}", {"seq": 2, "no_erase": True})
        with closing(NatsLogReader(Secret(nats_server.url))) as reader:
            replaced |= {1, 3}
            for _ in range(2):
                with pytest.raises(StoreUnavailableError, match="lacks its message 1"):
                    reader.read(STREAMS[0], 0, BYTES_MAX)
            with pytest.raises(StoreUnavailableError, match="lacks its message 3"):
                reader.trim_now(STREAMS[0], first_number(3))
            replaced.clear()
            assert [record.payload for record in reader.read(STREAMS[0], 0, BYTES_MAX)] == [b"0", b"2", b"3"]

    def test_messages_that_stay_missing_are_reported_once_and_the_others_are_read(
        self, nats_server, replaced, monkeypatch
    ):
        delete_streams(nats_server)
        prepare_streams(Secret(nats_server.url), 1, PLAN)
        self.append(nats_server, [b"%d" % number for number in range(5)])
        monkeypatch.setattr(log_reader, "FROM_LEADER_MAX", 1)  # so that they are missed one by one
        monkeypatch.setattr(log_reader, "MISSING_TRIES_MIN", 2)
        ticks = Ticks()
        monkeypatch.setattr(log_reader, "time", SimpleNamespace(monotonic=ticks))
        replaced |= {2, 4}
        with closing(NatsLogReader(Secret(nats_server.url))) as reader:

            def read():
                return [record.payload for record in reader.read(STREAMS[0], 0, BYTES_MAX)]

            def is_missing(sequence):
                with pytest.raises(StoreUnavailableError, match=f"lacks its message {sequence}"):
                    read()

            is_missing(2)
            ticks.now_s += log_reader.MISSING_S_MAX + 1
            is_missing(4)
            replaced.discard(2)
            is_missing(4)
            replaced.add(2)
            is_missing(2)  # It was found meanwhile: it is waited for again.
            ticks.now_s += log_reader.MISSING_S_MAX + 1
            for _ in range(2):
                assert read() == [b"0", b"2", b"4"]
            assert reader.quarantined() == 3, "the second one twice"

    def test_it_trims_rarely_and_maintenance_at_once(self, nats_server):
        delete_streams(nats_server)
        prepare_streams(Secret(nats_server.url), 1, PLAN)
        self.append(nats_server, [b"%d" % number for number in range(8)])
        with closing(NatsLogReader(Secret(nats_server.url))) as reader:
            records = reader.read(STREAMS[0], 0, BYTES_MAX)
            for record in records[:6]:
                reader.trim(STREAMS[0], record.number)
            assert info_of(nats_server, STREAMS[0]).state.first_seq == 2
        maintenance = NatsLogMaintenance(
            lambda: NatsLogReader(Secret(nats_server.url)), lambda: {STREAMS[0]: records[5].number}
        )
        assert maintenance.blank_loaded() is True
        assert maintenance.erase_damaged("anyone") == 0
        assert [payload for _, _, payload in read_all(nats_server)] == [b"6", b"7"]

    def test_a_message_of_a_newer_release_stops_loading_and_is_kept(self, nats_server, monkeypatch):
        delete_streams(nats_server)
        prepare_streams(Secret(nats_server.url), 1, PLAN)
        self.append(nats_server, [b"before"])
        monkeypatch.setattr(log_writer, "FORMAT", "2")
        self.append(nats_server, [b"newer"])
        monkeypatch.undo()
        self.append(nats_server, [b"after"])
        with closing(NatsLogReader(Secret(nats_server.url))) as reader:
            (before,) = reader.read(STREAMS[0], 0, BYTES_MAX)
            assert before.payload == b"before"
            with pytest.raises(StoreUnavailableError, match="written by a newer release: upgrade this machine"):
                reader.read(STREAMS[0], before.number, BYTES_MAX)
            assert reader.quarantined() == 0
            reader.trim_now(STREAMS[0], before.number)
            assert info_of(nats_server, STREAMS[0]).state.messages == 2
            with pytest.raises(StoreUnavailableError, match="newer release"):  # the position of a newer loader
                reader.trim_now(STREAMS[0], first_number(2))
            assert info_of(nats_server, STREAMS[0]).state.messages == 2

    def test_loaded_messages_are_kept_for_a_while_and_do_not_count_as_waiting(self, nats_server):
        delete_streams(nats_server)
        prepare_streams(Secret(nats_server.url), 1, PLAN)
        self.append(nats_server, [b"old"] * 4)
        boundary = datetime.now(UTC)
        eventually(lambda: datetime.now(UTC) > boundary)
        self.append(nats_server, [b"new"] * 4)
        clock = [boundary]
        keep = timedelta(hours=48)
        reader = NatsLogReader(Secret(nats_server.url), keep=keep, trim_every_s=0, now=lambda: clock[0])
        with closing(reader):
            numbers = [record.number for record in reader.read(STREAMS[0], 0, BYTES_MAX)]

            def messages_when_trimmed(now, through):
                clock[0] = now
                reader.trim(STREAMS[0], through)
                return info_of(nats_server, STREAMS[0]).state.messages

            assert messages_when_trimmed(boundary, numbers[6]) == 8
            assert reader.backlog_bytes({STREAMS[0]: numbers[7]}) == 0
            assert 0 < reader.backlog_bytes({STREAMS[0]: numbers[6]}) < reader.stored_bytes() / 4
            assert messages_when_trimmed(boundary + keep, numbers[1]) == 6, "only what is loaded"
            assert messages_when_trimmed(boundary + keep, numbers[6]) == 4, "only what is old"
            assert messages_when_trimmed(boundary + 2 * keep, numbers[6]) == 1
            self.append(nats_server, [b"newer"])
            reader.trim_now(STREAMS[0], numbers[7])
            assert info_of(nats_server, STREAMS[0]).state.messages == 1, "maintenance keeps nothing that is loaded"

    def test_loaded_messages_make_room_once_they_use_half_of_it(self, nats_server):
        delete_streams(nats_server)
        prepare_streams(Secret(nats_server.url), 1, StreamPlan("an installation", 3 * 2**20, {}))
        reader = NatsLogReader(Secret(nats_server.url), keep=timedelta(hours=48), trim_every_s=0)
        with closing(reader):
            for messages, first in ((1, 1), (2, 1), (2, 2)):  # The third makes more than half: the oldest goes.
                self.append(nats_server, [secrets.token_bytes(200_000)])
                *_, last = reader.read(STREAMS[0], 0, BYTES_MAX)
                reader.trim(STREAMS[0], last.number - 64)  # The last message is not loaded yet.
                state = info_of(nats_server, STREAMS[0]).state
                assert (state.messages, state.first_seq) == (messages, first)

    def test_a_stream_that_is_missing_or_was_created_again_is_reported_and_left_out(self, nats_server):
        delete_streams(nats_server)
        ids = prepare_streams(Secret(nats_server.url), 1, PLAN)
        with closing(NatsLogReader(Secret(nats_server.url), ids)) as reader:
            assert reader.read(STREAMS[0], 0, BYTES_MAX) == []
            delete_streams(nats_server)
            with capture_logs() as logs:
                self.reads_nothing(reader)
            assert {line["reason"] for line in logs} == {"is missing"}
            prepare_streams(Secret(nats_server.url), 1, PLAN)
            self.append(nats_server, [b"new"])
            self.reads_nothing(reader)
            assert info_of(nats_server, STREAMS[0]).state.messages == 1, "it is not trimmed"

    def reads_nothing(self, reader):
        assert reader.read(STREAMS[0], 0, BYTES_MAX) == []
        assert STREAMS[0] in reader.lost_streams()
        assert (reader.backlog_bytes({}), reader.stored_bytes(), reader.lost_after({})) == (0, 0, {})
        reader.trim_now(STREAMS[0], 640)


class TestStreams:
    def test_each_has_three_copies_and_a_leader_of_its_own(self, streams):
        configs = [info_of(streams, stream).config for stream in STREAMS]
        kept = {(each.num_replicas, each.storage, each.discard, each.max_age) for each in configs}
        assert kept == {(3, "file", "new", 0)}
        eventually(lambda: len({leader_of(streams, stream) for stream in STREAMS}) == 3)

    def test_they_are_kept_and_follow_the_settings(self, nats_server):
        delete_streams(nats_server)
        ids = prepare_streams(Secret(nats_server.url), 1, PLAN)
        again = prepare_streams(Secret(nats_server.url), 1, StreamPlan("an installation", 2**29, ids))
        assert again == ids
        assert {info_of(nats_server, stream).config.max_bytes for stream in STREAMS} == {2**29 // 3}
        assert info_of(nats_server, STREAMS[0]).config.metadata[STREAM_ID] == ids[STREAMS[0]]

    def test_several_machines_that_start_at_once_agree(self, nats_cluster):
        delete_streams(nats_cluster)
        found = []
        threads = [
            threading.Thread(target=lambda: found.append(prepare_streams(Secret(nats_cluster.url), 3, PLAN)))
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 3
        assert found[0] == found[1] == found[2]


class TestRefusals:
    def refusal(self, tmp_path, settings):
        data = tmp_path / "refused"
        SERVERS[data] = {"MAUVE_MASTER_KEY": base64.b64encode(bytes(32)).decode(), **settings}
        done = mauve(data, "serve", "--port", "0", "--ingest-port", "0")
        assert done.returncode == 1, done.stderr
        (sentence,) = done.stderr.splitlines()
        assert sentence.startswith("mauve: ")
        assert PASSWORD not in sentence
        assert quote(PASSWORD, safe="") not in sentence
        return sentence

    def test_servers_that_cannot_be_reached(self, tmp_path):
        sentence = self.refusal(tmp_path, {"MAUVE_STREAM_URL": "nats://127.0.0.1:1,nats://127.0.0.1:2"})
        assert "cannot be reached" in sentence
        assert "MAUVE_STREAM_URL" in sentence

    def test_a_wrong_password(self, nats_server, tmp_path):
        settings = nats_server.settings() | {"MAUVE_STREAM_URL": nats_server.url_as("mauve", "guessed")}
        sentence = self.refusal(tmp_path, settings)
        assert "wrong user or password: check MAUVE_STREAM_URL" in sentence
        assert "guessed" not in sentence

    @pytest.mark.parametrize(
        ("options", "says"),
        [
            ({"sync": '"2m"'}, "'sync_interval: always'"),
            ({"jetstream": False}, "JetStream is off"),
            ({"max_payload": 2**20}, "'max_payload: 8MB'"),
            ({"file_store": 2**20}, "MAUVE_BACKLOG_MB"),
        ],
    )
    def test_a_server_that_may_lose_or_refuse_events(self, tmp_path, options, says):
        with Nats(1, **options) as server:
            sentence = self.refusal(tmp_path, server.settings())
        assert says in sentence
        assert "MAUVE_STREAM_URL" in sentence

    def test_one_of_three_that_does_not_say_how_it_syncs(self, nats_cluster, tmp_path):
        delete_streams(nats_cluster)
        two = ",".join(nats_cluster.monitor_url.split(",")[:2])
        for monitors in (two, f"{two},http://127.0.0.1:1"):
            sentence = self.refusal(tmp_path, nats_cluster.settings() | {"MAUVE_STREAM_MONITOR_URL": monitors})
            assert "MAUVE_STREAM_MONITOR_URL" in sentence

    def test_a_server_with_the_monitoring_address_of_another(self, nats_server, tmp_path):
        delete_streams(nats_server)
        with Nats(1, sync='"2m"') as unsafe:
            settings = unsafe.settings() | {"MAUVE_STREAM_MONITOR_URL": nats_server.monitor_url}
            sentence = self.refusal(tmp_path, settings)
        assert "it is unknown whether it syncs" in sentence
        assert "MAUVE_STREAM_MONITOR_URL" in sentence

    def test_a_server_that_fails_later_does_not_keep_the_service_from_starting(self, nats_cluster, tmp_path):
        data = data_on(nats_cluster, tmp_path)
        assert mauve(data, "org", "create", "Acme").returncode == 0
        nats_cluster.kill(2)
        try:
            done = mauve(data, "org", "list")
        finally:
            nats_cluster.start(2)
        assert done.returncode == 0, done.stderr

    def test_the_streams_of_another_installation(self, nats_server, tmp_path):
        delete_streams(nats_server)
        prepare_streams(Secret(nats_server.url), 1, PLAN)
        assert "belongs to another installation" in self.refusal(tmp_path, nats_server.settings())

    def test_streams_that_were_deleted_or_created_again(self, nats_server, tmp_path):
        settings = prepared_on(nats_server, tmp_path)
        identity = info_of(nats_server, STREAMS[0]).config.metadata["mauve-installation"]
        delete_streams(nats_server)
        for loss in ("is missing", "was created again"):
            with pytest.raises(ForeignDataError, match=f"{stream_name(STREAMS[0])} {loss}"):
                prepare(settings)
            prepare_streams(Secret(nats_server.url), 1, StreamPlan(identity, 2**30, {}))

    def test_going_back_to_files(self, nats_server, tmp_path):
        data = prepared_on(nats_server, tmp_path).data
        SERVERS[data] = {"MAUVE_MASTER_KEY": SERVERS[data]["MAUVE_MASTER_KEY"]}
        done = mauve(data, "org", "list")
        assert (done.returncode, "set MAUVE_STREAM_URL" in done.stderr) == (1, True), done.stderr


class TestService:
    def post(self, service, key, **event):
        return httpx.post(
            f"{service.ingest_url}/v1/events", json={"name": "seen", **event}, headers=key, timeout=PATIENCE_S
        )

    def counts(self, service, key):
        until_loaded(service)
        return httpx.get(f"{service.url}/v1/metrics/event_count?name=seen", headers=key).json()["data"]

    def key_for(self, service):
        token = token_for(service.data)
        app = httpx.post(f"{service.url}/v1/apps", json={"name": "App"}, headers=bearer(token)).json()
        key = bearer(app["sk_key"])

        def is_known():
            # A malformed body is refused after the key is checked. Each is a new connection, to any of the workers.
            replies = [httpx.post(f"{service.ingest_url}/v1/events", json=[], headers=key) for _ in range(8)]
            return all(reply.status_code != 401 for reply in replies)

        eventually(is_known)
        return key

    def test_events_are_accepted_queued_on_nats_and_counted(self, nats_server, tmp_path):
        data = data_on(nats_server, tmp_path)
        with running(data, "--workers", "2") as service:
            key = self.key_for(service)
            for number in range(10):
                assert self.post(service, key, id=str(number)).status_code == 202
            assert self.counts(service, key) == [{"name": "seen", "count": 10}]
            assert "ok   queue" in mauve(data, "doctor").stdout
            assert service.stop() == 0
        assert len({row[5] for row in stored_events(data)}) == 10
        assert set(dict(ledger_rows(data, "SELECT stream, number FROM load_positions"))) <= {*STREAMS, 255}
        assert not (data / "log").exists()

    def test_after_kills_under_load_each_acknowledged_item_is_counted_once(self, nats_cluster, tmp_path):
        with running(data_on(nats_cluster, tmp_path), "--workers", "2") as service:
            # A group whose acknowledgement is lost may be stored: its senders get 503.
            with Traffic(service, is_disk_sound=False) as traffic:
                for dying in ([0], [1, 2], [0, 1, 2]):
                    before = len(traffic.acked)
                    eventually(lambda before=before: len(traffic.acked) > before + 20)
                    for index in dying:
                        nats_cluster.kill(index)
                    time.sleep(0.5)
                    for index in dying:
                        nats_cluster.start(index)
                before = len(traffic.acked)
                eventually(lambda: len(traffic.acked) > before + 20)
            figures = traffic.figures_when_loaded(service)
            assert service.stop() == 0
            traffic.check(service, figures)

    def test_without_a_quorum_events_get_503_and_are_accepted_again_afterwards(self, nats_cluster, tmp_path):
        with running(data_on(nats_cluster, tmp_path), "--workers", "1") as service:
            key = self.key_for(service)
            assert self.post(service, key, id="1").status_code == 202
            for index in (0, 1):
                nats_cluster.kill(index)
            try:
                began = time.monotonic()
                refused = self.post(service, key, id="2")
                assert (refused.status_code, "retry-after" in refused.headers) == (503, True)
                assert time.monotonic() - began < ANSWER_S_MAX
                assert httpx.get(f"{service.url}/healthz").status_code == 200
            finally:
                for index in (0, 1):
                    nats_cluster.start(index)
            eventually(lambda: self.post(service, key, id="2").status_code == 202)
            assert self.counts(service, key) == [{"name": "seen", "count": 2}]

    def test_events_that_were_queued_in_files_are_loaded_after_the_move(self, nats_server, tmp_path):
        data = data_on(nats_server, tmp_path)
        on_nats = SERVERS[data]
        SERVERS[data] = {"MAUVE_MASTER_KEY": on_nats["MAUVE_MASTER_KEY"]}
        with running(data, "--workers", "1", environment={"MAUVE_INGEST_FLUSH_SECONDS": "30"}) as service:
            key = self.key_for(service)
            until_loaded(service)
            assert self.post(service, key, id="in a file").status_code == 202
            service.process.kill()
            service.process.wait()
        SERVERS[data] = on_nats
        moved = mauve(data, "move")
        assert moved.returncode == 0, moved.stderr
        with running(data, "--workers", "1") as service:
            assert self.post(service, key, id="on NATS").status_code == 202
            assert self.post(service, key, id="in a file").status_code == 202
            assert self.counts(service, key) == [{"name": "seen", "count": 2}]
