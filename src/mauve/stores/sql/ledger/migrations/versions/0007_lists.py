"""Customer and plan of subscriptions, and the indexes of the lists of arrivals, payments and subscriptions."""

import sqlalchemy as sa
from alembic import op

from mauve.stores.sql.column_types import AnyText

revision = "0007"
down_revision = "0006"

_INDEXES = (
    ("ix_payments_received", "payments", ["project", "received_at"]),
    ("ix_payments_list", "payments", ["project", "occurred_at", "id", "currency", "source"]),
    ("ix_payments_user", "payments", ["project", "user", "occurred_at", "id"]),
    ("ix_subscriptions_mrr", "subscriptions", ["project", "currency", "mrr", "key", "status"]),
    ("ix_subscriptions_updated", "subscriptions", ["project", "at", "key", "status"]),
    ("ix_subscriptions_status", "subscriptions", ["project", "status", "at", "key", "currency"]),
    ("ix_subscriptions_customer", "subscriptions", ["project", "customer", "at", "key"]),
)


def upgrade() -> None:
    for table in ("subscriptions", "subscription_versions"):
        for name in ("customer", "plan"):
            op.add_column(table, sa.Column(name, AnyText))
    for name, table, columns in _INDEXES:
        op.create_index(name, table, columns)
