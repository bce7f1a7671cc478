"""Limit how many requests of one organization wait for a pool of threads, so that none fills the queue for all."""

import time
from collections import Counter
from collections.abc import Callable
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
