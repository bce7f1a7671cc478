"""Requests that two parsers could read differently are refused on both ports, with a reason.

Proves: slow-clients, not-http, pipelining, many-connections.
"""

import json
import socket
import threading
import time

import httpx2 as httpx
import pytest

from support.service import bearer, running, token_for

PATIENCE_S = 60
PER_ADDRESS = 20
BODY = b'{"name": "seen"}'
IN_CHUNKS = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
SIZED = f"content-length: {len(BODY)}"
PORTS = ["url", "ingest_url"]


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    environment = {"MAUVE_LOG": "json", "MAUVE_CONNECTIONS_PER_ADDRESS": str(PER_ADDRESS)}
    data = tmp_path_factory.mktemp("ambiguous") / "data"
    with running(data, "--workers", "1", environment=environment) as started:
        yield started


@pytest.fixture(scope="module")
def key(service):
    reply = httpx.post(f"{service.url}/v1/apps", json={"name": "App"}, headers=bearer(token_for(service.data)))
    return reply.json()["sk_key"]


@pytest.fixture(autouse=True)
def _only_json_is_logged(service):
    yield
    assert all(json.loads(line)["event"] for line in service.log().splitlines())
    assert "Traceback" not in service.log()


def connected(url):
    return socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=PATIENCE_S)


def everything_from(connection):
    received = b""
    try:
        while piece := connection.recv(65536):
            received += piece
    except ConnectionResetError:
        pass
    return received


def request(key, *lines, first="POST /v1/events HTTP/1.1", host="host: x"):
    known = [first, *([host] if host else []), f"authorization: Bearer {key}", "content-type: application/json"]
    return "\r\n".join([*known, *lines, "", ""]).encode()


def answered(url, sent):
    """Return status and body of the only answer, after which the connection closes."""
    with connected(url) as connection:
        connection.sendall(sent)
        head, _, body = everything_from(connection).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.")
    return int(head.split()[1]), body


# Refused by both ports, with a reason in their envelope.
REFUSED = {
    "thousands of zeros": (["content-length: " + "0" * 5000 + str(len(BODY))], BODY, 400, "Content-Length"),
    "gzip, then chunks": (["transfer-encoding: gzip, chunked"], IN_CHUNKS, 400, "Transfer-Encoding"),
    "chunks in two headers": (["transfer-encoding: gzip", "transfer-encoding: chunked"], IN_CHUNKS, 400, "Transfer-"),
    "two hosts": ([SIZED, "host: y"], BODY, 400, "Host"),
    "the same host twice": ([SIZED, "host: x"], BODY, 400, "Host"),
    "a head of 70 KB": ([SIZED, "x: " + "y" * 70_000], BODY, 431, "65536 bytes"),
}


@pytest.mark.parametrize("port", PORTS)
@pytest.mark.parametrize("what", REFUSED)
def test_an_ambiguous_head_is_refused(service, key, what, port):
    lines, body, expected, word = REFUSED[what]
    status, answer = answered(getattr(service, port), request(key, *lines) + body)
    assert (status, json.loads(answer)["ok"]) == (expected, False)
    assert word in json.loads(answer)["error"]


@pytest.mark.parametrize("port", PORTS)
@pytest.mark.parametrize("host", [None, "host:", "host: a b", "host: user@x", "host: x:port", "host: a/b"])
def test_http_1_1_needs_one_host(service, key, host, port):
    status, answer = answered(getattr(service, port), request(key, SIZED, host=host) + BODY)
    assert status == 400
    assert "Host" in json.loads(answer)["error"]


def test_the_control_plane_refuses_in_its_own_envelope(service):
    status, answer = answered(service.url, b"GET /v1/apps HTTP/1.1\r\n\r\n")
    assert status == 400
    assert json.loads(answer)["error"]["code"] == "invalid_body"


