"""Limit connections or requests per client address, so that one machine cannot take them all."""

import time
from collections.abc import Callable
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Final

import structlog

_LOG_EVERY_S: Final = 60.0
_NETWORK_BYTES: Final = 8

log = structlog.get_logger()


class PerAddress:
    """Count connections, or requests in flight, by client network."""

    def __init__(self, limit: int, kind: str, ticks: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit  # 0: unlimited
        self._kind = kind
        self._ticks = ticks
        self._held: dict[str, int] = {}
        self._refused = 0
        self._quiet_until = ticks()

    def enter(self, address: str) -> bool:
        """Count one more and return True, or return False at the limit. Every successful `enter` needs a `leave`."""
        if not self._limit:
            return True
        origin = origin_of(address)
        held = self._held.get(origin, 0)
        if held >= self._limit:
            self._log_refusal(origin)
            return False
        self._held[origin] = held + 1
        return True

    def leave(self, address: str) -> None:
        if not self._limit:
            return
        origin = origin_of(address)
        held = self._held.pop(origin) - 1
        if held:
            self._held[origin] = held

    def _log_refusal(self, origin: str) -> None:
        """Log the refused origin at most once a minute: a flood may be deliberate."""
        self._refused += 1
        if self._ticks() >= self._quiet_until:
            self._quiet_until = self._ticks() + _LOG_EVERY_S
            advice = "if this is a proxy of yours, set MAUVE_PROXIES; else see MAUVE_CONNECTIONS_PER_ADDRESS"
            log.warning("address_refused", what=self._kind, origin=origin, times=self._refused, advice=advice)
            self._refused = 0


@lru_cache(maxsize=4096)
def origin_of(address: str) -> str:
    """Return the network that an address counts toward. For IPv6 that is the /64, which one customer controls."""
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
