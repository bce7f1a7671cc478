"""Alerts and digests: rules, channels, subscribers, and messages to send."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
compatible_from = "0006"


def upgrade() -> None:
    op.create_table(
        "alert_settings",
        sa.Column("org_id", sa.Text, sa.ForeignKey("organizations.org_id", ondelete="CASCADE"), primary_key=True),
        sa.Column("time_zone", sa.Text, nullable=False),
        sa.Column("quiet_from", sa.Integer),
        sa.Column("quiet_until", sa.Integer),
        sa.Column("digest_hour", sa.Integer, nullable=False),
    )
    op.create_table(
        "alert_rules",
        sa.Column("rule_id", sa.Text, primary_key=True),
        sa.Column(
            "org_id", sa.Text, sa.ForeignKey("organizations.org_id", ondelete="CASCADE"), nullable=False, index=True
        ),
        sa.Column("app_id", sa.Text, sa.ForeignKey("apps.app_id", ondelete="CASCADE"), nullable=False, index=True),
        sa.Column("terms", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("next_at", sa.BigInteger, nullable=False, index=True),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("created_by", sa.Text, nullable=False),
    )
    op.create_table(
        "alert_channels",
        sa.Column("channel_id", sa.Text, primary_key=True),
        sa.Column(
            "org_id", sa.Text, sa.ForeignKey("organizations.org_id", ondelete="CASCADE"), nullable=False, index=True
        ),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("masked", sa.Text, nullable=False),
        sa.Column("sealed", sa.LargeBinary, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("created_by", sa.Text, nullable=False),
    )
    op.create_table(
        "alert_subscribers",
        sa.Column("user_id", sa.Text, sa.ForeignKey("users.user_id", ondelete="CASCADE"), primary_key=True),
        sa.Column(
            "org_id", sa.Text, sa.ForeignKey("organizations.org_id", ondelete="CASCADE"), nullable=False, index=True
        ),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("alerts", sa.Boolean, nullable=False),
        sa.Column("token", sa.Text, nullable=False, unique=True),
        sa.Column("next_at", sa.BigInteger, index=True),
    )
    op.create_table(
        "alert_messages",
        sa.Column("message_id", sa.Text, primary_key=True),
        sa.Column("org_id", sa.Text, sa.ForeignKey("organizations.org_id", ondelete="CASCADE"), nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("channel_id", sa.Text),
        sa.Column("user_id", sa.Text),
        sa.Column("receiver", sa.Text, nullable=False),
        sa.Column("notice", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("due_at", sa.BigInteger, nullable=False),
        sa.Column("claimed_until", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("done_at", sa.BigInteger),
        sa.Column("failure", sa.Text),
    )
    op.create_index("ix_alert_messages_state_due_at", "alert_messages", ["state", "due_at"])
    op.create_index("ix_alert_messages_org_id_created_at", "alert_messages", ["org_id", "created_at"])
