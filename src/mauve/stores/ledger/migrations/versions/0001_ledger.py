"""The ledger of 0.1.0: the tables of `schema.py`, until a second revision changes them and states them here."""

from alembic import op

from mauve.stores.ledger.schema import event_outbox_head, load_lease, metadata

revision = "0001"
down_revision = None


def upgrade() -> None:
    metadata.create_all(op.get_bind())
    op.bulk_insert(event_outbox_head, [{"only": 1, "number": 0}])
    op.bulk_insert(load_lease, [{"only": 1, "holder": None, "epoch": 0, "expires_at": 0, "intent": None}])
