"""Ports for servers that are started again on their own."""

import random
import socket
from contextlib import ExitStack, suppress


def free_ports(count: int) -> list[int]:
    """Return free ports below the range from which the system assigns ports: no connection takes them meanwhile."""
    found: list[int] = []
    with ExitStack() as held:
        for port in random.SystemRandom().sample(range(10_000, 30_000), 1_000):
            taken = held.enter_context(socket.socket())
            with suppress(OSError):
                taken.bind(("127.0.0.1", port))
                found.append(port)
            if len(found) == count:
                return found
    raise AssertionError(f"no {count} free ports")
