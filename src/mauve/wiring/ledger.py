"""The ledger for programs that use it directly."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

from mauve.config import Settings
from mauve.stores.deliveries import DeliveryReader
from mauve.stores.ledger import LedgerWriter, LoadLedger
from mauve.stores.sql.ledger.deliveries import SqlDeliveryReader
from mauve.stores.sql.ledger.loading import SqlLoadLedger
from mauve.stores.sql.ledger.writer import SqlLedgerWriter
from mauve.wiring.databases import open_ledger_database


@contextmanager
def open_load_ledger(settings: Settings) -> Iterator[LoadLedger]:
    with closing(open_ledger_database(settings)) as database:
        yield SqlLoadLedger(database)


@contextmanager
def open_ledger_writer(settings: Settings) -> Iterator[LedgerWriter]:
    """Open the ledger for a program that records on its own, beside a running service or without one."""
    with closing(SqlLedgerWriter(open_ledger_database(settings))) as writer:
        yield writer


@contextmanager
def open_delivery_reader(settings: Settings) -> Iterator[DeliveryReader]:
    with closing(open_ledger_database(settings)) as database:
        yield SqlDeliveryReader(database)
