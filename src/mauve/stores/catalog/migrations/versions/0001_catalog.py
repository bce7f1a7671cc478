"""The catalog of 0.1.0."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "buckets",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("tokens", sa.Float(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_index(op.f("ix_buckets_at"), "buckets", ["at"], unique=False)
    op.create_table(
        "installation",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "organizations",
        sa.Column("org_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("standing", sa.Text(), nullable=False),
        sa.Column("grace_ends_at", sa.BigInteger(), nullable=True),
        sa.Column("event_cap", sa.BigInteger(), nullable=True),
        sa.Column("reads_per_minute", sa.BigInteger(), nullable=False),
        sa.Column("agent_queries", sa.BigInteger(), nullable=False),
        sa.Column("raw_scans", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("org_id"),
    )
    op.create_table(
        "processes",
        sa.Column("process", sa.Text(), nullable=False),
        sa.Column("accepted", sa.LargeBinary(), nullable=True),
        sa.Column("accepted_at", sa.BigInteger(), nullable=True),
        sa.Column("beat_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("process"),
    )
    op.create_table(
        "published",
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("record", sa.LargeBinary(), nullable=False),
        sa.Column("committed_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "id"),
        sa.UniqueConstraint("revision"),
    )
    op.create_table(
        "reads",
        sa.Column("org_id", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("reads", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("org_id", "at"),
    )
    op.create_table(
        "spent",
        sa.Column("org_id", sa.Text(), nullable=False),
        sa.Column("period", sa.Text(), nullable=False),
        sa.Column("queries", sa.BigInteger(), nullable=False),
        sa.Column("raw_scans", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("org_id", "period"),
    )
    op.create_table(
        "users",
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("email", sa.Text(), nullable=False),
        sa.Column("password_hash", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("user_id"),
        sa.UniqueConstraint("email"),
    )
    op.create_table(
        "alert_channels",
        sa.Column("channel_id", sa.Text(), nullable=False),
        sa.Column("org_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("masked", sa.Text(), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["org_id"], ["organizations.org_id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("channel_id"),
    )
    op.create_index(op.f("ix_alert_channels_org_id"), "alert_channels", ["org_id"], unique=False)
    op.create_table(
        "alert_messages",
        sa.Column("message_id", sa.Text(), nullable=False),
        sa.Column("org_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("channel_id", sa.Text(), nullable=True),
        sa.Column("user_id", sa.Text(), nullable=True),
        sa.Column("receiver", sa.Text(), nullable=False),
        sa.Column("notice", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("due_at", sa.BigInteger(), nullable=False),
        sa.Column("claimed_until", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("done_at", sa.BigInteger(), nullable=True),
        sa.Column("failure", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["org_id"], ["organizations.org_id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("message_id"),
    )
    op.create_index("ix_alert_messages_org_id_created_at", "alert_messages", ["org_id", "created_at"], unique=False)
    op.create_index("ix_alert_messages_state_due_at", "alert_messages", ["state", "due_at"], unique=False)
    op.create_table(
        "alert_settings",
        sa.Column("org_id", sa.Text(), nullable=False),
        sa.Column("time_zone", sa.Text(), nullable=False),
        sa.Column("quiet_from", sa.Integer(), nullable=True),
        sa.Column("quiet_until", sa.Integer(), nullable=True),
        sa.Column("digest_hour", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["org_id"], ["organizations.org_id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("org_id"),
    )
    op.create_table(
        "alert_subscribers",
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("org_id", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("alerts", sa.Boolean(), nullable=False),
        sa.Column("token", sa.Text(), nullable=False),
        sa.Column("next_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["org_id"], ["organizations.org_id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["user_id"], ["users.user_id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("user_id"),
        sa.UniqueConstraint("token"),
    )
    op.create_index(op.f("ix_alert_subscribers_next_at"), "alert_subscribers", ["next_at"], unique=False)
    op.create_index(op.f("ix_alert_subscribers_org_id"), "alert_subscribers", ["org_id"], unique=False)
    op.create_table(
        "apps",
        sa.Column("app_id", sa.Text(), nullable=False),
        sa.Column("org_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("ownership", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("first_event_at", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("archived_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["org_id"], ["organizations.org_id"]),
        sa.PrimaryKeyConstraint("app_id"),
    )
    op.create_index(op.f("ix_apps_org_id"), "apps", ["org_id"], unique=False)
    op.create_table(
        "links",
        sa.Column("link_id", sa.Text(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=True),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("used_at", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.user_id"]),
        sa.PrimaryKeyConstraint("link_id"),
        sa.UniqueConstraint("digest"),
    )
    op.create_index(op.f("ix_links_user_id"), "links", ["user_id"], unique=False)
    op.create_table(
        "memberships",
        sa.Column("org_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["org_id"], ["organizations.org_id"]),
        sa.ForeignKeyConstraint(["user_id"], ["users.user_id"]),
        sa.PrimaryKeyConstraint("org_id", "user_id"),
    )
    op.create_index(op.f("ix_memberships_user_id"), "memberships", ["user_id"], unique=False)
    op.create_table(
        "sessions",
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("agent", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("seen_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.user_id"]),
        sa.PrimaryKeyConstraint("session_id"),
        sa.UniqueConstraint("digest"),
    )
    op.create_index(op.f("ix_sessions_expires_at"), "sessions", ["expires_at"], unique=False)
    op.create_index(op.f("ix_sessions_user_id"), "sessions", ["user_id"], unique=False)
    op.create_table(
        "tokens",
        sa.Column("token_id", sa.Text(), nullable=False),
        sa.Column("org_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("lookup_id", sa.Text(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("scopes", sa.Text(), nullable=False),
        sa.Column("revoked", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("minted_by", sa.Text(), nullable=True),
        sa.Column("last_used_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["org_id"], ["organizations.org_id"]),
        sa.PrimaryKeyConstraint("token_id"),
        sa.UniqueConstraint("lookup_id"),
    )
    op.create_index(op.f("ix_tokens_org_id"), "tokens", ["org_id"], unique=False)
    op.create_table(
        "alert_rules",
        sa.Column("rule_id", sa.Text(), nullable=False),
        sa.Column("org_id", sa.Text(), nullable=False),
        sa.Column("app_id", sa.Text(), nullable=False),
        sa.Column("terms", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("next_at", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["app_id"], ["apps.app_id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["org_id"], ["organizations.org_id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("rule_id"),
    )
    op.create_index(op.f("ix_alert_rules_app_id"), "alert_rules", ["app_id"], unique=False)
    op.create_index(op.f("ix_alert_rules_next_at"), "alert_rules", ["next_at"], unique=False)
    op.create_index(op.f("ix_alert_rules_org_id"), "alert_rules", ["org_id"], unique=False)
    op.create_table(
        "projects",
        sa.Column("public_id", sa.Text(), nullable=False),
        sa.Column("app_id", sa.Text(), nullable=False),
        sa.Column("plane", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["app_id"], ["apps.app_id"]),
        sa.PrimaryKeyConstraint("public_id"),
        sa.UniqueConstraint("app_id", "plane"),
    )
    op.create_table(
        "keys",
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("app_id", sa.Text(), nullable=False),
        sa.Column("public_id", sa.Text(), nullable=False),
        sa.Column("plane", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("masked", sa.Text(), nullable=False),
        sa.Column("revoked", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("minted_by", sa.Text(), nullable=True),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("last_used_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["app_id"], ["apps.app_id"]),
        sa.ForeignKeyConstraint(["public_id"], ["projects.public_id"]),
        sa.PrimaryKeyConstraint("key_id"),
        sa.UniqueConstraint("digest"),
    )
    op.create_index("ix_keys_app_id_revoked", "keys", ["app_id", "revoked"], unique=False)
    op.create_index(op.f("ix_keys_minted_by"), "keys", ["minted_by"], unique=False)
    op.create_table(
        "webhook_secrets",
        sa.Column("public_id", sa.Text(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.Column("saved_at", sa.BigInteger(), nullable=False),
        sa.Column("is_placeholder", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["public_id"], ["projects.public_id"]),
        sa.PrimaryKeyConstraint("public_id", "provider"),
    )
