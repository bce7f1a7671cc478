"""The whole service as a user sees it: real processes, real sockets.

Proves: revocation, one-service.
"""

import json
import os
import re
import signal
import socket
import stat
import subprocess
import threading
from functools import partial
from pathlib import Path

import httpx2 as httpx
import pytest

from mauve.access.keyring import POLL_EVERY_S
from mauve.access.vault import new_master_key
from support.service import (
    MAUVE,
    PATIENCE_S,
    bearer,
    child_pids,
    clean_environment,
    eventually,
    is_alive,
    is_held,
    mauve,
    mauve_json,
    post_events,
    running,
    token_for,
    two_free_ports,
)


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with running(tmp_path_factory.mktemp("service") / "data", "--workers", "2") as started:
        yield started


@pytest.fixture
def org(service):
    return mauve_json(service.data, "org", "create", "Acme")["org_id"]


@pytest.fixture
def api(service, org):
    with httpx.Client(base_url=service.url, headers=bearer(token_for(service.data, org=org))) as client:
        yield client


def test_an_empty_data_directory_is_made_private_and_migrated(service):
    assert stat.S_IMODE(service.data.stat().st_mode) == 0o700
    assert stat.S_IMODE((service.data / "master.key").stat().st_mode) == 0o600
    assert mauve_json(service.data, "doctor")["ok"] is True


def test_head_answers_as_get_does_without_a_body(service, api):
    app = api.post("/v1/apps", json={"name": "An app"}).json()
    own, read = f"/v1/apps/{app['app_id']}", {"project": app["public_id"]}
    eventually(lambda: api.get("/v1/metrics/mau", params=read).headers.get("x-cache") == "hit")
    on_main_port = ["/v1/apps", own, f"{own}/keys", "/v1/apps/app_x", f"{own}/webhooks/biller_a", "/v1/metrics/mau"]
    on_main_port += ["/v1/metrics/nothing", "/mcp/allowance", "/mcp", "/docs", "/openapi.json", "/llms.txt", "/signin"]
    on_both = ["/healthz", "/drainz", "/readyz", "/mauve.js", "/v1/events", "/nothing"]
    plain = {"accept-encoding": "identity"}
    urls = [*on_main_port, *on_both, *(service.ingest_url + path for path in on_both)]
    for url in urls:
        got, head = (api.request(method, url, params=read, headers=plain) for method in ("GET", "HEAD"))
        assert head.content == b"", url
        for reply in (got, head):
            reply.headers.pop("date", None)
            if url.endswith("/readyz"):  # Its body counts seconds.
                reply.headers["content-length"] = str(len(got.content))
        assert (head.status_code, head.headers) == (got.status_code, got.headers), url
        assert head.headers["content-length"] == str(len(got.content)), url


def test_the_first_start_prints_a_setup_link_that_works_until_there_is_an_account(tmp_path):
    public_url = "http://127.0.0.1:1"
    with running(tmp_path / "data", environment={"MAUVE_PUBLIC_URL": f"{public_url}/"}) as service:
        assert service.setup_link.startswith(f"{public_url}/setup/")
        link = service.setup_link.replace(public_url, service.url)
        _check_link(service, link)
        assert mauve_json(service.data, "doctor")["ok"] is True, "it asks the server at its own address"
        org = mauve_json(service.data, "org", "create", "Acme")["org_id"]
        mauve_json(service.data, "user", "create", "--org", org, "--email", "a@example.com", "--role", "owner")
        assert httpx.get(link).status_code == 404
    with running(service.data) as again:
        assert again.setup_link is None


def test_the_setup_link_starts_with_the_address_of_the_server(service):
    assert service.setup_link.startswith(f"{service.url}/setup/")


def _check_link(service, link):
    reply = httpx.get(link)
    assert reply.status_code == 200
    assert "frame-ancestors 'none'" in reply.headers["content-security-policy"]
    assert reply.headers["cache-control"] == "no-store"
    assert httpx.get(f"{service.url}/setup/nonsense").status_code == 404


def test_both_ports_answer_health_checks(service):
    for url in (service.url, service.ingest_url):
        assert httpx.get(f"{url}/healthz").json() == {"ok": True}
        assert httpx.get(f"{url}/readyz").status_code == 200


