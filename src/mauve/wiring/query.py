"""Wires the query plane: warehouse, ledger, read cache, read meter."""

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager
from typing import Final

import structlog

from mauve.access.keyring import Keyring
from mauve.access.read_limits import FailOpenMeter
from mauve.access.uses import CredentialUses
from mauve.config import Settings
from mauve.core.clock import Clock, SystemClock
from mauve.query.admissions import Admissions
from mauve.query.brief_answers import BriefAnswers
from mauve.query.parts import QueryParts, ReadStores
from mauve.query.single_flight import SingleFlight
from mauve.stores import StoreUnavailableError
from mauve.stores.ledger.closed_days import SqlClosedDaysReader
from mauve.stores.ledger.reader import SqlLedgerReader
from mauve.stores.limits.read_meter import ReadMeter
from mauve.stores.limits.read_meter_file import SqliteReadMeter
from mauve.stores.limits.read_meter_sql import SqlReadMeter
from mauve.stores.localdisk.read_cache import SqliteReadCache
from mauve.stores.read_cache import ReadCache
from mauve.stores.sql.database import Database
from mauve.stores.warehouse import WarehouseReader
from mauve.wiring.databases import open_catalog_database, open_ledger_database
from mauve.wiring.paths import read_cache_path, read_meter_path

_READERS: Final = 4
_ADMITTERS: Final = 8
_RETRY_EVERY_S: Final = 0.05

log = structlog.get_logger()


@contextmanager
def query_parts(
    settings: Settings,
    keyring: Keyring,
    warehouse: WarehouseReader,
    uses: CredentialUses,
    clock: Clock | None = None,
    *,
    is_loading_behind: Callable[[], bool] = lambda: False,
) -> Iterator[QueryParts]:
    """Open the parts of the query plane, on a prepared data directory."""
    with (
        closing(open_ledger_database(settings)) as database,
        closing(open_read_cache(settings)) as cache,
        closing(open_catalog_database(settings)) as catalog,
        closing(open_read_meter(settings, catalog)) as meter,
        closing(Admissions(_ADMITTERS, settings.catalog_timeout_s)) as admissions,
        closing(SingleFlight("read-warehouse", _READERS, settings.read_s_max)) as warehouse_flights,
        closing(SingleFlight("read-ledger", _READERS, settings.read_s_max)) as ledger_flights,
    ):
        yield QueryParts(
            keyring=keyring,
            admissions=admissions,
            cache=cache if settings.read_cache_s else None,
            max_age_s=settings.read_cache_s,
            meter=meter,
            stores=ReadStores(warehouse, SqlLedgerReader(database), SqlClosedDaysReader(database)),
            warehouse_flights=warehouse_flights,
            ledger_flights=ledger_flights,
            clock=clock or SystemClock(),
            uses=uses,
            is_loading_behind=is_loading_behind,
            brief=BriefAnswers(settings.flush_s),
        )


def open_read_cache(settings: Settings) -> ReadCache:
    """Open the cache of query answers. Its file is created on first use."""
    return SqliteReadCache(read_cache_path(settings.data))


def forget_answers(settings: Settings, projects: Collection[str], patience_s: float = 5.0) -> None:
    """Remove the answers about projects from this machine's cache, if it has one.

    A failure is only logged: what the answers were about is deleted already.
    """
    path = read_cache_path(settings.data)
    if not path.exists():
        return
    ends_at = time.monotonic() + patience_s
    with closing(open_read_cache(settings)) as cache:
        while True:
            try:
                for project in projects:
                    cache.forget(project)
            except StoreUnavailableError as error:
                if time.monotonic() > ends_at:
                    advice = f"earlier answers may still be served: delete {path}, which is recreated automatically"
                    log.warning("cached_answers_not_deleted", reason=str(error), advice=advice)
                    return
                time.sleep(_RETRY_EVERY_S)
            else:
                return


def open_read_meter(settings: Settings, catalog: Database) -> ReadMeter:
    """Open the meter that counts reads: shared with other machines, or a file that is created on first use.

    One machine's broken file must not make metrics unavailable. On a server, an uncounted read could be one of many.
    """
    if settings.database_url is not None:
        return SqlReadMeter(catalog)
    return FailOpenMeter(SqliteReadMeter(read_meter_path(settings.data)))
