"""When an app was archived, a key's name and last use, and whether a webhook secret is only a placeholder."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.add_column("apps", sa.Column("archived_at", sa.BigInteger))
    op.add_column("keys", sa.Column("name", sa.Text))
    op.add_column("keys", sa.Column("last_used_at", sa.BigInteger))
    op.add_column("webhook_secrets", sa.Column("is_placeholder", sa.Boolean, nullable=False, server_default=sa.false()))
