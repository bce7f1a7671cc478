"""An open-loop load generator: `python -m bench.open_loop` with its orders as JSON, what it saw as the answer.

Requests are sent when they are due, whatever became of those before: latencies count from the planned moment. One
thread on plain sockets over connections that are kept; a request that finds none free opens another, up to
`CONNECTIONS_MAX`, and is counted as not sent beyond that. Bodies are compressed, as libraries that batch do, each
with ids of its own. Only this machine is ever called.

With `callers` instead of phases the loop is closed: so many send on as soon as they are answered.
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
PATIENCE_S = 15.0
SEND_BUFFER_BYTES = 1024 * 1024  # A whole batch fits, so that sending never waits.
CUT_OFF, NOT_SENT = 0, -1
SEED = 20261115


@dataclass
class Connection:
    socket: socket.socket
    port: int
    waits_for: tuple[float, int, int] | None = None  # planned at, phase, stream


@dataclass
class Activity:
    """What became of each request: phase, stream, planned at, latency, status; and whether it says when to retry."""

    rows: list[tuple[int, int, float, float, int, bool]] = field(default_factory=list)
    late_ms: list[float] = field(default_factory=list)
    connections: int = 0


def schedule(phases: list[dict], chance: random.Random) -> Iterator[tuple[float, int, int]]:
    """Return when to send what: arrivals at random moments, at the phase's rate for each stream."""
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
        self._under_way = 0
        self._sent = 0
        self.seen = Activity()

    def run(self, planned: list[tuple[float, int, int]]) -> Activity:
        began = time.perf_counter()
        place = 0
        ends = began + planned[-1][0] + PATIENCE_S
        while (now := time.perf_counter()) < ends and (place < len(planned) or self._under_way):
            while place < len(planned) and began + planned[place][0] <= now:
                at, phase, stream = planned[place]
                self._send(began + at, phase, stream)
                place += 1
                now = time.perf_counter()
            wait = 0.01 if place == len(planned) else max(0.0, min(0.01, began + planned[place][0] - now))
            for key, _ in self._selector.select(wait):
                self._receive(key.data)
        self.seen.rows = [(phase, stream, at - began, *rest) for phase, stream, at, *rest in self.seen.rows]
        return self.seen

    def run_closed(self, callers: int, seconds: float) -> dict[str, float]:
        """Return how many were accepted, and in how many seconds."""
        began = time.perf_counter()
        while (now := time.perf_counter()) < began + seconds or self._under_way:
            while now < began + seconds and self._under_way < callers:
                self._send(now, 0, 0)
            for key, _ in self._selector.select(0.01):
                self._receive(key.data)
        return {"accepted": sum(row[4] == 202 for row in self.seen.rows), "seconds": time.perf_counter() - began}

    def _send(self, at: float, phase: int, stream: int) -> None:
        port, head, texts = self._streams[stream]
        connection = self._idle[port].pop() if self._idle[port] else self._connected(port)
        if connection is None:
            self.seen.rows.append((phase, stream, at, 0.0, NOT_SENT, False))
            return
        self._sent += 1
        self.seen.late_ms.append((time.perf_counter() - at) * 1000)
        connection.waits_for = (at, phase, stream)
        self._under_way += 1
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
            self._under_way -= 1
            latency_ms = (time.perf_counter() - at) * 1000
            status = int(reply[9:12]) if reply else CUT_OFF
            self.seen.rows.append((phase, stream, at, latency_ms, status, b"retry-after" in reply[:400].lower()))
        if reply and waited is not None and b"connection: close" not in reply[:400].lower():
            self._idle[connection.port].append(connection)
            return
        self._selector.unregister(connection.socket)
        connection.socket.close()
        self.seen.connections -= 1
        if connection in self._idle[connection.port]:
            self._idle[connection.port].remove(connection)

    def _connected(self, port: int) -> Connection | None:
        if self.seen.connections >= CONNECTIONS_MAX:
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
        self.seen.connections += 1
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
    orders = json.load(sys.stdin)
    os.sched_setaffinity(0, set(orders["cores"]))
    generator = Generator(orders["streams"])
    if "callers" in orders:
        json.dump(generator.run_closed(orders["callers"], orders["seconds"]), sys.stdout)
        return
    planned = sorted(schedule(orders["phases"], random.Random(SEED)))
    if len(planned) > REQUESTS_MAX:
        raise SystemExit(f"{len(planned)} requests are more than {REQUESTS_MAX}")
    seen = generator.run(planned)
    late = sorted(seen.late_ms)
    json.dump({"planned": len(planned), "rows": seen.rows, "late_p99_ms": late[int(len(late) * 0.99)]}, sys.stdout)


if __name__ == "__main__":
    main()