def test_a_new_key_works_immediately_on_both_ports(service, api):
    for _ in range(10):
        key = api.post("/v1/apps", json={"name": "An app"}).json()["sk_key"]
        assert [post_events(url, key) for url in (service.ingest_url, service.url)] == [202, 202]


def test_a_revoked_key_is_soon_refused_everywhere(service, api):
    app = api.post("/v1/apps", json={"name": "An app"}).json()
    assert post_events(service.ingest_url, app["sk_key"]) == 202
    (key,) = api.get(f"/v1/apps/{app['app_id']}/keys").json()
    assert api.delete(f"/v1/apps/{app['app_id']}/keys/{key['key_id']}").status_code == 204

    def statuses():
        return {post_events(url, app["sk_key"]) for url in (service.ingest_url, service.url) for _ in range(8)}

    eventually(lambda: statuses() == {401})
    assert POLL_EVERY_S < 1, "every process refreshes at least every second"


def test_commands_take_effect_on_the_running_service(service, api):
    org = mauve_json(service.data, "org", "create", "Beta")["org_id"]
    minted = mauve_json(service.data, "token", "mint", "--org", org, "--scopes", "apps:read,apps:write")
    app = httpx.post(f"{service.url}/v1/apps", json={"name": "B"}, headers=bearer(minted["token"])).json()
    key = mauve_json(service.data, "key", "mint", "--app", app["app_id"], "--kind", "pk")["key"]
    assert post_events(service.ingest_url, key) == 202
    mauve_json(service.data, "token", "revoke", minted["token_id"])
    assert httpx.get(f"{service.url}/v1/apps", headers=bearer(minted["token"])).status_code == 401


def test_a_new_token_reads_immediately_and_a_revoked_one_is_soon_refused(service, org, api):
    app = api.post("/v1/apps", json={"name": "An app"}).json()
    minted = mauve_json(service.data, "token", "mint", "--org", org, "--scopes", "metrics:read")

    def status():
        address = f"{service.url}/v1/metrics/mau"
        return httpx.get(address, params={"project": app["public_id"]}, headers=bearer(minted["token"])).status_code

    assert status() == 200
    mauve_json(service.data, "token", "revoke", minted["token_id"])
    eventually(lambda: status() == 401)


def test_links_start_with_the_address_of_the_running_server(service):
    org = mauve_json(service.data, "org", "create", "Gamma")["org_id"]
    created = mauve_json(service.data, "user", "create", "--org", org, "--email", "g@example.com", "--role", "owner")
    assert created["link"].startswith(f"{service.url}/password/")
    assert httpx.get(created["link"]).status_code == 200
    form = {"password": "correct horse battery"}
    headers = {"origin": service.url, "accept": "text/html"}
    with httpx.Client(headers=headers, follow_redirects=True) as browser:
        assert "No apps yet" in browser.post(created["link"], data=form).text
        assert browser.post(created["link"], data=form).status_code == 404


def test_a_second_service_on_the_same_data_is_refused_with_one_sentence(service):
    done = mauve(service.data, "serve", "--port", "0", "--ingest-port", "0")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert f"in use by process {service.process.pid}" in done.stderr


@pytest.mark.parametrize("option", ["--port", "--ingest-port"])
def test_an_occupied_port_is_refused_with_one_sentence(service, tmp_path, option):
    taken = service.url.rpartition(":")[2]
    ports = {"--port": "0", "--ingest-port": "0"} | {option: taken}
    done = mauve(tmp_path / "data", "serve", *[word for pair in ports.items() for word in pair])
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert f"port {taken}" in done.stderr
    assert f"{option} or MAUVE_{option[2:].replace('-', '_').upper()}" in done.stderr
    assert not (tmp_path / "data").exists(), "a failed start leaves nothing"
    (tmp_path / "data").mkdir()
    mauve(tmp_path / "data", "serve", *[word for pair in ports.items() for word in pair])
    assert list((tmp_path / "data").iterdir()) == [], "a directory of the user's own stays"


def test_one_port_for_both_is_refused_with_one_sentence(tmp_path):
    port = str(two_free_ports())
    done = mauve(tmp_path / "data", "serve", "--port", port, "--ingest-port", port)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "both the main port and the ingest port" in done.stderr
    assert not (tmp_path / "data").exists()


