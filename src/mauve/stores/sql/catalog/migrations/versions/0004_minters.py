"""Who minted each key, and quick counts of an app's keys."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    # NULL for the keys that are there: nobody noted who minted them.
    op.add_column("keys", sa.Column("minted_by", sa.Text))
    op.create_index("ix_keys_minted_by", "keys", ["minted_by"])
    op.drop_index("ix_keys_app_id", "keys")
    op.create_index("ix_keys_app_id_revoked", "keys", ["app_id", "revoked"])
    # Until now a token that no person had minted was the operator's, without saying so.
    op.execute("UPDATE tokens SET minted_by = 'operator' WHERE minted_by IS NULL")
