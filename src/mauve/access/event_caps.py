"""How many events an organization with a cap has sent in a billing period, told without the core.

It is what the ledger has counted, what every process has accepted behind the positions of that count, and what is
under way in this one. Organizations without a cap cost nothing here.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final, NamedTuple

import structlog

from mauve.access.keyring import Keyring
from mauve.access.recount import Recount
from mauve.access.usage_elsewhere import Sight, UsageElsewhere
from mauve.core.accepted import AcceptedCounts, OrgPeriod
from mauve.core.clock import Clock
from mauve.core.window import period_of
from mauve.stores import StoreUnavailableError
from mauve.stores.log import LogWriter, StreamReader
from mauve.stores.usage import AcceptedExchange, UsageReader

LOOK_EVERY_S: Final = 0.25

log = structlog.get_logger()


class OwnStream(NamedTuple):
    """What this process writes to the log."""

    number: int
    writer: LogWriter
    reader: StreamReader


class _Errand(NamedTuple):
    """What a look takes along."""

    capped: frozenset[str]
    period: str
    accepted: AcceptedCounts
    recorded: Counter[OrgPeriod]
    recount: Recount | None


class EventCaps:
    """The figures belong to the event loop. A look at the others is taken in a thread, and taken over at once."""

    def __init__(
        self, stream: OwnStream, keyring: Keyring, usage: UsageReader, exchange: AcceptedExchange, clock: Clock
    ) -> None:
        self._stream = stream
        self._keyring = keyring
        self._exchange = exchange
        self._clock = clock
        self._usage_elsewhere = UsageElsewhere(stream.number, usage, exchange)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="event-caps")
        self._capped: frozenset[str] | None = None  # None: never looked
        self._elsewhere: Counter[OrgPeriod] = Counter()
        self._accepted = exchange.own()  # of our stream: what the process before us shared, until it is counted again
        self._position = 0  # up to which our stream is loaded, and no longer among those
        self._own: Counter[OrgPeriod] = Counter()  # the sums of those
        self._pending: Counter[OrgPeriod] = Counter()  # under way, or recorded by the ledger since we read it
        self._recorded: Counter[OrgPeriod] = Counter()  # the part of it that is recorded
        self._recount: Recount | None = None
        self._is_current = True
        self._is_shared = True
        self._recounted: dict[str, int] = {}  # organization → number up to which our stream was counted again

    def events(self, org_period: OrgPeriod) -> int:
        """Return how many there are, those under way included."""
        return self._elsewhere[org_period] + self._own[org_period] + self._pending[org_period]

    def begin(self, org_period: OrgPeriod, events: int) -> None:
        """Count events from now on that are on their way into the log."""
        self._pending[org_period] += events

    def give_up(self, org_period: OrgPeriod, events: int) -> None:
        """Count them no more: they are not in the log."""
        self._pending[org_period] -= events

    def settle(self, org_period: OrgPeriod, events: int, number: int) -> None:
        """Note the number of the record that holds them."""
        self._pending[org_period] -= events
        if number > self._position and number > self._recounted.get(org_period.org_id, 0):
            self._accepted.add(org_period, number, events)
            self._own[org_period] += events

    @contextmanager
    def recording(self, org_period: OrgPeriod, events: int) -> Iterator[None]:
        """Count events that the ledger records in the block, until it has been read again."""
        self.begin(org_period, events)
        try:
            yield
        except BaseException:
            self.give_up(org_period, events)
            raise
        self._recorded[org_period] += events

    async def keep_current(self) -> None:
        """Look at the others again and again, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            errand = self._set_out()
            if errand is None:
                continue
            try:
                sight = await asyncio.get_running_loop().run_in_executor(self._thread, self._look, errand)
            except Exception as error:  # noqa: BLE001 - whatever it was, the next look may succeed
                self._return_empty(errand, error)
            else:
                self._take_over(errand, sight)

    def refresh(self) -> None:
        """Look at the others once. If that fails, the figures stay as they are until the next look."""
        errand = self._set_out()
        if errand is None:
            return
        try:
            sight = self._look(errand)
        except Exception as error:  # noqa: BLE001 - as above
            self._return_empty(errand, error)
        else:
            self._take_over(errand, sight)

    def close(self) -> None:
        """Leave behind what the next process of this stream begins with."""
        self._thread.shutdown()
        self._share(self._accepted)

    def _set_out(self) -> _Errand | None:
        """Return what to look for; None if nobody has a cap, and nobody had one at the last look."""
        before, capped = self._capped, self._organizations_with_a_cap()
        self._capped = capped
        if not capped and not before and not self._accepted:
            return None
        self._accepted.keep_only(capped)
        self._recounted = {org_id: number for org_id, number in self._recounted.items() if org_id in capped}
        if self._recount is None or not self._recount.org_ids <= capped:
            # Who got a cap since the last look may have requests under way that nobody counts: the next look will do.
            lacking = (capped if before is None else capped & before) - self._recounted.keys()
            self._recount = Recount(lacking, self._stream.writer.last_number) if lacking else None
        recorded, self._recorded = self._recorded, Counter()
        return _Errand(capped, period_of(self._clock.now_ms()), self._accepted.copy(), recorded, self._recount)

    def _organizations_with_a_cap(self) -> frozenset[str]:
        organizations = list(self._keyring.organizations.values())  # in one go: another thread may add to them
        return frozenset(each.org_id for each in organizations if each.event_cap is not None)

    def _look(self, errand: _Errand) -> Sight:
        self._share(errand.accepted)
        sight = self._usage_elsewhere.look(errand.capped, errand.period)
        if errand.recount is not None:
            errand.recount.go_on(self._stream.reader, sight.position)
        return sight

    def _share(self, accepted: AcceptedCounts) -> None:
        try:
            self._exchange.share(accepted)
        except StoreUnavailableError as error:
            if self._is_shared:
                advice = "the other processes count without this one"
                log.warning("accepted_not_shared", reason=str(error), advice=advice)
            self._is_shared = False
        else:
            self._is_shared = True

    def _return_empty(self, errand: _Errand, error: Exception) -> None:
        if self._is_current:
            log.warning("caps_not_refreshed", reason=str(error), advice=f"trying again every {LOOK_EVERY_S} s")
        self._is_current = False
        self._recorded += errand.recorded
        self._recount = None

    def _take_over(self, errand: _Errand, sight: Sight) -> None:
        """Put the figures in the place of the old ones, all at once: no event may be missing or doubled between."""
        if sight.is_new:
            self._pending -= errand.recorded  # which leaves out those that have come to nothing
        else:
            self._recorded += errand.recorded
        self._is_current = True
        self._elsewhere, self._position = sight.events, sight.position
        if self._recount is not None and self._recount.is_done:
            recount, self._recount = self._recount, None
            self._accepted.correct(recount.org_ids, recount.through, recount.found)
            self._recounted |= dict.fromkeys(recount.org_ids, recount.through)
        self._accepted.drop_loaded(sight.position)
        self._own = Counter(self._accepted.sums(sight.position))
