"""Wires the query plane: warehouse, ledger, answer cache, read meter."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Final

from mauve.access.keyring import Keyring
from mauve.access.read_limits import FailOpenMeter
from mauve.access.uses import CredentialUses
from mauve.config import Settings
from mauve.core.clock import Clock, SystemClock
from mauve.query.answer_cache import AnswerCache
from mauve.query.dependencies import QueryParts, ReadStores
from mauve.query.single_flight import Admissions, SingleFlight
from mauve.stores.ledger.closed_days import ClosedDaysReader
from mauve.stores.ledger.reader import LedgerReader
from mauve.stores.limits.read_meter import ReadMeter
from mauve.stores.sql.database import Database, sqlite_url
from mauve.stores.warehouse.warehouse_reader import WarehouseReader
from mauve.wiring.databases import open_catalog_database, open_ledger_database
from mauve.wiring.paths import catalog_path

_READERS: Final = 4
_ADMITTERS: Final = 8
_METER_BUSY_S_MAX: Final = 0.25


@contextmanager
def query_parts(
    settings: Settings,
    keyring: Keyring,
    warehouse: WarehouseReader,
    uses: CredentialUses,
    clock: Clock | None = None,
    *,
    cache: AnswerCache | None = None,
    is_loading_behind: Callable[[], bool] = lambda: False,
) -> Iterator[QueryParts]:
    """Open the parts of the query plane, on a prepared data directory."""
    with (
        closing(open_ledger_database(settings)) as database,
        closing(open_catalog_database(settings)) as catalog,
        closing(open_read_meter(settings, catalog)) as meter,
        closing(Admissions(_ADMITTERS, settings.catalog_timeout_s)) as admissions,
        closing(SingleFlight("read-warehouse", _READERS, settings.read_s_max)) as warehouse_flights,
        closing(SingleFlight("read-ledger", _READERS, settings.read_s_max)) as ledger_flights,
    ):
        yield QueryParts(
            keyring=keyring,
            admissions=admissions,
            cache=cache or AnswerCache(),
            max_age_s=settings.read_cache_s,
            flush_s=settings.flush_s,
            meter=meter,
            stores=ReadStores(warehouse, LedgerReader(database), ClosedDaysReader(database)),
            warehouse_flights=warehouse_flights,
            ledger_flights=ledger_flights,
            clock=clock or SystemClock(),
            uses=uses,
            is_loading_behind=is_loading_behind,
        )


def open_read_meter(settings: Settings, catalog: Database) -> ReadMeter:
    """Open the meter that counts reads.

    A local catalog that cannot be written must not make metrics unavailable or slow. On a server, uncounted reads could
    be many.
    """
    if settings.database_url is not None:
        return ReadMeter(catalog)
    return FailOpenMeter(Database(sqlite_url(catalog_path(settings.data)), _METER_BUSY_S_MAX))
