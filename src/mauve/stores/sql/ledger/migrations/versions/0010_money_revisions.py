"""A revision of each project's money, by which pages notice a change."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
compatible_from = "0008"


def upgrade() -> None:
    op.create_table(
        "money_revisions",
        sa.Column("project", sa.Text, primary_key=True),
        sa.Column("revision", sa.BigInteger, nullable=False),
    )
