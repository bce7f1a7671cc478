"""The ledger of 0.1.0."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "arrivals",
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("day", sa.Text(), nullable=False),
        sa.Column("word", sa.Text(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("last_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("project", "day", "word"),
    )
    op.create_index(op.f("ix_arrivals_day"), "arrivals", ["day"], unique=False)
    op.create_table(
        "closed_days",
        sa.Column("only", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("through", sa.Text(), nullable=False),
        sa.Column("generation", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("only"),
    )
    op.create_table(
        "day_totals",
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("day", sa.Text(), nullable=False),
        sa.Column("currency", sa.Text(), nullable=False),
        sa.Column("earned", sa.Boolean(), nullable=False),
        sa.Column("total", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("project", "day", "currency", "earned"),
    )
    op.create_table(
        "day_users",
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("seen", sa.Text(), nullable=False),
        sa.Column("day", sa.Text(), nullable=False),
        sa.Column("users", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("project", "seen", "day"),
    )
    op.create_table(
        "dead_letters",
        sa.Column("sequence", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("stream", sa.Integer(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("sequence"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "deliveries",
        sa.Column("sequence", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("result", sa.Text(), nullable=False),
        sa.Column("rows", sa.Integer(), nullable=False),
        sa.Column("warnings", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("sequence"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_deliveries_project_sequence", "deliveries", ["project", "sequence"], unique=False)
    op.create_table(
        "delivery_tallies",
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("word", sa.Text(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("last_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("project", "provider", "word"),
    )
    op.create_table(
        "event_outbox",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False),
        sa.Column("record", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("number"),
    )
    head = op.create_table(
        "event_outbox_head",
        sa.Column("only", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("only"),
    )
    op.create_table(
        "first_seen",
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("noted", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("project"),
    )
    op.create_index(op.f("ix_first_seen_noted"), "first_seen", ["noted"], unique=False)
    op.create_table(
        "imported_figures",
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("day", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("project", "day", "name", "number"),
    )
    op.create_table(
        "imports",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("format", sa.Text(), nullable=False),
        sa.Column("file", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("options", sa.Text(), nullable=False),
        sa.Column("first_day", sa.Text(), nullable=False),
        sa.Column("last_day", sa.Text(), nullable=False),
        sa.Column("is_approximate", sa.Boolean(), nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("began_at", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("counts", sa.Text(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("number"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ix_imports_file",
        "imports",
        ["project", "digest"],
        unique=True,
        sqlite_where=sa.text("state <> 'undone'"),
        postgresql_where=sa.text("state <> 'undone'"),
    )
    op.create_index("ix_imports_project", "imports", ["project", "number"], unique=False)
    lease = op.create_table(
        "load_lease",
        sa.Column("only", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("holder", sa.Text(), nullable=True),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("intent", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("only"),
    )
    op.create_table(
        "load_positions",
        sa.Column("stream", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("stream"),
    )
    op.create_table(
        "money_revisions",
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("project"),
    )
    op.create_table(
        "mrr_changes",
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("span", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("block", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("currency", sa.Text(), nullable=False),
        sa.Column("active", sa.BigInteger(), nullable=False),
        sa.Column("high", sa.BigInteger(), nullable=False),
        sa.Column("low", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("project", "span", "block", "currency"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "payments",
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("claimed_at", sa.Text(), nullable=True),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.Column("currency", sa.Text(), nullable=False),
        sa.Column("earned", sa.Boolean(), nullable=False),
        sa.Column("day", sa.Text(), nullable=False),
        sa.Column("user", sa.Text(), nullable=True),
        sa.Column("occurred_at", sa.BigInteger(), nullable=False),
        sa.Column("received_at", sa.BigInteger(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("project", "id"),
    )
    op.create_index(
        "ix_payments_list", "payments", ["project", "occurred_at", "id", "currency", "source"], unique=False
    )
    op.create_index("ix_payments_received", "payments", ["project", "received_at"], unique=False)
    op.create_index("ix_payments_user", "payments", ["project", "user", "occurred_at", "id"], unique=False)
    op.create_table(
        "subscription_versions",
        sa.Column("sequence", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("key", sa.LargeBinary(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("received_at", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("mrr", sa.BigInteger(), nullable=False),
        sa.Column("currency", sa.Text(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.Column("rank", sa.LargeBinary(), nullable=False),
        sa.Column("customer", sa.Text(), nullable=True),
        sa.Column("plan", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("sequence"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ix_subscription_versions_history",
        "subscription_versions",
        ["project", "key", "at", "rank", "sequence", "status", "currency", "mrr"],
        unique=False,
    )
    op.create_index(
        "ix_subscription_versions_ranked",
        "subscription_versions",
        ["project", "key", "at", "rank"],
        unique=True,
        sqlite_where=sa.text("length(rank) > 0"),
        postgresql_where=sa.text("length(rank) > 0"),
    )
    op.create_table(
        "subscriptions",
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("key", sa.LargeBinary(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("received_at", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("mrr", sa.BigInteger(), nullable=False),
        sa.Column("currency", sa.Text(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.Column("rank", sa.LargeBinary(), nullable=False),
        sa.Column("customer", sa.Text(), nullable=True),
        sa.Column("plan", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("project", "key"),
    )
    op.create_index("ix_subscriptions_customer", "subscriptions", ["project", "customer", "at", "key"], unique=False)
    op.create_index(
        "ix_subscriptions_mrr", "subscriptions", ["project", "currency", "mrr", "key", "status"], unique=False
    )
    op.create_index(
        "ix_subscriptions_status", "subscriptions", ["project", "status", "at", "key", "currency"], unique=False
    )
    op.create_index("ix_subscriptions_updated", "subscriptions", ["project", "at", "key", "status"], unique=False)
    op.create_table(
        "usage",
        sa.Column("org_id", sa.Text(), nullable=False),
        sa.Column("period", sa.Text(), nullable=False),
        sa.Column("events", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("org_id", "period"),
    )
    op.create_index(op.f("ix_usage_period"), "usage", ["period"], unique=False)
    op.bulk_insert(head, [{"only": 1, "number": 0}])
    op.bulk_insert(lease, [{"only": 1, "holder": None, "epoch": 0, "expires_at": 0, "intent": None}])
