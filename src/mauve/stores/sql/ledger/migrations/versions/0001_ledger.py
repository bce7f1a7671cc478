"""The ledger."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    _create_payments()
    _create_subscriptions()
    _create_outbox()
    _create_load_tables()


def _create_payments() -> None:
    op.create_table(
        "payments",
        sa.Column("project", sa.Text, primary_key=True),
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("claimed_at", sa.Text),
        sa.Column("amount", sa.BigInteger, nullable=False),
        sa.Column("currency", sa.Text, nullable=False),
        sa.Column("earned", sa.Boolean, nullable=False),
        sa.Column("day", sa.Text, nullable=False),
        sa.Column("user", sa.Text),
        sa.Column("occurred_at", sa.BigInteger, nullable=False),
        sa.Column("received_at", sa.BigInteger, nullable=False),
        sa.Column("payload", sa.LargeBinary, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
    )
    op.create_table(
        "day_totals",
        sa.Column("project", sa.Text, primary_key=True),
        sa.Column("day", sa.Text, primary_key=True),
        sa.Column("currency", sa.Text, primary_key=True),
        sa.Column("earned", sa.Boolean, primary_key=True),
        sa.Column("total", sa.Text, nullable=False),
    )


def _create_subscriptions() -> None:
    op.create_table(
        "subscription_versions",
        sa.Column("sequence", _number_type(), primary_key=True, autoincrement=True),
        sa.Column("project", sa.Text, nullable=False),
        sa.Column("key", sa.LargeBinary, nullable=False),
        *_version_columns(),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_subscription_versions_project_key_at", "subscription_versions", ["project", "key", "at"])
    op.create_table(
        "subscriptions",
        sa.Column("project", sa.Text, primary_key=True),
        sa.Column("key", sa.LargeBinary, primary_key=True),
        *_version_columns(),
    )


def _version_columns() -> list[sa.Column[object]]:
    return [
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("received_at", sa.BigInteger, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("mrr", sa.BigInteger, nullable=False),
        sa.Column("currency", sa.Text, nullable=False),
        sa.Column("payload", sa.LargeBinary, nullable=False),
    ]


def _create_outbox() -> None:
    op.create_table(
        "event_outbox",
        sa.Column("number", _number_type(), primary_key=True, autoincrement=False),
        sa.Column("record", sa.LargeBinary, nullable=False),
    )
    head = op.create_table(
        "event_outbox_head",
        sa.Column("only", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("number", sa.BigInteger, nullable=False),
    )
    op.bulk_insert(head, [{"only": 1, "number": 0}])


def _create_load_tables() -> None:
    op.create_table(
        "load_positions",
        sa.Column("stream", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("number", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "usage",
        sa.Column("org_id", sa.Text, primary_key=True),
        sa.Column("period", sa.Text, primary_key=True),
        sa.Column("events", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_usage_period", "usage", ["period"])
    op.create_table(
        "first_seen",
        sa.Column("project", sa.Text, primary_key=True),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("noted", sa.Boolean, nullable=False, index=True),
    )
    op.create_table(
        "dead_letters",
        sa.Column("sequence", _number_type(), primary_key=True, autoincrement=True),
        sa.Column("stream", sa.Integer, nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("payload", sa.LargeBinary, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sqlite_autoincrement=True,
    )


def _number_type() -> sa.types.TypeEngine[int]:
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")
