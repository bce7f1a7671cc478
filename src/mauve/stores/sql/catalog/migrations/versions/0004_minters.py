"""The minter of each key, and an index for counting an app's keys."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    # NULL for existing keys: their minter was not recorded.
    op.add_column("keys", sa.Column("minted_by", sa.Text))
    op.create_index("ix_keys_minted_by", "keys", ["minted_by"])
    op.drop_index("ix_keys_app_id", "keys")
    op.create_index("ix_keys_app_id_revoked", "keys", ["app_id", "revoked"])
    # Until now a token without a minter was the operator's.
    op.execute("UPDATE tokens SET minted_by = 'operator' WHERE minted_by IS NULL")
