"""An index of payments by receipt, for the list of what arrived last."""

from alembic import op

revision = "0009"
down_revision = "0006"


def upgrade() -> None:
    op.create_index("ix_payments_received", "payments", ["project", "received_at"])
