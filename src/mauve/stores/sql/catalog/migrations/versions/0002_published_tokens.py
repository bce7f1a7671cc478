"""Tokens and projects are published too: metric reads ask the edge for them."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    for table in ("projects", "tokens"):
        # What is there already begins at version 1 and unpublished: the next start publishes it.
        op.add_column(table, sa.Column("version", sa.BigInteger, nullable=False, server_default="1"))
        op.add_column(table, sa.Column("mirrored_at", sa.BigInteger))
        op.create_index(f"ix_{table}_mirrored_at", table, ["mirrored_at"])
