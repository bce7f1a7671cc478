"""An organization's events outside this process: counted by the ledger, or waiting in other streams."""

from collections import Counter
from typing import Final, NamedTuple

import structlog

from mauve.core.accepted import AcceptedCounts, OrgPeriod
from mauve.stores import StoreUnavailableError
from mauve.stores.log import MIXED_STREAM
from mauve.stores.usage import AcceptedExchange, CountedUsage, UsageReader

_NOTHING_COUNTED: Final = CountedUsage("", {}, {}, (), 0)

log = structlog.get_logger()


class Sight(NamedTuple):
    """What a look has brought."""

    events: Counter[OrgPeriod]
    position: int  # up to which the events include those of our own stream
    is_new: bool  # the ledger was read for it


class UsageElsewhere:
    """Looks at the ledger and at what other processes share. Used from one thread at a time.

    While the ledger cannot be read, its last count stands, and what others accept is still added to it.
    """

    def __init__(self, stream: int, usage: UsageReader, exchange: AcceptedExchange) -> None:
        self._stream = stream
        self._usage = usage
        self._exchange = exchange
        self._counted = _NOTHING_COUNTED
        self._mixed = AcceptedCounts()
        self._mixed_of: frozenset[str] = frozenset()  # whose records of the mixed stream are in it
        self._is_current = True

    def look(self, capped: frozenset[str], period: str) -> Sight:
        others = self._exchange.others()  # before the ledger: it has what their owners have dropped
        is_new = self._read_ledger(capped, period)
        positions = self._counted.positions
        events: Counter[OrgPeriod] = Counter()
        if self._counted.period == period:
            events.update({OrgPeriod(org_id, period): count for org_id, count in self._counted.events.items()})
        for stream, accepted in {**others, MIXED_STREAM: self._mixed}.items():
            events.update(accepted.sums(positions.get(stream, 0)))
        return Sight(events, positions.get(self._stream, 0), is_new)

    def _read_ledger(self, capped: frozenset[str], period: str) -> bool:
        knows_mixed = capped <= self._mixed_of
        try:
            counted = self._usage.counted(period, capped, self._counted.mixed_through if knows_mixed else 0)
        except StoreUnavailableError as error:
            if self._is_current:
                log.warning("usage_unreadable", reason=str(error), advice="caps go on from the last count")
            self._is_current = False
            return False
        self._counted, self._is_current = counted, True
        self._mixed = self._mixed if knows_mixed else AcceptedCounts()
        self._mixed_of = capped
        self._mixed.keep_only(capped)
        self._mixed.drop_loaded(counted.positions.get(MIXED_STREAM, 0))
        for number, org_period, events in counted.mixed:
            self._mixed.add(org_period, number, events)
        return True
