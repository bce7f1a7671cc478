"""How often somebody may try a password: counted before the costly check, by account and by address."""

import ipaddress
import threading
from typing import Final

from mauve.access.rate import RateLimit

ACCOUNT_BURST: Final = 10
ADDRESS_BURST: Final = 30
_ACCOUNT_REFILL_S: Final = 60
_ADDRESS_REFILL_S: Final = 10
_IPV6_PREFIX_BITS: Final = 64


class PasswordAttempts:
    """Two buckets have to hold one more attempt: that of the account and that of the visitor's address.

    An account that does not exist has a bucket like any other.
    """

    def __init__(self) -> None:
        self._accounts = RateLimit(1 / _ACCOUNT_REFILL_S, ACCOUNT_BURST)
        self._addresses = RateLimit(1 / _ADDRESS_REFILL_S, ADDRESS_BURST)
        self._taking = threading.Lock()

    def seconds_to_wait(self, email: str, address: str, now_ms: int) -> int:
        """Take one attempt; return 0, or after how many seconds to try again."""
        with self._taking:
            wait_s = self._addresses.seconds_to_wait(neighbourhood(address), now_ms)
            return wait_s or self._accounts.seconds_to_wait(email, now_ms)


def neighbourhood(address: str) -> str:
    """Return what one visitor cannot leave: the address itself, or for IPv6 the network they were given."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, _IPV6_PREFIX_BITS), strict=False))


def visitor_address(peer: str, forwarded_for: str | None, proxies: int) -> str:
    """Return where a request comes from, behind as many proxies of ours as there are.

    Each proxy appends whom it heard from. Only what our own proxies appended can be believed.
    """
    if proxies == 0 or forwarded_for is None:
        return peer
    named = [part.strip() for part in forwarded_for.split(",")]
    return named[-min(proxies, len(named))]
