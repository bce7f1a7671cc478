"""Between SIGTERM and the stop: everything is answered, and clients are told to go elsewhere."""

import http.client
import os
import signal
from urllib.parse import urlsplit

import httpx2 as httpx
import pytest

from support.service import PATIENCE_S, bearer, eventually, is_alive, mauve_json, post_events, running


@pytest.fixture
def service(tmp_path):
    with running(tmp_path / "data", "--workers", "2", environment={"MAUVE_DRAIN_SECONDS": "120"}) as service:
        yield service
        if service.process.poll() is None:
            service.process.send_signal(signal.SIGTERM)  # the second one, or the first of two


def ready(url):
    return httpx.get(f"{url}/readyz", timeout=PATIENCE_S)


def test_after_sigterm_it_is_not_ready_and_answers_until_a_second_one(service):
    mauve_json(service.data, "org", "create", "Acme")
    key = mauve_json(service.data, "app", "create", "App")["sk_key"]
    for url in (service.url, service.ingest_url):
        eventually(lambda url=url: post_events(url, key) == 202)
        assert (ready(url).status_code, "connection" in ready(url).headers) == (200, False)
        assert httpx.get(f"{url}/drainz").json() == {"ok": True}
    kept = [http.client.HTTPConnection(urlsplit(url).netloc) for url in (service.url, service.ingest_url)]
    for connection in kept:
        connection.request("GET", "/healthz")
        assert connection.getresponse().read()
    service.process.send_signal(signal.SIGTERM)
    for url in (service.url, service.ingest_url):
        eventually(lambda url=url: ready(url).status_code == 503)
        body = ready(url).json()
        assert (body["ok"], "about to stop" in body["reason"], set(body["engines"].values())) == (False, True, {"ok"})
        reply = httpx.post(f"{url}/v1/events", headers=bearer(key), json=[{"name": "seen"}])
        assert (reply.status_code, reply.headers["connection"]) == (202, "close")
        assert httpx.get(f"{url}/healthz").json() == {"ok": True}
        drain = httpx.get(f"{url}/drainz")
        assert (drain.status_code, drain.json()["reason"]) == (503, body["reason"])
    for connection in kept:
        connection.request("GET", "/healthz")
        reply = connection.getresponse()
        assert (reply.status, reply.getheader("connection")) == (200, "close")
        connection.close()
    read = httpx.get(f"{service.url}/v1/metrics/mau", headers=bearer(key))
    assert (read.status_code, read.headers["connection"]) == (200, "close")
    pids = service.child_pids().values()
    assert len(pids) == 3
    service.process.send_signal(signal.SIGTERM)
    assert service.process.wait(timeout=PATIENCE_S) == 0
    assert not any(map(is_alive, pids))


def test_a_signal_to_every_process_does_not_end_the_wait(service):
    """As systemd sends it: the supervisor passes on a signal that its children already have."""
    for pid in (*service.child_pids().values(), service.process.pid):
        os.kill(pid, signal.SIGTERM)
    eventually(lambda: ready(service.url).status_code == 503)
    eventually(lambda: ready(service.ingest_url).status_code == 503)
    assert service.process.poll() is None
