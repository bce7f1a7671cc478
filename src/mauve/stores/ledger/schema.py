"""The ledger's tables for queries. Its migrations create them; a test keeps the two in sync.

They are separate from the catalog's: in the embedded service, they have their own file, which every ingest process
writes to.
"""

from typing import Any, Final

import sqlalchemy as sa

from mauve.stores.sql.dialects import AnyText, WholeNumber

metadata: Final = sa.MetaData()

# SQLite numbers rows only in a column of type INTEGER.
_ROW_NUMBER: Final = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

payments: Final = sa.Table(
    "payments",
    metadata,
    sa.Column("project", sa.Text, primary_key=True),
    sa.Column("id", AnyText, primary_key=True),
    sa.Column("digest", sa.LargeBinary, nullable=False),
    sa.Column("claimed_at", WholeNumber),  # as claimed: it may exceed 64 bits
    sa.Column("amount", sa.BigInteger, nullable=False),
    sa.Column("currency", sa.Text, nullable=False),
    sa.Column("earned", sa.Boolean, nullable=False),
    sa.Column("day", sa.Text, nullable=False),  # YYYY-MM-DD
    sa.Column("user", AnyText),
    sa.Column("occurred_at", sa.BigInteger, nullable=False),
    sa.Column("received_at", sa.BigInteger, nullable=False),
    sa.Column("payload", sa.LargeBinary, nullable=False),
    sa.Column("source", sa.Text, nullable=False),
    sa.Index("ix_payments_received", "project", "received_at"),
    # The list of payments, in its order. Filters by currency and source read the index only.
    sa.Index("ix_payments_list", "project", "occurred_at", "id", "currency", "source"),
    sa.Index("ix_payments_user", "project", "user", "occurred_at", "id"),
)

day_totals: Final = sa.Table(
    "day_totals",
    metadata,
    sa.Column("project", sa.Text, primary_key=True),
    sa.Column("day", sa.Text, primary_key=True),
    sa.Column("currency", sa.Text, primary_key=True),
    sa.Column("earned", sa.Boolean, primary_key=True),
    sa.Column("total", WholeNumber, nullable=False),
)


def _version_columns() -> list[sa.Column[Any]]:
    return [
        sa.Column("id", AnyText, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),  # epoch microseconds
        sa.Column("received_at", sa.BigInteger, nullable=False),
        sa.Column("status", AnyText, nullable=False),
        sa.Column("mrr", sa.BigInteger, nullable=False),
        sa.Column("currency", sa.Text, nullable=False),
        sa.Column("payload", sa.LargeBinary, nullable=False),
        sa.Column("rank", sa.LargeBinary, nullable=False),  # empty if there is none
        sa.Column("customer", AnyText),  # the biller's name for the person; None: unknown or erased
        sa.Column("plan", AnyText),
    ]


# `key` is the SHA-256 of the id, which has no limit: PostgreSQL refuses to index more than 2,704 bytes.
subscription_versions: Final = sa.Table(
    "subscription_versions",
    metadata,
    sa.Column("sequence", _ROW_NUMBER, primary_key=True, autoincrement=True),
    sa.Column("project", sa.Text, nullable=False),
    sa.Column("key", sa.LargeBinary, nullable=False),
    *_version_columns(),
    # Covers the queries of the MRR history: the table itself is not read.
    sa.Index(
        "ix_subscription_versions_history",
        *("project", "key", "at", "rank", "sequence", "status", "currency", "mrr"),
    ),
    sa.Index(
        "ix_subscription_versions_ranked",
        *("project", "key", "at", "rank"),
        unique=True,
        sqlite_where=sa.text("length(rank) > 0"),
        postgresql_where=sa.text("length(rank) > 0"),
    ),
    sqlite_autoincrement=True,
)

subscriptions: Final = sa.Table(
    "subscriptions",
    metadata,
    sa.Column("project", sa.Text, primary_key=True),
    sa.Column("key", sa.LargeBinary, primary_key=True),
    *_version_columns(),
    # One for each order of the list. Filters by status, and counts by status and currency, read only an index.
    sa.Index("ix_subscriptions_mrr", "project", "currency", "mrr", "key", "status"),
    sa.Index("ix_subscriptions_updated", "project", "at", "key", "status"),
    sa.Index("ix_subscriptions_status", "project", "status", "at", "key", "currency"),
    sa.Index("ix_subscriptions_customer", "project", "customer", "at", "key"),
)