def test_a_foreign_host_is_refused_with_one_sentence(tmp_path):
    done = mauve(tmp_path / "data", "serve", "--host", "192.0.2.1", "--port", "0", "--ingest-port", "0")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


def test_hostile_requests_get_the_contracts_error_over_real_sockets(service, api):
    paths = ["/v1/apps/%00", "/v1/apps/%ff%fe", "/v1/apps/" + "a" * 3000, "/v1/apps/%2e%2e%2fkeys", "/v1/apps%0A"]
    for path in paths:
        assert api.get(path).status_code == 404
    for body in (b"x" * 5_000_000, b"\xff", b"[" * 60_000, b"{"):
        assert api.post("/v1/apps", content=body).status_code == 400
    assert api.get("/v1/apps").status_code == 200


@pytest.mark.parametrize("framing", ["content-length: 500", "transfer-encoding: chunked"])
@pytest.mark.parametrize("close", ["half", "whole"])
def test_a_truncated_request_is_not_executed(service, api, framing, close):
    body = b'{"name": "Cut off"}'
    chunk = b"%x\r\n%s\r\n" % (len(body), body) if "chunked" in framing else body
    head = f"POST /v1/apps HTTP/1.1\r\nhost: x\r\nauthorization: {api.headers['authorization']}\r\n{framing}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", int(service.url.rpartition(":")[2]))) as connection:
        ports = connection.getpeername()[1], connection.getsockname()[1]
        connection.sendall(head.encode() + chunk)
        if close == "half":
            connection.shutdown(socket.SHUT_WR)
            connection.settimeout(PATIENCE_S)
            assert b"201" not in connection.recv(1000)
    eventually(lambda: not is_held(*ports))
    assert api.get("/v1/apps").json() == []


def test_a_repeated_authorization_header_is_refused(service, api):
    credential = api.headers["authorization"]
    headers = [("authorization", credential), ("authorization", credential)]
    assert httpx.get(f"{service.url}/v1/apps", headers=headers).status_code == 401
    assert httpx.post(f"{service.ingest_url}/v1/events", headers=headers).status_code == 401


@pytest.mark.parametrize("header", ["content-type", "content-encoding"])
def test_a_repeated_header_is_refused_alike_on_both_ports(service, api, header):
    key = api.post("/v1/apps", json={"name": "Twice"}).json()["sk_key"]
    value = {"content-type": "application/json", "content-encoding": "gzip"}[header]
    headers = [*bearer(key).items(), (header, value), (header, value)]
    headers += [] if header == "content-type" else [("content-type", "application/json")]
    for url in (service.url, service.ingest_url):
        reply = eventually(lambda url=url: _once_known(httpx.post(f"{url}/v1/events", headers=headers, content=b"[]")))
        assert reply.status_code == 415


def _once_known(reply):
    """Return the reply, or None if the process does not know the key yet."""
    return reply if reply.status_code != 401 else None


