"""Ranks of subscription versions, an index for their history, and the billers' deliveries."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    _add_ranks()
    _cover_history()
    _create_deliveries()


def _add_ranks() -> None:
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    empty = sa.text("x''" if is_sqlite else "''")
    for table in ("subscription_versions", "subscriptions"):
        op.add_column(table, sa.Column("rank", sa.LargeBinary, nullable=False, server_default=empty))
    has_rank = sa.text("length(rank) > 0")
    op.create_index(
        "ix_subscription_versions_ranked",
        "subscription_versions",
        ["project", "key", "at", "rank"],
        unique=True,
        sqlite_where=has_rank,
        postgresql_where=has_rank,
    )


def _cover_history() -> None:
    op.drop_index("ix_subscription_versions_project_key_at", "subscription_versions")
    op.create_index(
        "ix_subscription_versions_history",
        "subscription_versions",
        ["project", "key", "at", "rank", "sequence", "status", "currency", "mrr"],
    )


def _create_deliveries() -> None:
    op.create_table(
        "deliveries",
        sa.Column(
            "sequence", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True, autoincrement=True
        ),
        sa.Column("project", sa.Text, nullable=False),
        sa.Column("provider", sa.Text, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("result", sa.Text, nullable=False),
        sa.Column("rows", sa.Integer, nullable=False),
        sa.Column("warnings", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_deliveries_project_sequence", "deliveries", ["project", "sequence"])
    op.create_table(
        "delivery_tallies",
        sa.Column("project", sa.Text, primary_key=True),
        sa.Column("provider", sa.Text, primary_key=True),
        sa.Column("word", sa.Text, primary_key=True),
        sa.Column("count", sa.BigInteger, nullable=False),
        sa.Column("last_at", sa.BigInteger, nullable=False),
    )
