"""A loader that waits may ask the one that has the lease for a turn.

A machine that moved its log to NATS may still hold events in its own files, which no other machine can load. A request
is a fact of the installation. Answering it deletes it, so a machine that asks and dies causes one short pause.
"""

from collections.abc import Callable
from typing import Final

import structlog

from mauve.stores.catalog import Installation

_WANTED_BY: Final = "load_turn_wanted_by"

log = structlog.get_logger()


class TurnRequests:
    def __init__(self, facts: Installation, machine: str, holds_records: Callable[[], bool]) -> None:
        self._facts = facts
        self._machine = machine
        self._holds_records = holds_records

    def ask_if_needed(self) -> None:
        """Ask for a turn if only this machine can load the records that it holds."""
        if self._holds_records() and self._facts.get(_WANTED_BY) != self._machine:
            log.info("load_turn_wanted", reason="events wait in this machine's own files")
            self._facts.put(_WANTED_BY, self._machine)

    def take(self) -> bool:
        """Return whether another machine has asked, and delete the request."""
        asked_by = self._facts.get(_WANTED_BY)
        if not asked_by:
            return False
        self._facts.put(_WANTED_BY, "")
        return asked_by != self._machine