# Malformed HTTP. The main port's server refuses it with an empty body.
MALFORMED = {
    "lengths that differ": [SIZED, "content-length: 3"],
    "a list of lengths": [f"content-length: {len(BODY)}, {len(BODY)}"],
    "a length with a sign": [f"content-length: +{len(BODY)}"],
    "a length of 5,000 digits": ["content-length: " + "9" * 5000],
    "an unknown coding": ["transfer-encoding: xchunked"],
    "a folded header": [SIZED, "x-a: b\r\n c"],
    "a bare carriage return": [SIZED, "x-a: b\rx-c: d"],
    "a space before the colon": [f"content-length : {len(BODY)}"],
    "a byte of zero": [SIZED, "x: a\0b"],
    "a header without a name": [SIZED, ": b"],
    "too many headers": [SIZED, *["x: y"] * 150],
}


@pytest.mark.parametrize("port", PORTS)
@pytest.mark.parametrize("what", MALFORMED)
def test_malformed_http_is_refused(service, key, what, port):
    status, answer = answered(getattr(service, port), request(key, *MALFORMED[what]) + BODY)
    assert status == (431 if what == "too many headers" else 400)
    assert (json.loads(answer)["ok"] is False) if answer else port == "url"


# Framing of chunks that is wrong, or goes on and on.
CHUNKS = {
    "an extension of megabytes": b"10;" + b"e" * 3_000_000 + b"\r\n" + BODY + b"\r\n0\r\n\r\n",
    "extensions without end": (b"1;" + b"e" * 1000 + b"\r\n \r\n") * 3000 + IN_CHUNKS,
    "trailers without end": IN_CHUNKS[:-2] + b"x-a: yyyyyyyyyyyyyyy\r\n" * 150_000 + b"\r\n",
    "a size beyond all bounds": b"f" * 40 + b"\r\n" + BODY,
    "a size below zero": b"-1\r\n" + BODY,
    "a size with a prefix": b"0x10\r\n" + BODY + b"\r\n0\r\n\r\n",
    "bare line feeds": IN_CHUNKS.replace(b"\r\n", b"\n"),
    "a chunk that is longer than it says": b"3\r\n" + BODY + b"\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("port", PORTS)
@pytest.mark.parametrize("what", CHUNKS)
def test_malformed_chunks_are_refused(service, key, what, port):
    with connected(getattr(service, port)) as connection:
        sending = threading.Thread(
            target=send_all, args=(connection, request(key, "transfer-encoding: chunked") + CHUNKS[what])
        )
        sending.start()
        received = everything_from(connection)
        sending.join(PATIENCE_S)
    # A client that is still sending may see a reset connection instead of the answer.
    assert received.startswith(b"HTTP/1.1 400 ") or (not received and len(CHUNKS[what]) > 1_000_000)
    if received:
        assert json.loads(received.partition(b"\r\n\r\n")[2])["ok"] is False


def send_all(connection, sent):
    try:
        connection.sendall(sent)
    except OSError:
        connection.close()


@pytest.mark.parametrize("port", PORTS)
def test_a_length_and_chunks_together_never_smuggle_a_request(service, key, port):
    smuggled = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"
    sent = request(key, f"content-length: {len(IN_CHUNKS) + len(smuggled)}", "transfer-encoding: chunked")
    with connected(getattr(service, port)) as connection:
        connection.sendall(sent + IN_CHUNKS + smuggled)
        received = everything_from(connection)
    # The main port's server reads the chunks and then closes, as HTTP allows.
    assert received.count(b"HTTP/1.1 ") - received.count(b"HTTP/1.1 request") == 1
    assert received.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 202 "))


@pytest.mark.parametrize("port", PORTS)
def test_thousands_of_pipelined_upgrade_offers_are_answered_in_order(service, port):
    count = 1700
    offer = b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n"
    last = b"GET /nowhere HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    with connected(getattr(service, port)) as connection:
        sending = threading.Thread(target=send_all, args=(connection, offer * count + last))
        sending.start()
        received = everything_from(connection)
        sending.join(PATIENCE_S)
    assert received.count(b"HTTP/1.1 200 ") == count
    assert received.rindex(b"HTTP/1.1 404 ") > received.rindex(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("port", PORTS)
def test_unusual_but_valid_requests_work(service, key, port):
    url = getattr(service, port)
    close = "connection: close"
    assert answered(url, request(key, SIZED, close) + BODY)[0] == 202
    assert answered(url, request(key, "content-length: 00016", close) + BODY)[0] == 202
    assert answered(url, request(key, "Transfer-Encoding: CHUNKED", close) + IN_CHUNKS)[0] == 202
    trailed = IN_CHUNKS[:-2] + b"x-a: b\r\n\r\n"
    assert answered(url, request(key, "transfer-encoding: chunked", close) + trailed)[0] == 202
    assert answered(url, request(key, SIZED, close, host="host: [::1]:80") + BODY)[0] == 202
    assert answered(url, request(key, SIZED, first="POST /v1/events HTTP/1.0", host=None) + BODY)[0] == 202
    assert answered(url, request(key, close, first="HEAD /healthz HTTP/1.1")) == (200, b"")
    with connected(url) as connection:
        connection.sendall(request(key, SIZED, close, "expect: 100-continue"))
        assert connection.recv(1000).startswith(b"HTTP/1.1 100 ")
        connection.sendall(BODY)
        assert everything_from(connection).startswith(b"HTTP/1.1 202 ")


def test_connections_per_address_are_limited(service):
    held = [connected(service.ingest_url) for _ in range(PER_ADDRESS)]
    for connection in held:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 200 ")
    with connected(service.ingest_url) as one_too_many:
        received = everything_from(one_too_many)
    assert received.startswith(b"HTTP/1.1 503 ")
    assert b"\r\nretry-after: 1\r\n" in received
    assert "too many connections" in json.loads(received.partition(b"\r\n\r\n")[2])["error"]
    held.pop().close()
    assert [line for line in service.log().splitlines() if '"share_exceeded"' in line and "127.0.0.1" in line]
    until = time.monotonic() + PATIENCE_S
    while (status := answered(service.ingest_url, b"GET /healthz HTTP/1.0\r\n\r\n")[0]) == 503:
        assert time.monotonic() < until
    assert status == 200
    for connection in held:
        connection.close()


def test_requests_in_progress_per_address_are_limited_on_the_main_port(service, key):
    held = [connected(service.url) for _ in range(PER_ADDRESS)]
    for connection in held:
        connection.sendall(request(key, "content-length: 1000", "expect: 100-continue"))
        assert connection.recv(1000).startswith(b"HTTP/1.1 100 "), "the request is in progress"
    status, answer = answered(service.url, b"GET /v1/metrics/mau HTTP/1.1\r\nhost: x\r\n\r\n")
    assert (status, json.loads(answer)["ok"]) == (503, False)
    status, answer = answered(service.url, b"GET /v1/apps HTTP/1.1\r\nhost: x\r\n\r\n")
    assert (status, json.loads(answer)["error"]["code"]) == (502, "upstream_unavailable")
    for connection in held:
        connection.close()
    until = time.monotonic() + PATIENCE_S
    while (status := httpx.get(f"{service.url}/healthz").status_code) == 503:
        assert time.monotonic() < until
    assert status == 200


@pytest.mark.parametrize("port", PORTS)
def test_a_megabyte_over_a_slow_connection_is_accepted(service, key, port):
    body = b'[{"name": "seen"}]'.ljust(1_000_000)
    pieces = 14
    began = time.monotonic()
    with connected(getattr(service, port)) as connection:
        connection.sendall(request(key, f"content-length: {len(body)}", "connection: close"))
        for number in range(pieces):
            time.sleep(0.8)
            connection.sendall(body[len(body) * number // pieces : len(body) * (number + 1) // pieces])
        received = everything_from(connection)
    assert time.monotonic() - began > 10
    assert received.startswith(b"HTTP/1.1 202 ")
