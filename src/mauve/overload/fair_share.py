"""Limit how many requests or connections of one owner are in flight: an organization, a credential, an address."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Final

import structlog

_OWNERS_MAX: Final = 4096
_LOG_EVERY_S: Final = 60.0
_NETWORK_BYTES: Final = 8
_PROXY_ADVICE: Final = "if this is a proxy of yours, set MAUVE_PROXIES; else see MAUVE_CONNECTIONS_PER_ADDRESS"

log = structlog.get_logger()


class FairShare:
    """Count requests in flight by owner: the organization of a credential once it is known, else the credential.

    Used from one event loop; `learn` may be called from any thread.
    """

    def __init__(
        self, limit: int, kind: str, ticks: Callable[[], float] = time.monotonic, advice: str | None = None
    ) -> None:
        self._limit = limit
        self._logged = {"kind": kind, "limit": limit} | ({} if advice is None else {"advice": advice})
        self._ticks = ticks
        self._in_flight: Counter[str] = Counter()
        self._owners: dict[int, str] = {}  # by the hash of a credential, which is not kept itself
        self._refused = 0
        self._quiet_until = ticks()

    def owner_of(self, credential: str) -> str:
        fingerprint = hash(credential)
        return self._owners.get(fingerprint, f"credential {fingerprint:x}")

    def learn(self, credential: str, org_id: str) -> None:
        if len(self._owners) >= _OWNERS_MAX:
            self._owners.clear()
        self._owners[hash(credential)] = org_id

    def enter(self, owner: str) -> bool:
        """Count one more and return True, or return False at the limit. Every successful `enter` needs a `leave`."""
        if self._in_flight[owner] >= self._limit:
            self._log_refusal(owner)
            return False
        self._in_flight[owner] += 1
        return True

    def leave(self, owner: str) -> None:
        self._in_flight[owner] -= 1
        if not self._in_flight[owner]:
            del self._in_flight[owner]

    def _log_refusal(self, owner: str) -> None:
        """Log at most once a minute: a flood may be deliberate."""
        self._refused += 1
        if self._ticks() >= self._quiet_until:
            self._quiet_until = self._ticks() + _LOG_EVERY_S
            log.warning("share_exceeded", owner=owner, times=self._refused, **self._logged)
            self._refused = 0


class PerAddress:
    """Count connections, or requests in flight, by client network, so that one machine cannot take them all."""

    def __init__(self, limit: int, kind: str, ticks: Callable[[], float] = time.monotonic) -> None:
        self._share = FairShare(limit, kind, ticks, _PROXY_ADVICE) if limit else None  # 0: unlimited

    def enter(self, address: str) -> bool:
        return self._share is None or self._share.enter(origin_of(address))

    def leave(self, address: str) -> None:
        if self._share is not None:
            self._share.leave(origin_of(address))


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


class OwnerSemaphore:
    """Lets a few requests of each owner run concurrently; the others wait. Used from one event loop."""

    def __init__(self, concurrent_max: int) -> None:
        self._concurrent_max = concurrent_max
        self._gates: dict[str, asyncio.Semaphore] = {}
        self._present: Counter[str] = Counter()

    @asynccontextmanager
    async def acquired(self, owner: str, wait_s: float) -> AsyncIterator[None]:
        """Wait for one of the owner's slots and hold it during the block; raise `TimeoutError` after `wait_s`."""
        gate = self._gates.setdefault(owner, asyncio.Semaphore(self._concurrent_max))
        self._present[owner] += 1
        try:
            await asyncio.wait_for(gate.acquire(), wait_s)
            try:
                yield
            finally:
                gate.release()
        finally:
            self._present[owner] -= 1
            if not self._present[owner]:
                del self._present[owner], self._gates[owner]
