"""Which loader's turn it is, and the range that it is about to commit."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    lease = op.create_table(
        "load_lease",
        sa.Column("only", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("holder", sa.Text),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.Column("intent", sa.Text),
    )
    op.bulk_insert(lease, [{"only": 1, "holder": None, "epoch": 0, "expires_at": 0, "intent": None}])
