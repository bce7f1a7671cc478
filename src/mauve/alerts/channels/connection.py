"""Connections that end on time, whatever the other side does.

A socket's own timeout restarts with every byte, so a server that sends one byte a second would hold the caller forever.
Here a timer shuts the connection down at the deadline, which ends any read, write or handshake.
"""

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Final

_LOOKUPS_MAX: Final = 64  # several batches: names that resolve slowly must not block others
_ADDRESSES_TRIED_MAX: Final = 4  # A name may resolve to thousands of addresses: try only a few.
_lookups: Final = threading.BoundedSemaphore(_LOOKUPS_MAX)


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


Resolve = Callable[[str, Deadline], Sequence[str]]


def resolve(host: str, deadline: Deadline) -> Sequence[str]:
    """Return all IP addresses of a host. Raise OSError if there are none, TimeoutError if finding them takes too long.

    The system's resolver cannot be interrupted. It runs in a thread that is abandoned when time is up. The number of
    these threads is limited, and each ends when the resolver gives up.
    """
    if not _lookups.acquire(timeout=deadline.left_s()):
        raise TimeoutError
    answer: Future[Sequence[str]] = Future()
    threading.Thread(target=_look_up, args=(host, answer), daemon=True).start()
    return answer.result(timeout=deadline.left_s())


@contextmanager
def connected(
    addresses: Sequence[str], port: int, deadline: Deadline, name: str, *, tls: ssl.SSLContext | None
) -> Iterator[socket.socket]:
    """Connect to the first address that accepts, with TLS for the name if wanted. The deadline ends the connection."""
    with _connect(addresses[:_ADDRESSES_TRIED_MAX], port, deadline) as plain, deadline.ending(plain):
        plain.settimeout(deadline.left_s())
        if tls is None:
            yield plain
            return
        with tls.wrap_socket(plain, server_hostname=name) as secured:
            yield secured


def _connect(addresses: Sequence[str], port: int, deadline: Deadline) -> socket.socket:
    failure = OSError("no address")
    for index, address in enumerate(addresses):
        try:
            # Share the time: the first address may be IPv6 on a machine without an IPv6 route.
            return socket.create_connection((address, port), deadline.left_s() / (len(addresses) - index))
        except OSError as error:
            failure = error
    raise failure


def _look_up(host: str, answer: Future[Sequence[str]]) -> None:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        answer.set_result([str(address[0]) for *_, address in found])
    except OSError as error:
        answer.set_exception(error)
    except UnicodeError:  # a label that is too long for the DNS
        answer.set_exception(OSError("not a host name"))
    finally:
        _lookups.release()


def _shut_down(connection: socket.socket) -> None:
    with suppress(OSError):  # The other side may have closed it.
        connection.shutdown(socket.SHUT_RDWR)
