"""This loader's lease: acquired when free, renewed by a thread, and released on a clean stop."""

import threading
import time
from typing import Final

import structlog

from mauve.stores import StoreUnavailableError
from mauve.stores.ledger import Turn
from mauve.stores.ledger.loading import LeaseStore

TTL_S: Final = 4.0
RENEW_EVERY_S: Final = 1.0
TRY_EVERY_S: Final = 1.0  # lets another loader take over within 10 s
YIELD_S: Final = 6.0  # long enough for every other loader to try

log = structlog.get_logger()


class LoaderLease:
    """Used by one runner and by its own renewal thread, because a step may take longer than the lease lasts.

    Losing the lease unnoticed is safe: the ledger refuses commits from an expired turn. Without an interval, the lease
    is not renewed: no other loader can reach the ledger.
    """

    def __init__(
        self, store: LeaseStore, holder: str, *, ttl_s: float = TTL_S, renew_every_s: float | None = RENEW_EVERY_S
    ) -> None:
        self._store = store
        self._holder = holder
        self._ttl_s = ttl_s
        self._renew_every_s = renew_every_s
        self._turn: Turn | None = None
        self._yields_until_s = 0.0
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def is_yielding(self) -> bool:
        """Return whether this loader is leaving the lease to others for now."""
        return time.monotonic() < self._yields_until_s

    def turn(self) -> Turn | None:
        """Return this loader's turn, acquiring the lease if it is free; None if another loader holds it."""
        with self._lock:
            if self._closing.is_set() or self.is_yielding:
                return None
            if self._turn is None:
                self._turn = self._store.acquire(self._holder, self._ttl_s)
            if self._turn is not None and self._thread is None and self._renew_every_s is not None:
                self._thread = threading.Thread(
                    target=self._renew_until_closed, args=[self._renew_every_s], name="lease", daemon=True
                )
                self._thread.start()
            return self._turn

    def lose(self) -> None:
        """Reacquire the lease: the ledger has refused the turn, or the step has failed."""
        with self._lock:
            self._turn = None

    def give_way(self) -> None:
        """Release the lease and do not reacquire it for some seconds, so that another loader can take over."""
        if self._renew_every_s is None:
            self.lose()
        elif self._release():
            self._yields_until_s = time.monotonic() + YIELD_S

    def close(self) -> None:
        """Release the lease permanently, so that another loader can take over immediately."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
        self._release()

    def _release(self) -> bool:
        """Release the lease; return whether this loader had it."""
        with self._lock:
            turn, self._turn = self._turn, None
        if turn is None:
            return False
        try:
            self._store.release(turn)
        except StoreUnavailableError as error:
            log.warning("lease_not_released", reason=str(error), advice=f"it expires within {self._ttl_s:g} s")
        return True

    def _renew_until_closed(self, every_s: float) -> None:
        while not self._closing.wait(every_s):
            try:
                self._renew()
            except StoreUnavailableError as error:
                log.warning("lease_not_renewed", reason=str(error), advice="another loader may take over")

    def _renew(self) -> None:
        turn = self._turn
        if turn is None or self._store.renew(turn, self._ttl_s):
            return
        with self._lock:
            if self._turn == turn:
                self._turn = None
