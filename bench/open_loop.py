"""An open-loop load generator: `python -m bench.open_loop`, JSON config in, JSON results out.

Requests are sent on schedule, whether or not earlier ones were answered; latency counts from the scheduled time. One
thread uses plain sockets and keep-alive connections. A request that finds none free opens another, up to
`CONNECTIONS_MAX`; beyond that it counts as not sent. Bodies are compressed, as libraries that batch do, and have new
ids each time. Only this machine is called.

With `callers` instead of phases the loop is closed: each of them sends again as soon as it is answered.
"""

import json
import os
import random
import selectors
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from isal import igzip

from bench.bodies import STAMP

CONNECTIONS_MAX = 1_500
REQUESTS_MAX = 1_000_000
REPLY_TIMEOUT_S = 15.0
SEND_BUFFER_BYTES = 1024 * 1024  # A whole batch fits, so sending never blocks.
CUT_OFF, NOT_SENT = 0, -1
SEED = 20261115


@dataclass
class Connection:
    socket: socket.socket
    port: int
    waits_for: tuple[float, int, int] | None = None  # scheduled at, phase, stream


@dataclass
class Results:
    """For each request: phase, stream, scheduled at, latency, status, and whether the reply has `Retry-After`."""

    rows: list[tuple[int, int, float, float, int, bool]] = field(default_factory=list)
    late_ms: list[float] = field(default_factory=list)
    connections: int = 0


def schedule(phases: list[dict], chance: random.Random) -> Iterator[tuple[float, int, int]]:
    """Yield a random (Poisson) schedule with each phase's rate for each stream."""
    begins = 0.0
    for number, phase in enumerate(phases):
        for stream, rate in enumerate(phase["rates"]):
            at = begins + chance.expovariate(rate) if rate else begins + phase["seconds"]
            while at < begins + phase["seconds"]:
                yield at, number, stream
                at += chance.expovariate(rate)
        begins += phase["seconds"]


class Generator:
    def __init__(self, streams: list[dict]) -> None:
        self._streams = [(stream["port"], _head(stream), stream["bodies"]) for stream in streams]
        self._selector = selectors.DefaultSelector()
        self._idle: dict[int, list[Connection]] = {port: [] for port, _, _ in self._streams}
        self._in_flight = 0
        self._sent = 0
        self.results = Results()

    def run(self, scheduled: list[tuple[float, int, int]]) -> Results:
        began = time.perf_counter()
        place = 0
        ends = began + scheduled[-1][0] + REPLY_TIMEOUT_S
        while (now := time.perf_counter()) < ends and (place < len(scheduled) or self._in_flight):
            while place < len(scheduled) and began + scheduled[place][0] <= now:
                at, phase, stream = scheduled[place]
                self._send(began + at, phase, stream)
                place += 1
                now = time.perf_counter()
            wait = 0.01 if place == len(scheduled) else max(0.0, min(0.01, began + scheduled[place][0] - now))
            for key, _ in self._selector.select(wait):
                self._receive(key.data)
        self.results.rows = [(phase, stream, at - began, *rest) for phase, stream, at, *rest in self.results.rows]
        return self.results

    def run_closed(self, callers: int, seconds: float) -> dict[str, float]:
        """Return the number of accepted requests, and the seconds it took."""
        began = time.perf_counter()
        while (now := time.perf_counter()) < began + seconds or self._in_flight:
            while now < began + seconds and self._in_flight < callers:
                self._send(now, 0, 0)
            for key, _ in self._selector.select(0.01):
                self._receive(key.data)
        return {"accepted": sum(row[4] == 202 for row in self.results.rows), "seconds": time.perf_counter() - began}

    def _send(self, at: float, phase: int, stream: int) -> None:
        port, head, texts = self._streams[stream]
        connection = self._idle[port].pop() if self._idle[port] else self._connected(port)
        if connection is None:
            self.results.rows.append((phase, stream, at, 0.0, NOT_SENT, False))
            return
        self._sent += 1
        self.results.late_ms.append((time.perf_counter() - at) * 1000)
        connection.waits_for = (at, phase, stream)
        self._in_flight += 1
        try:
            connection.socket.sendall(_request(head, texts[self._sent % len(texts)], self._sent))
        except OSError:
            self._finish(connection, b"")

    def _receive(self, connection: Connection) -> None:
        try:
            reply = connection.socket.recv(65536)
        except OSError:
            reply = b""
        self._finish(connection, reply)

    def _finish(self, connection: Connection, reply: bytes) -> None:
        waited, connection.waits_for = connection.waits_for, None
        if waited is not None:
            at, phase, stream = waited
            self._in_flight -= 1
            latency_ms = (time.perf_counter() - at) * 1000
            status = int(reply[9:12]) if reply else CUT_OFF
            self.results.rows.append((phase, stream, at, latency_ms, status, b"retry-after" in reply[:400].lower()))
        if reply and waited is not None and b"connection: close" not in reply[:400].lower():
            self._idle[connection.port].append(connection)
            return
        self._selector.unregister(connection.socket)
        connection.socket.close()
        self.results.connections -= 1
        if connection in self._idle[connection.port]:
            self._idle[connection.port].remove(connection)

    def _connected(self, port: int) -> Connection | None:
        if self.results.connections >= CONNECTIONS_MAX:
            return None
        opened = socket.socket()
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        opened.settimeout(0.05)
        try:
            opened.connect(("127.0.0.1", port))
        except OSError:
            opened.close()
            return None
        self.results.connections += 1
        connection = Connection(opened, port)
        self._selector.register(opened, selectors.EVENT_READ, connection)
        return connection


def _head(stream: dict) -> str:
    method = "POST" if stream["bodies"][0] else "GET"
    return f"{method} {stream['path']} HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {stream['key']}\r\n"


def _request(head: str, text: str, number: int) -> bytes:
    if not text:
        return f"{head}\r\n".encode()
    body = igzip.compress(text.replace(STAMP, f"{number:08x}").encode(), 0)
    head += f"content-type: application/json\r\ncontent-encoding: gzip\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def main() -> None:
    config = json.load(sys.stdin)
    os.sched_setaffinity(0, set(config["cores"]))
    generator = Generator(config["streams"])
    if "callers" in config:
        json.dump(generator.run_closed(config["callers"], config["seconds"]), sys.stdout)
        return
    scheduled = sorted(schedule(config["phases"], random.Random(SEED)))
    if len(scheduled) > REQUESTS_MAX:
        raise SystemExit(f"{len(scheduled)} requests exceed the limit of {REQUESTS_MAX}: lower the rates")
    results = generator.run(scheduled)
    late = sorted(results.late_ms)
    json.dump(
        {"scheduled": len(scheduled), "rows": results.rows, "late_p99_ms": late[int(len(late) * 0.99)]}, sys.stdout
    )


if __name__ == "__main__":
    main()
