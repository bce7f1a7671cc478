"""The proxies' files of `deploy/` work: writes reach the workers, and everything else the core."""

import datetime as dt
import getpass
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import httpx2 as httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from support.container import ROOT
from support.service import PATIENCE_S, bearer, eventually, freeze, mauve_json, running, two_free_ports


def needs(program, package):
    missing = shutil.which(program) is None
    return pytest.mark.skipif(missing, reason=f"needs {program} (Debian: apt-get install {package})")


@pytest.fixture
def service(tmp_path):
    with running(tmp_path / "data", "--workers", "1", environment={"MAUVE_PROXIES": "1"}) as started:
        yield started


def with_ports_of(service, text):
    main, ingest = urlsplit(service.url).port, urlsplit(service.ingest_url).port
    return text.replace(":8080", f":{main}").replace(":8081", f":{ingest}")


@contextmanager
def proxy(*command, port, **environment):
    process = subprocess.Popen(list(map(str, command)), env={"PATH": "/usr/sbin:/usr/bin:/bin", **environment})
    try:
        eventually(lambda: process.poll() is not None or is_open(port))
        assert process.poll() is None, "the proxy did not start"
        yield
    finally:
        process.terminate()
        process.wait(timeout=PATIENCE_S)


def is_open(port):
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def certificate_in(folder: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "metrics.example.com")])
    now = dt.datetime.now(dt.UTC)
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    (folder / "fullchain.pem").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    private = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "privkey.pem").write_bytes(key.private_bytes(*private))


def check(service, url):
    """Send, read and open a page through the proxy; send while the core is stopped, so that only workers can answer."""
    mauve_json(service.data, "org", "create", "Acme")
    key = mauve_json(service.data, "app", "create", "App")["sk_key"]
    host = {"host": "metrics.example.com"}
    events = [{"name": "sent", "user": str(number), "props": {"text": "x" * 900}} for number in range(400)]
    eventually(lambda: httpx.get(f"{url}/v1/metrics/mau", headers=bearer(key) | host).status_code == 200)
    assert httpx.get(f"{url}/signin", headers=host, follow_redirects=True).status_code == 200
    core = service.child_pids()["core"]
    freeze(core)
    try:
        reply = httpx.post(f"{url}/v1/events", headers=bearer(key) | host, json=events)
    finally:
        os.kill(core, signal.SIGCONT)
    assert (reply.status_code, reply.json()) == (202, {"ok": True, "accepted": 400, "rejected": 0})


@needs("caddy", "caddy")
def test_caddy_serves_with_its_file(service, tmp_path):
    port = two_free_ports()
    config = tmp_path / "Caddyfile"
    text = with_ports_of(service, (ROOT / "deploy/Caddyfile").read_text())
    config.write_text(text.replace("{\n\tservers", "{\n\tadmin off\n\tservers"))
    names = {"MAUVE_SITE": f"http://metrics.example.com:{port}", "MAUVE_UPSTREAM": "127.0.0.1", "HOME": str(tmp_path)}
    with proxy("caddy", "run", "--adapter", "caddyfile", "--config", config, port=port, **names):
        check(service, f"http://127.0.0.1:{port}")


@needs("nginx", "nginx-light")
def test_nginx_serves_with_its_file(service, tmp_path):
    port = two_free_ports()
    certificate_in(tmp_path)
    text = with_ports_of(service, (ROOT / "deploy/nginx.conf").read_text())
    text = text.replace("/etc/ssl/metrics.example.com", str(tmp_path))
    text = text.replace("listen 443", f"listen 127.0.0.1:{port}").replace("listen 80;", f"listen 127.0.0.1:{port + 1};")
    (tmp_path / "site.conf").write_text(text)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    folders = "".join(f"{kind}_temp_path {tmp_path}/{kind};\n" for kind in kinds)
    main = f"daemon off; user {getpass.getuser()}; pid {tmp_path}/pid; error_log {tmp_path}/error.log;\nevents {{}}\n"
    (tmp_path / "nginx.conf").write_text(f"{main}http {{ access_log off;\n{folders}include {tmp_path}/site.conf; }}\n")
    with proxy("nginx", "-e", tmp_path / "error.log", "-c", tmp_path / "nginx.conf", port=port):
        check(service, f"https://127.0.0.1:{port}")
        moved = httpx.get(f"http://127.0.0.1:{port + 1}/apps", headers={"host": "metrics.example.com"})
        assert (moved.status_code, moved.headers["location"]) == (301, "https://metrics.example.com/apps")


class Machine(ThreadingHTTPServer):
    """A machine that says of itself whether it is ready, and answers all else with its name."""

    def __init__(self, name):
        super().__init__(("127.0.0.1", 0), Answering)
        self.name, self.is_ready, self.is_breaking = name, True, False
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self):
        return f"127.0.0.1:{self.server_port}"


