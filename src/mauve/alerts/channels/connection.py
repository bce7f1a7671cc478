"""Which addresses a message may go to, and connections that end on time, whatever the other side does.

A socket's own timeout restarts with every byte, so a server that sends one byte a second would hold the caller forever.
Here a timer shuts the connection down at the deadline, which ends any read, write or handshake.
"""

import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

_URL_CHARACTERS_MAX: Final = 2048
_URL: Final = re.compile(r"[!-\[\]-~]+")  # visible ASCII without the backslash, which programs read differently
_ATOM: Final = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_LABEL: Final = r"[A-Za-z0-9-]{1,63}"
_EMAIL: Final = re.compile(rf"(?=[^@]{{1,64}}@){_ATOM}(\.{_ATOM})*@{_LABEL}(\.{_LABEL})*")
_EMAIL_CHARACTERS_MAX: Final = 254
_LOCAL_NAMES: Final = (".localhost", ".local", ".internal", ".home.arpa", ".lan")
_PORTS: Final = {"http": 80, "https": 443}
# Addresses that look public but are not: protocol assignments, 6to4 relays, the host that serves Azure's machines.
_SPECIAL_V4: Final = tuple(map(IPv4Network, ("192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32")))
_PUBLIC_V6: Final = IPv6Network("2000::/3")
# Within that: tunnels, which carry an IPv4 address of any kind, and assignments that are not routed.
_SPECIAL_V6: Final = tuple(map(IPv6Network, ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")))
_NAT64: Final = IPv6Network("64:ff9b::/96")
HTTPS_ONLY: Final = (
    "The address of a webhook starts with https://. Copy it from the receiver's settings; "
    "for one in your own network, ask the operator to set MAUVE_ALERTS_ALLOW_PRIVATE=1."
)
PRIVATE_REFUSED: Final = (
    "The address belongs to a private network. Use one that is reachable from the internet, "
    "or ask the operator to set MAUVE_ALERTS_ALLOW_PRIVATE=1."
)
_LOOKUPS_MAX: Final = 64  # several batches: names that resolve slowly must not block others
_ADDRESSES_TRIED_MAX: Final = 4  # A name may resolve to thousands of addresses: try only a few.
_lookups: Final = threading.BoundedSemaphore(_LOOKUPS_MAX)


class Endpoint(NamedTuple):
    """The parts of a webhook's URL that a request needs."""

    is_tls: bool
    host: str
    port: int
    host_header: str
    path: str  # with the query


def check_email(address: str) -> None:
    if len(address) > _EMAIL_CHARACTERS_MAX or not _EMAIL.fullmatch(address):
        raise ValueError("No message can be sent to this e-mail address. Enter one such as you@example.com.")


def endpoint_from(url: str, *, allow_private: bool) -> Endpoint:
    """Return the parts of a webhook's URL. Raise ValueError, with a sentence for the owner, if it may not be used.

    Names are not resolved: that may take long, and may give another answer when a message is sent. The sender checks
    the addresses of a name at every attempt.
    """
    parts = _split(url)
    if parts.scheme != "https" and not (allow_private and parts.scheme == "http"):
        raise ValueError(HTTPS_ONLY)
    if parts.username is not None or parts.password is not None:
        raise ValueError("Leave user name and password out of the address: they would be stored as plain text.")
    host = (parts.hostname or "").rstrip(".")
    if not host:
        raise ValueError("The address has no host. Enter one such as https://example.com/hook.")
    if not allow_private and _is_private_host(host):
        raise ValueError(PRIVATE_REFUSED)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Endpoint(parts.scheme == "https", host, parts.port or _PORTS[parts.scheme], parts.netloc, path)


def check_resolved(addresses: Sequence[str]) -> None:
    """Raise ValueError unless every address of a name is public: the name's owner chooses which one is used."""
    if not all(is_public(ip_address(address)) for address in addresses):
        raise ValueError(PRIVATE_REFUSED)


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Return whether an address is reachable on the internet and belongs to no network of ours."""
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or (IPv4Address(int(address) & 0xFFFF_FFFF) if address in _NAT64 else None)
        if inner is not None:
            return is_public(inner)
        is_special = any(address in network for network in _SPECIAL_V6)
        return address in _PUBLIC_V6 and address.is_global and not is_special
    is_special = any(address in network for network in _SPECIAL_V4)
    return address.is_global and not (address.is_multicast or address.is_reserved or is_special)


def _split(url: str) -> SplitResult:
    if len(url) > _URL_CHARACTERS_MAX:
        raise ValueError(f"The address is longer than {_URL_CHARACTERS_MAX} characters. Use a shorter one.")
    if not _URL.fullmatch(url):
        raise ValueError("The address has spaces, or characters outside ASCII. Enter it as the receiver shows it.")
    try:
        parts = urlsplit(url)
        _ = parts.port, parts.hostname  # Both are parsed when they are read.
    except ValueError:
        raise ValueError("This is not a valid address. Enter one such as https://example.com/hook.") from None
    return parts


def _is_private_host(host: str) -> bool:
    """Return whether a host is private by its name alone. The sender checks the addresses of any other name."""
    try:
        return not is_public(ip_address(host))
    except ValueError:
        _, dot, last_label = host.rpartition(".")
        # The system's resolver also reads addresses such as 127.1; no public name ends so.
        return not dot or host.endswith(_LOCAL_NAMES) or last_label[:1].isdigit()


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
