"""A closed-loop load generator on plain sockets: `python -m bench.generator`, JSON config in, JSON counts out."""

import itertools
import json
import os
import selectors
import socket
import sys
import time
from collections import deque
from collections.abc import Iterator

from bench import bodies

STAMP = bodies.STAMP.encode()


def request_bytes(path: str, key: str, body: bytes) -> bytes:
    """Return a POST with the body, or a GET if it is empty."""
    if not body:
        return f"GET {path} HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {key}\r\n\r\n".encode()
    head = (
        f"POST {path} HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {key}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def stamped(requests: list[bytes], first_stamp: int) -> Iterator[bytes]:
    """Repeat the requests forever, with new ids each time."""
    for number in itertools.count(first_stamp):
        yield requests[number % len(requests)].replace(STAMP, b"%08x" % number)


def drive(
    port: int, requests: list[bytes], connections: int, seconds: float, rate: float, first_stamp: int = 0
) -> dict[str, float]:
    """Send for some seconds, at most `rate` requests per second and one per connection at a time."""
    selector = selectors.DefaultSelector()
    # Used in turn: the server closes an idle connection.
    idle = deque(_connected(port) for _ in range(connections))
    for connection in idle:
        selector.register(connection, selectors.EVENT_READ)
    source = stamped(requests, first_stamp)
    sent = answered = accepted = 0
    began = time.perf_counter()
    while (elapsed := time.perf_counter() - began) < seconds or answered < sent:
        while idle and elapsed < seconds and sent < rate * elapsed:
            idle.popleft().sendall(next(source))
            sent += 1
        for key, _ in selector.select(timeout=0.0005):
            reply = key.fileobj.recv(65536)
            answered += 1
            accepted += reply.startswith((b"HTTP/1.1 202", b"HTTP/1.1 200"))
            idle.append(key.fileobj)
    took = time.perf_counter() - began
    for connection in idle:
        connection.close()
    return {"requests": answered, "accepted": accepted, "seconds": took}


def _connected(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def main() -> None:
    config = json.load(sys.stdin)
    os.sched_setaffinity(0, set(config["cores"]))
    requests = [request_bytes(config["path"], config["key"], body.encode()) for body in config["bodies"]]
    done = drive(
        config["port"], requests, config["connections"], config["seconds"], config["rate"], config.get("first_stamp", 0)
    )
    json.dump(done, sys.stdout)


if __name__ == "__main__":
    main()
