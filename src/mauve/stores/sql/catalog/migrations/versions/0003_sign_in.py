"""Sessions of users, and the minter and last use of each control token."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "sessions",
        sa.Column("session_id", sa.Text, primary_key=True),
        sa.Column("digest", sa.LargeBinary, nullable=False, unique=True),
        sa.Column("user_id", sa.Text, sa.ForeignKey("users.user_id"), nullable=False),
        sa.Column("agent", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("seen_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
    )
    op.add_column("tokens", sa.Column("minted_by", sa.Text))
    op.add_column("tokens", sa.Column("last_used_at", sa.BigInteger))
    for table, column in (("links", "user_id"), ("sessions", "expires_at"), ("sessions", "user_id")):
        op.create_index(f"ix_{table}_{column}", table, [column])
