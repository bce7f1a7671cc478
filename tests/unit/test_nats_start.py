"""A NATS server that has just started, or was asked too early once, is not taken for one without JetStream."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from mauve.stores import UnsupportedServerError
from mauve.stores.log.nats import monitors
from mauve.stores.log.nats.monitors import ask_when_started, check_server

SERVER = {"server_id": "a", "server_name": "n0", "version": "2.12.0", "max_payload": 2**23}
CONFIG = {"config": {"sync_always": True}}
OFF, ON = {"disabled": True, "config": {}}, CONFIG | {"meta_cluster": {"cluster_size": 3}}


@pytest.fixture
def start(monkeypatch):
    """Return a function that starts a monitoring endpoint. It gives its answers in turn, the last from then on."""
    monkeypatch.setattr(monitors, "RETRY_S", 0.001)
    with ExitStack() as opened:

        def start():
            class Monitor(BaseHTTPRequestHandler):
                answers = {"/varz": [SERVER], "/jsz": [OFF]}  # noqa: RUF012 - replaced by the tests

                def do_GET(self):
                    left = self.answers[self.path]
                    body = json.dumps(left.pop(0) if len(left) > 1 else left[0]).encode()
                    self.send_response(200)
                    self.end_headers()
                    self.wfile.write(body)

                def log_message(self, *_arguments):
                    pass

            server = opened.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), Monitor))
            opened.callback(server.shutdown)
            threading.Thread(target=server.serve_forever, daemon=True).start()
            Monitor.url = f"http://127.0.0.1:{server.server_address[1]}"
            return Monitor

        yield start


@pytest.fixture
def monitor(start):
    return start()


def ask_one(url):
    with ThreadPoolExecutor(1) as threads:
        return ask_when_started([url], threads)[0]


def ask_both(start, *answers):
    """Return what two servers say, each asked until it gave its answers or in vain."""
    both = [start(), start()]
    for server_id, monitor, own in zip("ab", both, answers, strict=True):
        monitor.answers = {"/varz": [SERVER | {"server_id": server_id, "jetstream": each} for each in own]}
    with ThreadPoolExecutor(2) as threads:
        return ask_when_started([monitor.url for monitor in both], threads)


def test_a_server_that_reports_jetstream_as_off_is_asked_for_its_state(monitor):
    monitor.answers = {"/varz": [SERVER], "/jsz": [ON]}
    server = ask_one(monitor.url)
    check_server(server)
    assert server.jetstream.meta.cluster_size == 3


def test_a_server_is_asked_again_until_jetstream_is_on(monitor):
    monitor.answers = {"/varz": [SERVER], "/jsz": [OFF, OFF, ON]}
    check_server(ask_one(monitor.url))
    assert monitor.answers["/jsz"] == [ON]


def test_a_server_without_jetstream_is_reported_in_the_end(monitor, monkeypatch):
    monkeypatch.setattr(monitors, "JETSTREAM_S_MAX", 0.01)
    with pytest.raises(UnsupportedServerError, match="JetStream is off on the NATS server n0"):
        check_server(ask_one(monitor.url))


def test_a_server_that_does_not_answer_is_silent():
    assert ask_one("http://127.0.0.1:1") is None


def test_servers_are_asked_again_until_they_have_met(start):
    alone, met = CONFIG, CONFIG | {"meta": {"cluster_size": 2}}
    answers = ask_both(start, [alone, alone, met], [alone])
    assert [server.jetstream.meta.cluster_size for server in answers] == [2, 1]


def test_servers_that_never_meet_are_reported_as_they_are(start, monkeypatch):
    monkeypatch.setattr(monitors, "JETSTREAM_S_MAX", 0.01)
    answers = ask_both(start, [CONFIG], [CONFIG])
    assert [server.jetstream.meta.cluster_size for server in answers] == [1, 1]