def test_two_hundred_concurrent_requests_are_all_answered(service, api):
    statuses = []

    def create():
        with httpx.Client(base_url=service.url, headers=api.headers) as client:
            statuses.extend(client.post("/v1/apps", json={"name": "Many"}).status_code for _ in range(10))

    threads = [threading.Thread(target=create) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [201] * 200
    assert len(api.get("/v1/apps").json()) == 200


def test_no_credential_reaches_the_log_or_the_disk_in_plain_text(service, api):
    canary = "whsec_canary_that_must_not_be_seen_anywhere"
    app = api.post("/v1/apps", json={"name": "Canary"}).json()
    assert api.put(f"/v1/apps/{app['app_id']}/webhooks/biller_a", json={"secret": canary}).status_code == 204
    token = api.headers["authorization"].removeprefix("Bearer ")
    hidden = [canary, app["sk_key"], token[25:], service.setup_link.rpartition("/")[2]]
    stored = b"".join(path.read_bytes() for path in service.data.iterdir() if path.is_file())
    assert app["app_id"].encode() in stored, "the search covers the data"
    assert [text for text in hidden if text.encode() in stored] == []
    assert [text for text in hidden if text in service.log()] == []


class TestStopping:
    def test_a_request_in_flight_is_finished_and_no_process_is_left(self, tmp_path):
        with running(tmp_path / "data") as service:
            token, children = token_for(service.data), service.child_pids().values()
            assert len(children) > 1
            request = (
                "POST /v1/apps HTTP/1.1\r\nhost: here\r\nconnection: close\r\n"
                f"authorization: Bearer {token}\r\ncontent-length: 15\r\nexpect: 100-continue\r\n\r\n"
            )
            address = "127.0.0.1", int(service.url.rpartition(":")[2])
            idle = socket.create_connection(address)
            with idle, socket.create_connection(address, timeout=PATIENCE_S) as connection:
                connection.sendall(request.encode())
                assert connection.recv(1000).startswith(b"HTTP/1.1 100 "), "the server asks for the body"
                connection.sendall(b'{"name"')
                service.process.send_signal(signal.SIGTERM)
                eventually(lambda: _is_closed(address))
                connection.sendall(b': "App"}')
                reply = b"".join(iter(partial(connection.recv, 65536), b""))
                assert b"201 Created" in reply
                assert service.process.wait(timeout=PATIENCE_S) == 0
            assert not any(map(is_alive, children))

    def test_it_can_be_stopped_while_it_starts(self, tmp_path):
        arguments = [str(MAUVE), "serve", "--data", str(tmp_path / "data"), "--port", "0", "--ingest-port", "0"]
        process = subprocess.Popen(arguments, stdout=subprocess.PIPE, env=clean_environment())
        eventually((tmp_path / "data" / "serve.lock").exists)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=PATIENCE_S) in {0, -signal.SIGTERM}
        process.stdout.close()


def _is_closed(address):
    """Return whether nothing listens there any more."""
    try:
        socket.create_connection(address).close()
    except ConnectionError:
        return True
    return False


def test_without_json_it_prints_its_addresses_and_stops_on_ctrl_c(tmp_path):
    arguments = [str(MAUVE), "serve", "--data", str(tmp_path / "data"), "--port", "0", "--ingest-port", "0"]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=clean_environment())
    lines = [process.stdout.readline() for _ in range(5)]
    children = child_pids(process.pid).values()
    process.send_signal(signal.SIGINT)
    rest = process.stdout.read()
    assert process.wait(timeout=PATIENCE_S) == 0
    process.stdout.close()
    assert len(children) > 1
    assert not any(map(is_alive, children))
    assert lines[0] == "Mauve is running.\n"
    assert re.fullmatch(r"  dashboard and API   (http://127\.0\.0\.1:\d+)  \(API reference: \1/docs\)\n", lines[1])
    assert "/setup/" in lines[4]
    assert rest == ""


def test_a_first_start_that_is_stopped_while_nats_is_down_leaves_a_directory_that_needs_no_master_key(tmp_path):
    data = tmp_path / "data"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"nats://127.0.0.1:{silent.getsockname()[1]}"
        environment = clean_environment(MAUVE_STREAM_URL=url, MAUVE_MASTER_KEY=new_master_key())
        arguments = [str(MAUVE), "serve", "--data", str(data), "--port", "0", "--ingest-port", "0"]
        process = subprocess.Popen(arguments, stdout=subprocess.PIPE, env=environment)
        eventually((data / "catalog.db").exists)
        process.send_signal(signal.SIGINT)
        process.wait(timeout=PATIENCE_S)
        process.stdout.close()
    with running(data, "--workers", "1") as service:
        assert httpx.get(f"{service.url}/readyz").status_code == 200


def test_the_service_does_not_start_with_a_wrong_master_key(tmp_path):
    data = tmp_path / "data"
    mauve_json(data, "org", "create", "Acme")
    environment = {"MAUVE_MASTER_KEY": new_master_key()}
    done = mauve(data, "serve", "--port", "0", "--ingest-port", "0", **environment)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "master key" in done.stderr


def test_the_lock_file_names_the_server(service):
    assert set(json.loads((service.data / "serve.lock").read_text())) == {"pid", "url", "public_url"}
    assert os.getpid() != service.process.pid


def test_the_server_thread_is_batch_scheduled_and_the_event_loop_is_not(service):
    pid = service.child_pids()["core"]
    threads = [int(thread.name) for thread in Path(f"/proc/{pid}/task").iterdir()]
    assert os.sched_getscheduler(pid) == os.SCHED_OTHER
    assert os.SCHED_BATCH in map(os.sched_getscheduler, threads)