# The change of MRR in a block of days; a block of one is a single day. The sum is high * 2**32 + low.
mrr_changes: Final = sa.Table(
    "mrr_changes",
    metadata,
    sa.Column("project", sa.Text, primary_key=True),
    sa.Column("span", sa.Integer, primary_key=True, autoincrement=False),  # days in the block
    sa.Column("block", sa.Integer, primary_key=True, autoincrement=False),  # days since 1970-01-01, divided by the span
    sa.Column("currency", sa.Text, primary_key=True),
    sa.Column("active", sa.BigInteger, nullable=False),  # subscriptions
    sa.Column("high", sa.BigInteger, nullable=False),
    sa.Column("low", sa.BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

money_revisions: Final = sa.Table(
    "money_revisions",
    metadata,
    sa.Column("project", sa.Text, primary_key=True),
    sa.Column("revision", sa.BigInteger, nullable=False),  # increases with every change of day totals or subscriptions
)

event_outbox: Final = sa.Table(
    "event_outbox",
    metadata,
    sa.Column("number", _ROW_NUMBER, primary_key=True, autoincrement=False),
    sa.Column("record", sa.LargeBinary, nullable=False),
)

event_outbox_head: Final = sa.Table(
    "event_outbox_head",
    metadata,
    sa.Column("only", sa.Integer, primary_key=True, autoincrement=False),  # a single row
    sa.Column("number", sa.BigInteger, nullable=False),  # the last number assigned
)

load_positions: Final = sa.Table(
    "load_positions",
    metadata,
    sa.Column("stream", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("number", sa.BigInteger, nullable=False),
)

load_lease: Final = sa.Table(
    "load_lease",
    metadata,
    sa.Column("only", sa.Integer, primary_key=True, autoincrement=False),  # a single row
    sa.Column("holder", sa.Text),  # None: free
    sa.Column("epoch", sa.BigInteger, nullable=False),  # increases with every turn
    sa.Column("expires_at", sa.BigInteger, nullable=False),  # epoch ms, by the database's clock
    sa.Column("intent", sa.Text),  # the name of the unfinished range
)

usage: Final = sa.Table(
    "usage",
    metadata,
    sa.Column("org_id", sa.Text, primary_key=True),
    sa.Column("period", sa.Text, primary_key=True, index=True),
    sa.Column("events", sa.BigInteger, nullable=False),
)

first_seen: Final = sa.Table(
    "first_seen",
    metadata,
    sa.Column("project", sa.Text, primary_key=True),
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Column("noted", sa.Boolean, nullable=False, index=True),  # whether the catalog has it
)

dead_letters: Final = sa.Table(
    "dead_letters",
    metadata,
    sa.Column("sequence", _ROW_NUMBER, primary_key=True, autoincrement=True),
    sa.Column("stream", sa.Integer, nullable=False),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("reason", AnyText, nullable=False),
    sa.Column("payload", sa.LargeBinary, nullable=False),
    sa.Column("at", sa.BigInteger, nullable=False),
    sqlite_autoincrement=True,
)

closed_days: Final = sa.Table(
    "closed_days",
    metadata,
    sa.Column("only", sa.Integer, primary_key=True, autoincrement=False),  # a single row, or none
    sa.Column("through", sa.Text, nullable=False),  # YYYY-MM-DD; before 1970 if no day is closed
    # Increases whenever days are reopened, so that counts started earlier are not stored.
    sa.Column("generation", sa.BigInteger, nullable=False, server_default="0"),
)

day_users: Final = sa.Table(
    "day_users",
    metadata,
    sa.Column("project", sa.Text, primary_key=True),
    sa.Column("seen", sa.Text, primary_key=True),
    sa.Column("day", sa.Text, primary_key=True),  # YYYY-MM-DD
    sa.Column("users", sa.BigInteger, nullable=False),
)

arrivals: Final = sa.Table(
    "arrivals",
    metadata,
    sa.Column("project", sa.Text, primary_key=True),
    sa.Column("day", sa.Text, primary_key=True, index=True),  # YYYY-MM-DD
    sa.Column("word", sa.Text, primary_key=True),
    sa.Column("count", sa.BigInteger, nullable=False),
    sa.Column("last_at", sa.BigInteger, nullable=False),
)

deliveries: Final = sa.Table(
    "deliveries",
    metadata,
    sa.Column("sequence", _ROW_NUMBER, primary_key=True, autoincrement=True),
    sa.Column("project", sa.Text, nullable=False),
    sa.Column("provider", sa.Text, nullable=False),
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("result", sa.Text, nullable=False),
    sa.Column("rows", sa.Integer, nullable=False),
    sa.Column("warnings", sa.Text, nullable=False),  # separated by spaces
    sa.Index("ix_deliveries_project_sequence", "project", "sequence"),
    sqlite_autoincrement=True,
)

delivery_tallies: Final = sa.Table(
    "delivery_tallies",
    metadata,
    sa.Column("project", sa.Text, primary_key=True),
    sa.Column("provider", sa.Text, primary_key=True),
    sa.Column("word", sa.Text, primary_key=True),
    sa.Column("count", sa.BigInteger, nullable=False),
    sa.Column("last_at", sa.BigInteger, nullable=False),
)

imports: Final = sa.Table(
    "imports",
    metadata,
    sa.Column("number", _ROW_NUMBER, primary_key=True, autoincrement=True),
    sa.Column("project", sa.Text, nullable=False),
    sa.Column("format", sa.Text, nullable=False),
    sa.Column("file", AnyText, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),  # SHA-256, in hexadecimal
    sa.Column("options", AnyText, nullable=False),
    sa.Column("first_day", sa.Text, nullable=False),  # YYYY-MM-DD
    sa.Column("last_day", sa.Text, nullable=False),
    sa.Column("is_approximate", sa.Boolean, nullable=False),
    sa.Column("who", AnyText, nullable=False),
    sa.Column("began_at", sa.BigInteger, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("rows", sa.BigInteger, nullable=False),  # read and stored so far
    sa.Column("counts", sa.Text, nullable=False),  # JSON
    sa.Column("ended_at", sa.BigInteger),
    sa.Index("ix_imports_project", "project", "number"),
    sa.Index(
        "ix_imports_file",
        *("project", "digest"),
        unique=True,
        sqlite_where=sa.text("state <> 'undone'"),
        postgresql_where=sa.text("state <> 'undone'"),
    ),
    sqlite_autoincrement=True,
)

imported_figures: Final = sa.Table(
    "imported_figures",
    metadata,
    sa.Column("project", sa.Text, primary_key=True),
    sa.Column("day", sa.Text, primary_key=True),  # YYYY-MM-DD
    sa.Column("name", AnyText, primary_key=True),
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),  # of the import
    sa.Column("value", sa.BigInteger, nullable=False),
)
