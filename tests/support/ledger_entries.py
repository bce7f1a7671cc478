"""Payments and subscriptions to record, and a dump of everything recorded."""

from collections.abc import Sequence
from datetime import date
from typing import Any

import sqlalchemy as sa

from mauve.core.window import Window
from mauve.stores.ledger import Entry, Outcome, Payment, SubscriptionVersion
from mauve.stores.ledger.reader import LedgerReader
from mauve.stores.ledger.schema import metadata
from mauve.stores.ledger.writer import LedgerWriter
from mauve.stores.sql.database import Database

NOW = 1_800_000_000_000  # 2027-01-15 08:00 UTC
TODAY, PERIOD = "2027-01-15", "2027-01"
AMOUNT_MAX = 2**53 - 1
ACCEPTED, DUPLICATE, CONFLICT = Outcome.ACCEPTED, Outcome.DUPLICATE, Outcome.CONFLICT
ODD_IDS = ["a\0b", "a\\0b", "a\\\0b", "\0", "\\", "👪", "é", "e\u0301", "A", "a", " a", "👪" * 256]


def a_payment(id_: str = "inv_1", **fields: Any) -> Payment:
    known: dict[str, Any] = {
        "org_id": "org_1",
        "project": "proj_1",
        "id": id_,
        "digest": b"digest",
        "claimed_at": None,
        "amount": 1999,
        "currency": "eur",
        "earned": True,
        "user": "cus_1",
        "occurred_at": NOW,
        "received_at": NOW,
        "payload": b'{"name": "payment"}',
    }
    return Payment(**(known | fields))


def a_version(at: int = 1, **fields: Any) -> SubscriptionVersion:
    known: dict[str, Any] = {
        "project": "proj_1",
        "id": "sub_1",
        "at": at,
        "received_at": NOW,
        "status": "active",
        "mrr": 100,
        "currency": "eur",
        "payload": b"{}",
    }
    return SubscriptionVersion(**(known | fields))


def totals(reader: LedgerReader, project: str = "proj_1", *, earned: bool = True) -> list[tuple[str, str, int]]:
    return [row[1:] for row in reader.day_totals([project], Window(date.min, date.max), earned)]


def mrr_of(reader: LedgerReader, project: str) -> list[tuple[str, int]]:
    return [row[1:] for row in reader.current_mrr([project])]


def everything_in(database: Database) -> dict[str, list[str]]:
    """Return all rows of all tables."""
    with database.reading() as tx:
        return {table.name: sorted(map(repr, tx.execute(sa.select(table)))) for table in metadata.sorted_tables}


def rows_of(database: Database, table: sa.Table) -> Sequence[sa.Row[Any]]:
    with database.reading() as tx:
        return tx.execute(sa.select(table)).all()


def record_payments(writer: LedgerWriter, *items: Payment) -> list[Outcome]:
    (outcomes,) = writer.record([Entry(payments=items)])
    return outcomes
