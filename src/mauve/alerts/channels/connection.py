"""Connections that end on time, whatever the other side does.

A socket's own timeout is no limit: it starts again with every byte, so a server that sends one byte a second holds the
caller forever. Here a timer shuts the connection down at the deadline, which ends any read, write or handshake.
"""

import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple

_LOOKUPS_MAX: Final = 64  # several batches: names that resolve slowly must not keep others from it
_ADDRESSES_TRIED_MAX: Final = 4  # A name with thousands of addresses must not make us knock at all of them.
_lookups: Final = threading.BoundedSemaphore(_LOOKUPS_MAX)


class SocketAddress(NamedTuple):
    """One address of a name, as the system's resolver returns it."""

    family: socket.AddressFamily
    address: tuple[Any, ...]

    @property
    def ip(self) -> str:
        return str(self.address[0])


class Deadline:
    """The moment at which sending ends."""

    def __init__(self, seconds: float) -> None:
        self._ends_at = time.monotonic() + seconds

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._ends_at

    def left_s(self) -> float:
        """Return the time that is left, which is never zero. Raise TimeoutError if none is."""
        left_s = self._ends_at - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        return left_s

    @contextmanager
    def ending(self, connection: socket.socket) -> Iterator[None]:
        """Shut the connection down at the deadline, also if TLS is put around it meanwhile."""
        with connection.dup() as handle:  # the same connection, untouched by what TLS does to the first handle
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

    The system's resolver cannot be interrupted. It works in a thread that is left behind when time is up; their number
    is limited, and the resolver gives up by itself.
    """
    if not _lookups.acquire(timeout=deadline.left_s()):
        raise TimeoutError
    answers: queue.SimpleQueue[Sequence[SocketAddress] | OSError] = queue.SimpleQueue()
    threading.Thread(target=_look_up, args=(host, port, answers), daemon=True).start()
    try:
        answer = answers.get(timeout=deadline.left_s())
    except queue.Empty:
        raise TimeoutError from None
    if isinstance(answer, OSError):
        raise answer
    return answer


def connect(addresses: Sequence[SocketAddress], deadline: Deadline) -> socket.socket:
    """Connect to the first address that accepts."""
    failure = OSError("no address")
    tried = addresses[:_ADDRESSES_TRIED_MAX]
    for index, each in enumerate(tried):
        try:
            # Share the time: the first address may be one of IPv6 on a machine whose IPv6 leads nowhere.
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


def _look_up(host: str, port: int, answers: "queue.SimpleQueue[Sequence[SocketAddress] | OSError]") -> None:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        answers.put([SocketAddress(family, address) for family, _, _, _, address in found])
    except OSError as error:
        answers.put(error)
    except UnicodeError:  # a label that is too long for the DNS
        answers.put(OSError("not a host name"))
    finally:
        _lookups.release()


def _shut_down(connection: socket.socket) -> None:
    with suppress(OSError):  # The other side may have closed it.
        connection.shutdown(socket.SHUT_RDWR)
