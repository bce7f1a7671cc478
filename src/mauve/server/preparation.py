"""Prepare the installation before a process serves it, or in the background while a server is down."""

import signal
import sys
import threading
import time
from typing import Final

import structlog

from mauve.config import Settings
from mauve.server.child_protocol import ChildConfig
from mauve.wiring.bootstrap import prepare_unless_down

_RETRY_S: Final = 2.0

log = structlog.get_logger()


class Preparation:
    """Raises if the installation is not servable."""

    def __init__(self, config: ChildConfig, settings: Settings) -> None:
        self._settings = settings
        self._down = _prepared_unless_stopped(settings) if config.is_first else None
        self.failure: str | None = None
        if self._down is not None:
            log.warning("started_degraded", reason=self._down, advice="it recovers when the server is back up")
            threading.Thread(target=self._finish, name="preparation", daemon=True).start()

    @property
    def is_done(self) -> bool:
        return self._down is None

    def _finish(self) -> None:
        while self._down is not None:
            time.sleep(_RETRY_S)
            try:
                self._down = prepare_unless_down(self._settings)
            except Exception as error:  # noqa: BLE001 - the next start reports it
                self.failure = str(error)
                return
        log.info("prepared")


def _prepared_unless_stopped(settings: Settings) -> str | None:
    """Prepare the installation; on SIGTERM, clean up after an incomplete first start and exit."""
    former = signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        return prepare_unless_down(settings)
    finally:
        signal.signal(signal.SIGTERM, former)
