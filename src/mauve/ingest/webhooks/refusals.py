"""Deliveries that were refused, counted for the owner.

A secret that was pasted wrongly is the most usual mistake with a biller, so the owner should see it. But anybody can
knock at the address: a refusal makes no row of its own. It is counted in memory, for projects that have a secret and
under a handful of words, and the counts are written down once a second at most.
"""

import asyncio
from typing import Final

import structlog

from mauve.ingest.parts import MoneyRecorder
from mauve.ingest.webhooks.signatures import SignatureFlaw
from mauve.stores import StoreUnavailableError
from mauve.stores.deliveries import DeliveryResult, Tally
from mauve.stores.edge import PublishedSecret
from mauve.stores.ledger import Entry

_WRITE_EVERY_S: Final = 1.0

log = structlog.get_logger()


class RefusalCount:
    def __init__(self, ledger: MoneyRecorder) -> None:
        self._ledger = ledger
        self._tallies: dict[tuple[str, str, str], Tally] = {}
        self._writing: asyncio.Task[None] | None = None

    def add(self, secret: PublishedSecret, refusal: SignatureFlaw, at: int) -> None:
        for word in (DeliveryResult.REFUSED, refusal):
            key = (secret.public_id, secret.provider, word)
            before = self._tallies.get(key)
            self._tallies[key] = Tally(*key, 1 if before is None else before.count + 1, at)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_soon())

    async def _write_soon(self) -> None:
        await asyncio.sleep(_WRITE_EVERY_S)
        tallies, self._tallies, self._writing = self._tallies, {}, None
        try:
            await self._ledger.record(Entry(tallies=list(tallies.values())))
        except StoreUnavailableError as error:
            log.warning("refusals_not_noted", reason=str(error), advice="only their count is lost")
