"""Limit how many requests of one organization wait for a pool of threads, and how many run there at once."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import structlog

_OWNERS_MAX: Final = 4096
_LOG_EVERY_S: Final = 60.0

log = structlog.get_logger()


class FairShare:
    """Count requests in flight by owner: the organization of a credential once it is known, else the credential.

    Used from one event loop; `learn` may be called from any thread.
    """

    def __init__(self, limit: int, plane: str, ticks: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._plane = plane
        self._ticks = ticks
        self._in_flight: Counter[str] = Counter()
        self._owners: dict[int, str] = {}  # by the hash of a credential, which is not kept itself
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
        if self._ticks() >= self._quiet_until:
            self._quiet_until = self._ticks() + _LOG_EVERY_S
            log.warning("share_exceeded", plane=self._plane, owner=owner, limit=self._limit)


class Turns:
    """Let a few requests of each owner run at once; the others wait. Used from one event loop."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._gates: dict[str, asyncio.Semaphore] = {}
        self._present: Counter[str] = Counter()

    @asynccontextmanager
    async def taken(self, owner: str, wait_s: float) -> AsyncIterator[None]:
        """Run the block when it is the owner's turn; raise `TimeoutError` if that takes too long."""
        gate = self._gates.setdefault(owner, asyncio.Semaphore(self._at_once))
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
