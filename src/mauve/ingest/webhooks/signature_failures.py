"""Count deliveries with a bad signature for the owner.

A wrongly pasted secret is the most common mistake with a biller, so the owner should see it. But anyone can post to
the address, so a failure makes no row of its own: failures are counted in memory, only for projects that have a
secret and under a few fixed words, and the counts are written at most once a second.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

import structlog

from mauve.ingest.webhooks.signatures import SignatureFailure
from mauve.stores import StoreUnavailableError
from mauve.stores.deliveries import DeliveryResult, Tally
from mauve.stores.ledger import Entry
from mauve.stores.ledger.group_commit import GroupedLedger
from mauve.stores.published import PublishedSecret

_WRITE_EVERY_S: Final = 1.0

log = structlog.get_logger()


def counted_once(tallies: Iterable[Tally]) -> list[Tally]:
    """Return the tallies to show: without `refused` where the reasons tell the same deliveries."""
    found = list(tallies)
    explained = {(each.project, each.provider) for each in found if each.word in frozenset(SignatureFailure)}
    return [
        each for each in found if each.word != DeliveryResult.REFUSED or (each.project, each.provider) not in explained
    ]


class SignatureFailureCounts:
    def __init__(self, ledger: GroupedLedger) -> None:
        self._ledger = ledger
        self._tallies: dict[tuple[str, str, str], Tally] = {}
        self._writing: asyncio.Task[None] | None = None

    def add(self, secret: PublishedSecret, failure: SignatureFailure, at: int) -> None:
        for word in (DeliveryResult.REFUSED, failure):
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
