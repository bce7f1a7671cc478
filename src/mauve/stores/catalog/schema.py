"""The catalog's tables. Its migrations create them; a test keeps the two in sync."""

from typing import Final

import sqlalchemy as sa

metadata: Final = sa.MetaData()


organizations: Final = sa.Table(
    "organizations",
    metadata,
    sa.Column("org_id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("standing", sa.Text, nullable=False),
    sa.Column("grace_ends_at", sa.BigInteger),
    sa.Column("event_cap", sa.BigInteger),
    sa.Column("reads_per_minute", sa.BigInteger, nullable=False),
    sa.Column("agent_queries", sa.BigInteger, nullable=False),
    sa.Column("raw_scans", sa.BigInteger, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
)

users: Final = sa.Table(
    "users",
    metadata,
    sa.Column("user_id", sa.Text, primary_key=True),
    sa.Column("email", sa.Text, nullable=False, unique=True),
    sa.Column("password_hash", sa.Text),
    sa.Column("created_at", sa.BigInteger, nullable=False),
)

memberships: Final = sa.Table(
    "memberships",
    metadata,
    sa.Column("org_id", sa.ForeignKey("organizations.org_id"), primary_key=True),
    sa.Column("user_id", sa.ForeignKey("users.user_id"), primary_key=True, index=True),
    sa.Column("role", sa.Text, nullable=False),
)

links: Final = sa.Table(
    "links",
    metadata,
    sa.Column("link_id", sa.Text, primary_key=True),
    sa.Column("digest", sa.LargeBinary, nullable=False, unique=True),
    sa.Column("user_id", sa.ForeignKey("users.user_id"), index=True),
    sa.Column("expires_at", sa.BigInteger, nullable=False),
    sa.Column("used_at", sa.BigInteger),
    sa.Column("created_at", sa.BigInteger, nullable=False),
)

sessions: Final = sa.Table(
    "sessions",
    metadata,
    sa.Column("session_id", sa.Text, primary_key=True),
    sa.Column("digest", sa.LargeBinary, nullable=False, unique=True),
    sa.Column("user_id", sa.ForeignKey("users.user_id"), nullable=False, index=True),
    sa.Column("agent", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("seen_at", sa.BigInteger, nullable=False),
    sa.Column("expires_at", sa.BigInteger, nullable=False, index=True),
)

apps: Final = sa.Table(
    "apps",
    metadata,
    sa.Column("app_id", sa.Text, primary_key=True),
    sa.Column("org_id", sa.ForeignKey("organizations.org_id"), nullable=False, index=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("ownership", sa.Text, nullable=False),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("first_event_at", sa.BigInteger),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("archived_at", sa.BigInteger),  # NULL: not archived
)

projects: Final = sa.Table(
    "projects",
    metadata,
    sa.Column("public_id", sa.Text, primary_key=True),
    sa.Column("app_id", sa.ForeignKey("apps.app_id"), nullable=False),
    sa.Column("plane", sa.Text, key="environment", nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.UniqueConstraint("app_id", "environment"),
)

keys: Final = sa.Table(
    "keys",
    metadata,
    sa.Column("key_id", sa.Text, primary_key=True),
    sa.Column("app_id", sa.ForeignKey("apps.app_id"), nullable=False),
    sa.Column("public_id", sa.ForeignKey("projects.public_id"), nullable=False),
    sa.Column("plane", sa.Text, key="environment", nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("digest", sa.LargeBinary, nullable=False, unique=True),
    sa.Column("masked", sa.Text, nullable=False),
    sa.Column("revoked", sa.Boolean, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("minted_by", sa.Text, index=True),  # a user, a token or the operator; NULL: not recorded
    sa.Column("name", sa.Text),
    sa.Column("last_used_at", sa.BigInteger),
    sa.Index("ix_keys_app_id_revoked", "app_id", "revoked"),  # covers the counts
)

tokens: Final = sa.Table(
    "tokens",
    metadata,
    sa.Column("token_id", sa.Text, primary_key=True),
    sa.Column("org_id", sa.ForeignKey("organizations.org_id"), nullable=False, index=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("lookup_id", sa.Text, nullable=False, unique=True),
    sa.Column("digest", sa.LargeBinary, nullable=False),
    sa.Column("scopes", sa.Text, nullable=False),  # comma-separated, sorted
    sa.Column("revoked", sa.Boolean, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("minted_by", sa.Text),  # a user, perhaps removed since, or the operator
    sa.Column("last_used_at", sa.BigInteger),
)

webhook_secrets: Final = sa.Table(
    "webhook_secrets",
    metadata,
    sa.Column("public_id", sa.ForeignKey("projects.public_id"), primary_key=True),
    sa.Column("provider", sa.Text, primary_key=True),
    sa.Column("sealed", sa.LargeBinary, nullable=False),
    sa.Column("saved_at", sa.BigInteger, nullable=False),
    # Random, so that the address exists before the biller has given its secret: no delivery is signed with it.
    sa.Column("is_placeholder", sa.Boolean, nullable=False),
)

# The part of the tables above that every process keeps in memory: the newest state of each row, under its revision.
published: Final = sa.Table(
    "published",
    metadata,
    sa.Column("kind", sa.Text, primary_key=True),
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("revision", sa.BigInteger, nullable=False, unique=True),
    sa.Column("record", sa.LargeBinary, nullable=False),  # JSON
    sa.Column("committed_at", sa.BigInteger, nullable=False),
)

# Counters that machines share. On one machine, only reads are counted here.
reads: Final = sa.Table(
    "reads",
    metadata,
    sa.Column("org_id", sa.Text, primary_key=True),
    sa.Column("at", sa.BigInteger, primary_key=True),
    sa.Column("reads", sa.Integer, nullable=False),
)

spent: Final = sa.Table(
    "spent",
    metadata,
    sa.Column("org_id", sa.Text, primary_key=True),
    sa.Column("period", sa.Text, primary_key=True),
    sa.Column("queries", sa.BigInteger, nullable=False),
    sa.Column("raw_scans", sa.BigInteger, nullable=False),
)

processes: Final = sa.Table(
    "processes",
    metadata,
    sa.Column("process", sa.Text, primary_key=True),
    sa.Column("accepted", sa.LargeBinary),  # counts of accepted events that may not be loaded yet
    sa.Column("accepted_at", sa.BigInteger),
    sa.Column("beat_at", sa.BigInteger),  # when it last used a limit that all processes share
)

buckets: Final = sa.Table(
    "buckets",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("tokens", sa.Float, nullable=False),
    sa.Column("at", sa.BigInteger, nullable=False, index=True),
)

# Alerts and digests. Rows go with the app or the member they belong to.
alert_settings: Final = sa.Table(
    "alert_settings",
    metadata,
    sa.Column("org_id", sa.ForeignKey("organizations.org_id", ondelete="CASCADE"), primary_key=True),
    sa.Column("time_zone", sa.Text, nullable=False),
    sa.Column("quiet_from", sa.Integer),  # the hour; NULL: no quiet hours
    sa.Column("quiet_until", sa.Integer),
    sa.Column("digest_hour", sa.Integer, nullable=False),
)

alert_rules: Final = sa.Table(
    "alert_rules",
    metadata,
    sa.Column("rule_id", sa.Text, primary_key=True),
    sa.Column("org_id", sa.ForeignKey("organizations.org_id", ondelete="CASCADE"), nullable=False, index=True),
    sa.Column("app_id", sa.ForeignKey("apps.app_id", ondelete="CASCADE"), nullable=False, index=True),
    sa.Column("terms", sa.Text, nullable=False),  # JSON
    sa.Column("state", sa.Text, nullable=False),  # JSON
    sa.Column("version", sa.BigInteger, nullable=False),  # the number of its evaluations
    sa.Column("next_at", sa.BigInteger, nullable=False, index=True),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("created_by", sa.Text, nullable=False),
)

alert_channels: Final = sa.Table(
    "alert_channels",
    metadata,
    sa.Column("channel_id", sa.Text, primary_key=True),
    sa.Column("org_id", sa.ForeignKey("organizations.org_id", ondelete="CASCADE"), nullable=False, index=True),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("masked", sa.Text, nullable=False),  # the address without its secrets
    sa.Column("sealed", sa.LargeBinary, nullable=False),  # address and signing secret, as JSON
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("created_by", sa.Text, nullable=False),
)

alert_subscribers: Final = sa.Table(
    "alert_subscribers",
    metadata,
    sa.Column("user_id", sa.ForeignKey("users.user_id", ondelete="CASCADE"), primary_key=True),
    sa.Column("org_id", sa.ForeignKey("organizations.org_id", ondelete="CASCADE"), nullable=False, index=True),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("alerts", sa.Boolean, nullable=False),
    # Stored as it is, since every e-mail contains it. All it can do is to end these e-mails.
    sa.Column("token", sa.Text, nullable=False, unique=True),
    sa.Column("next_at", sa.BigInteger, index=True),  # of the digest; NULL: none is wanted
)

# The outbox, and the history of what it sent.
alert_messages: Final = sa.Table(
    "alert_messages",
    metadata,
    sa.Column("message_id", sa.Text, primary_key=True),
    sa.Column("org_id", sa.ForeignKey("organizations.org_id", ondelete="CASCADE"), nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("channel_id", sa.Text),
    sa.Column("user_id", sa.Text),
    sa.Column("receiver", sa.Text, nullable=False),  # as the history shows it
    sa.Column("notice", sa.Text, nullable=False),  # JSON
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("due_at", sa.BigInteger, nullable=False),
    sa.Column("claimed_until", sa.BigInteger, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("done_at", sa.BigInteger),
    sa.Column("failure", sa.Text),  # of the last attempt
    sa.Index("ix_alert_messages_state_due_at", "state", "due_at"),
    sa.Index("ix_alert_messages_org_id_created_at", "org_id", "created_at"),
)

installation: Final = sa.Table(
    "installation",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)
