"""Which addresses a message may go to. The rules are pure; names are resolved in `connection`."""

import re
from collections.abc import Sequence
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
