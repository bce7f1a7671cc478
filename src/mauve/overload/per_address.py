"""A bound on what one address has at a time, so that one machine cannot take all there is."""

import time
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Final

import structlog

_TELL_EVERY_S: Final = 60.0
_NETWORK_BYTES: Final = 8

log = structlog.get_logger()


class PerAddress:
    """Counts connections, or requests under way, by where they come from."""

    def __init__(self, most: int, what: str, ticks: Callable[[], float] = time.monotonic) -> None:
        self._most = most  # 0: any number
        self._what = what
        self._ticks = ticks
        self._held: Counter[str] = Counter()
        self._refused = 0
        self._silent_until = ticks()

    def enter(self, address: str) -> bool:
        """Count one more if there may be; whoever enters leaves."""
        if not self._most:
            return True
        origin = origin_of(address)
        if self._held[origin] >= self._most:
            self._tell(origin)
            return False
        self._held[origin] += 1
        return True

    def leave(self, address: str) -> None:
        if not self._most:
            return
        origin = origin_of(address)
        self._held[origin] -= 1
        if not self._held[origin]:
            del self._held[origin]

    def _tell(self, origin: str) -> None:
        """Log who was refused, and seldom: it may be done on purpose."""
        self._refused += 1
        if self._ticks() >= self._silent_until:
            self._silent_until = self._ticks() + _TELL_EVERY_S
            advice = "if this is a proxy of yours, set MAUVE_PROXIES; else see MAUVE_CONNECTIONS_PER_ADDRESS"
            log.warning("address_refused", what=self._what, origin=origin, times=self._refused, advice=advice)
            self._refused = 0


@lru_cache(maxsize=4096)
def origin_of(address: str) -> str:
    """Return by what an address is counted: IPv6 by its network of 64 bits, which one customer has to himself."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    network = parsed.packed[:_NETWORK_BYTES] + bytes(_NETWORK_BYTES)
    return f"{IPv6Address(network)}/64"
