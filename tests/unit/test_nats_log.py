"""The pure rules of the log on NATS: how records share a message, and which servers are refused."""

import asyncio
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mauve.core.secret import Secret
from mauve.stores import UnsupportedServerError
from mauve.stores.log.nats import monitors, servers
from mauve.stores.log.nats.connection import connect
from mauve.stores.log.nats.messages import DamagedGroupError, NewerFormatError, packed, unpacked
from mauve.stores.log.nats.monitors import Server, check_server
from mauve.stores.log.nats.servers import check_servers
from mauve.stores.log.nats.streams import RECORDS_MAX, first_number, sequence_of
from support.service import PATIENCE_S

RECORDS = st.lists(st.lists(st.binary(max_size=50), max_size=3), min_size=1, max_size=RECORDS_MAX)


@given(RECORDS, st.integers(1, 2**39))
def test_the_records_of_a_message_are_returned_whole_under_increasing_numbers(records, sequence):
    found = unpacked(sequence, packed(records))
    assert [record.payload for record in found] == [b"".join(parts) for parts in records]
    assert [record.number for record in found] == [first_number(sequence) + place for place in range(len(records))]
    assert {sequence_of(record.number) for record in found} == {sequence}


@given(RECORDS, st.integers(0), st.integers(1, 255))
def test_a_changed_byte_is_noticed(records, place, change):
    message = bytearray(packed(records))
    message[place % len(message)] ^= change
    try:
        found = unpacked(1, bytes(message))
    except DamagedGroupError:
        return
    # Some bits of a compressed frame mean nothing.
    assert [record.payload for record in found] == [b"".join(parts) for parts in records]


@given(st.binary(max_size=200))
def test_other_bytes_are_no_group(content):
    with pytest.raises(DamagedGroupError):
        unpacked(1, content)


def test_the_format_of_a_later_release_is_not_read():
    with pytest.raises(NewerFormatError, match="written by a newer release: upgrade this machine"):
        unpacked(1, packed([[b"a"]]), "2")


def test_a_message_without_a_format_is_no_group():
    with pytest.raises(DamagedGroupError, match="no format"):
        unpacked(1, packed([[b"a"]]), None)


def a_server(version):
    whole = {"server_id": "N1", "server_name": "n1", "version": version, "max_payload": 8 * 2**20}
    return msgspec.convert(whole | {"jetstream": {"config": {"sync_always": True}}}, Server)


@pytest.mark.parametrize("version", ["2.10.29", "1.4.1"])
def test_an_old_version_is_refused(version):
    with pytest.raises(UnsupportedServerError, match=r"2\.11 or later"):
        check_server(a_server(version))


@pytest.mark.parametrize("version", ["2.11.0", "2.15.1-beta", "3.0.0"])
def test_a_new_version_is_accepted(version):
    assert a_server(version).version == version
    check_server(a_server(version))


def test_every_server_of_a_large_cluster_is_asked_at_once(monkeypatch):
    together = threading.Barrier(7)

    class Monitor(BaseHTTPRequestHandler):
        """Answers for the server in its path, once all are asked."""

        def do_GET(self):
            together.wait(PATIENCE_S)
            name = self.path.split("/")[1]
            jetstream = {"config": {"sync_always": True}, "meta": {"cluster_size": 7}}
            whole = {"server_id": name, "server_name": name, "version": "2.11.0", "max_payload": 8 * 2**20}
            self.send_response(200)
            self.end_headers()
            self.wfile.write(msgspec.json.encode(whole | {"jetstream": jetstream}))

        def log_message(self, *_arguments):
            pass

    monkeypatch.setattr(servers, "check_connection", lambda _url: None)
    for module in (servers, monitors):
        monkeypatch.setattr(module, "MONITOR_S_MAX", PATIENCE_S)
    with ThreadingHTTPServer(("127.0.0.1", 0), Monitor) as monitor:
        threading.Thread(target=monitor.serve_forever, daemon=True).start()
        urls = [f"http://127.0.0.1:{monitor.server_port}/n{number}" for number in range(7)]
        assert check_servers(Secret("nats://127.0.0.1:1"), urls, all_of_them=True) == 7
        monitor.shutdown()


def test_without_the_package_one_sentence_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "nats.aio.client", None)
    with pytest.raises(UnsupportedServerError, match=r"MAUVE_STREAM_URL .* install mauve\[nats\]"):
        asyncio.run(connect(Secret("nats://127.0.0.1:1"), "test"))
