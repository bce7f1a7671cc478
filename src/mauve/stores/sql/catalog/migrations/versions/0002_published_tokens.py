"""Publish tokens and projects too: metric reads look them up in the edge."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    for table in ("projects", "tokens"):
        # Existing rows start at version 1, unpublished: the next start publishes them.
        op.add_column(table, sa.Column("version", sa.BigInteger, nullable=False, server_default="1"))
        op.add_column(table, sa.Column("mirrored_at", sa.BigInteger))
        op.create_index(f"ix_{table}_mirrored_at", table, ["mirrored_at"])
