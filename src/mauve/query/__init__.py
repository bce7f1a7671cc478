"""The query plane: stored → read → cached."""

from collections.abc import Callable
from dataclasses import dataclass

from mauve.access.keyring import Keyring
from mauve.access.uses import CredentialUses
from mauve.core.clock import Clock
from mauve.query.answer_cache import AnswerCache
from mauve.query.single_flight import Admissions, SingleFlight
from mauve.stores.ledger.closed_days import ClosedDaysReader
from mauve.stores.ledger.reader import LedgerReader
from mauve.stores.limits.read_meter import ReadMeter
from mauve.stores.warehouse.warehouse_reader import WarehouseReader


@dataclass(frozen=True, slots=True)
class ReadStores:
    """The stores that metrics are read from."""

    warehouse: WarehouseReader
    ledger: LedgerReader
    closed_days: ClosedDaysReader


@dataclass(frozen=True, slots=True)
class QueryParts:
    keyring: Keyring
    admissions: Admissions  # where reads are counted
    cache: AnswerCache
    max_age_s: int  # of a cached answer; 0: the cache is off
    flush_s: float  # how long an answer is reused that must not be cached
    meter: ReadMeter
    stores: ReadStores
    # Separate, so that a store that hangs does not delay reads from the other.
    warehouse_flights: SingleFlight
    ledger_flights: SingleFlight
    clock: Clock
    uses: CredentialUses
    is_loading_behind: Callable[[], bool]  # may read files: call it in a thread
