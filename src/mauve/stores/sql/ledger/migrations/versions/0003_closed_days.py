"""Closed days and their users."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "closed_days",
        sa.Column("only", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("through", sa.Text, nullable=False),
    )
    op.create_table(
        "day_users",
        sa.Column("project", sa.Text, primary_key=True),
        sa.Column("seen", sa.Text, primary_key=True),
        sa.Column("day", sa.Text, primary_key=True),
        sa.Column("users", sa.BigInteger, nullable=False),
    )
