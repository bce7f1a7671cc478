"""Connections that end on time, whatever the other side does.

A socket's own timeout restarts with every byte, so a server that sends one byte a second would hold the caller forever.
Here a timer shuts the connection down at the deadline, which ends any read, write or handshake.
"""

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple

_LOOKUPS_MAX: Final = 64  # several batches: names that resolve slowly must not block others
_ADDRESSES_TRIED_MAX: Final = 4  # A name may resolve to thousands of addresses: try only a few.
_lookups: Final = threading.BoundedSemaphore(_LOOKUPS_MAX)


class SocketAddress(NamedTuple):
    """One address of a name, as the system's resolver returns it."""

    family: socket.AddressFamily
    address: tuple[Any, ...]

    @property
    def ip(self) -> str:
        return str(self.address[0])


class Deadline:
    def __init__(self, seconds: float) -> None:
        self._ends_at = time.monotonic() + seconds

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._ends_at

    def left_s(self) -> float:
        """Return the time left, always above zero. Raise TimeoutError if there is none."""
        left_s = self._ends_at - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        return left_s

    @contextmanager
    def ending(self, connection: socket.socket) -> Iterator[None]:
        """Shut the connection down at the deadline, also if TLS is added after this call."""
        with connection.dup() as handle:  # the same connection: TLS takes over the first handle
            timer = threading.Timer(self.left_s(), _shut_down, [handle])
            timer.daemon = True
            timer.start()
            try:
                yield
            finally:
                timer.cancel()
                timer.join()


Resolve = Callable[[str, int, Deadline], Sequence[SocketAddress]]


def resolve(host: str, port: int, deadline: Deadline) -> Sequence[SocketAddress]:
    """Return all addresses of a host. Raise OSError if there are none, TimeoutError if finding them takes too long.

    The system's resolver cannot be interrupted. It runs in a thread that is abandoned when time is up. The number of
    these threads is limited, and each ends when the resolver gives up.
    """
    if not _lookups.acquire(timeout=deadline.left_s()):
        raise TimeoutError
    answer: Future[Sequence[SocketAddress]] = Future()
    threading.Thread(target=_look_up, args=(host, port, answer), daemon=True).start()
    return answer.result(timeout=deadline.left_s())


def connect(addresses: Sequence[SocketAddress], deadline: Deadline) -> socket.socket:
    """Connect to the first address that accepts."""
    failure = OSError("no address")
    tried = addresses[:_ADDRESSES_TRIED_MAX]
    for index, each in enumerate(tried):
        try:
            # Share the time: the first address may be IPv6 on a machine without an IPv6 route.
            return _connected(each, deadline, deadline.left_s() / (len(tried) - index))
        except OSError as error:
            failure = error
    raise failure


def _connected(to: SocketAddress, deadline: Deadline, connect_s: float) -> socket.socket:
    connection = socket.socket(to.family, socket.SOCK_STREAM)
    try:
        connection.settimeout(connect_s)
        connection.connect(to.address)
        connection.settimeout(deadline.left_s())
    except OSError:
        connection.close()
        raise
    return connection


def _look_up(host: str, port: int, answer: Future[Sequence[SocketAddress]]) -> None:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        answer.set_result([SocketAddress(family, address) for family, _, _, _, address in found])
    except OSError as error:
        answer.set_exception(error)
    except UnicodeError:  # a label that is too long for the DNS
        answer.set_exception(OSError("not a host name"))
    finally:
        _lookups.release()


def _shut_down(connection: socket.socket) -> None:
    with suppress(OSError):  # The other side may have closed it.
        connection.shutdown(socket.SHUT_RDWR)