class Answering(BaseHTTPRequestHandler):
    def do_GET(self):
        size = len(self.rfile.read(int(self.headers.get("content-length") or 0)))
        if self.server.is_breaking and size:
            self.close_connection = True
            return
        body = f"{self.server.name} {size}".encode()
        self.send_response(503 if self.path in {"/readyz", "/ping"} and not self.server.is_ready else 200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815 - the name that the base class looks for

    def log_message(self, *_):
        """Print nothing."""


@contextmanager
def machines(*names):
    opened = {name: Machine(name) for name in names}
    try:
        yield opened
    finally:
        for machine in opened.values():
            machine.shutdown()
            machine.server_close()


@contextmanager
def scaled_proxy(tmp_path, name, ports, opened, **environment):
    """Run Caddy with one of the files of several machines, whose names lead to these ones."""
    text = (ROOT / "deploy" / "scaled" / name).read_text()
    for machine in opened.values():
        text = re.sub(rf"{machine.name}:\d+", machine.address, text)
    for shipped, used in ports.items():
        text = text.replace(f"http://:{shipped}", f"http://:{used}")
    config = tmp_path / name
    config.write_text(text.replace("{\n\tservers", "{\n\tadmin off\n\tservers"))
    command = ("caddy", "run", "--adapter", "caddyfile", "--config", config)
    (port,) = ports.values()
    with proxy(*command, port=port, HOME=str(tmp_path), **environment):
        yield f"http://127.0.0.1:{port}"


def break_request(port):
    """Send a request whose body is no valid one, and wait for the answer."""
    head = b"POST /v1/events HTTP/1.1\r\nHost: metrics.example.com\r\nTransfer-Encoding: chunked\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as client:
        client.sendall(head + b"ZZ\r\n")
        assert client.recv(64).startswith(b"HTTP/1.1 ")


@needs("caddy", "caddy")
def test_caddy_sends_requests_to_machines_that_can_answer_them(tmp_path):
    port = two_free_ports()
    names = {"host": "metrics.example.com"}
    with machines("ingest-1", "ingest-2", "api-1", "api-2") as opened:
        site = {"MAUVE_SITE": f"http://metrics.example.com:{port}"}
        with scaled_proxy(tmp_path, "Caddyfile", {port: port}, opened, **site) as url:

            def answer(path, body=b"x" * 10):
                reply = httpx.post(f"{url}{path}", headers=names, content=body, timeout=PATIENCE_S)
                name, _, size = reply.text.partition(" ")
                assert size == "10"
                return name

            for path in ("/v1/events", "/v1/objects", "/v1/webhooks/stripe/app"):
                assert answer(path) in {"ingest-1", "ingest-2"}
            assert answer("/v1/apps") in {"api-1", "api-2"}
            opened["ingest-1"].is_ready = opened["api-1"].is_ready = False
            eventually(lambda: {answer("/v1/events") for _ in range(20)} == {"ingest-2"})
            assert {answer("/v1/apps") for _ in range(20)} == {"api-1", "api-2"}, "it still answers most requests"
            opened["ingest-2"].is_ready = False
            # They still take payments: one that was left out is asked again as soon as none is ready.
            eventually(lambda: answer("/v1/objects") == "ingest-1")
            opened["ingest-1"].is_ready = True
            eventually(lambda: {answer("/v1/events") for _ in range(20)} == {"ingest-1"})
            opened["ingest-2"].is_ready = True
            eventually(lambda: {answer("/v1/events") for _ in range(20)} == {"ingest-1", "ingest-2"})
            for _ in range(4):
                break_request(port)
                assert {answer("/v1/events") for _ in range(4)} == {"ingest-1", "ingest-2"}, "a client takes none out"
            opened["ingest-1"].is_breaking = True
            statuses = [
                httpx.post(f"{url}/v1/events", headers=names, content=b"x", timeout=PATIENCE_S).status_code
                for _ in range(20)
            ]
            assert {*statuses} == {200, 502}, "a broken connection does not count against the other machine"
            assert httpx.get(f"{url}/readyz", headers=names).status_code == 404


@needs("caddy", "caddy")
def test_caddy_uses_the_first_clickhouse_server_that_answers(tmp_path):
    port = two_free_ports()
    with (
        machines("clickhouse-1", "clickhouse-2", "clickhouse-3") as opened,
        scaled_proxy(tmp_path, "clickhouse-proxy.Caddyfile", {8124: port}, opened) as url,
    ):

        def answers():
            return {httpx.post(url, content=b"SELECT 1").text for _ in range(10)}

        assert answers() == {"clickhouse-1 8"}
        opened["clickhouse-1"].is_ready = False
        eventually(lambda: answers() == {"clickhouse-2 8"})
        opened["clickhouse-1"].is_ready = True
        eventually(lambda: answers() == {"clickhouse-1 8"})
