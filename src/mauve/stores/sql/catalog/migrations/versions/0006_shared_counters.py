"""Counters that several machines share: reads, allowances, and password attempts."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.create_table(
        "reads",
        sa.Column("org_id", sa.Text, primary_key=True),
        sa.Column("at", sa.BigInteger, primary_key=True),
        sa.Column("reads", sa.Integer, nullable=False),
    )
    op.create_table(
        "spent",
        sa.Column("org_id", sa.Text, primary_key=True),
        sa.Column("period", sa.Text, primary_key=True),
        sa.Column("queries", sa.BigInteger, nullable=False),
        sa.Column("raw_scans", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "buckets",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("tokens", sa.Float, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False, index=True),
    )
