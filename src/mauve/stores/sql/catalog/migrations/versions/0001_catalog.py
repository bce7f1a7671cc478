"""The catalog."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "organizations",
        sa.Column("org_id", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("standing", sa.Text, nullable=False),
        sa.Column("grace_ends_at", sa.BigInteger),
        sa.Column("event_cap", sa.BigInteger),
        sa.Column("reads_per_minute", sa.BigInteger, nullable=False),
        sa.Column("agent_queries", sa.BigInteger, nullable=False),
        sa.Column("raw_scans", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("mirrored_at", sa.BigInteger),
    )
    op.create_table(
        "users",
        sa.Column("user_id", sa.Text, primary_key=True),
        sa.Column("email", sa.Text, nullable=False, unique=True),
        sa.Column("password_hash", sa.Text),
        sa.Column("created_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "memberships",
        sa.Column("org_id", sa.Text, sa.ForeignKey("organizations.org_id"), primary_key=True),
        sa.Column("user_id", sa.Text, sa.ForeignKey("users.user_id"), primary_key=True),
        sa.Column("role", sa.Text, nullable=False),
    )
    op.create_table(
        "links",
        sa.Column("link_id", sa.Text, primary_key=True),
        sa.Column("digest", sa.LargeBinary, nullable=False, unique=True),
        sa.Column("user_id", sa.Text, sa.ForeignKey("users.user_id")),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.Column("used_at", sa.BigInteger),
        sa.Column("created_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "apps",
        sa.Column("app_id", sa.Text, primary_key=True),
        sa.Column("org_id", sa.Text, sa.ForeignKey("organizations.org_id"), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("ownership", sa.Text, nullable=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("first_event_at", sa.BigInteger),
        sa.Column("created_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "projects",
        sa.Column("public_id", sa.Text, primary_key=True),
        sa.Column("app_id", sa.Text, sa.ForeignKey("apps.app_id"), nullable=False),
        sa.Column("plane", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("app_id", "plane"),
    )
    op.create_table(
        "keys",
        sa.Column("key_id", sa.Text, primary_key=True),
        sa.Column("app_id", sa.Text, sa.ForeignKey("apps.app_id"), nullable=False),
        sa.Column("public_id", sa.Text, sa.ForeignKey("projects.public_id"), nullable=False),
        sa.Column("plane", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False, unique=True),
        sa.Column("masked", sa.Text, nullable=False),
        sa.Column("revoked", sa.Boolean, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("mirrored_at", sa.BigInteger),
    )
    op.create_table(
        "tokens",
        sa.Column("token_id", sa.Text, primary_key=True),
        sa.Column("org_id", sa.Text, sa.ForeignKey("organizations.org_id"), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("lookup_id", sa.Text, nullable=False, unique=True),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("scopes", sa.Text, nullable=False),
        sa.Column("revoked", sa.Boolean, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "webhook_secrets",
        sa.Column("public_id", sa.Text, sa.ForeignKey("projects.public_id"), primary_key=True),
        sa.Column("provider", sa.Text, primary_key=True),
        sa.Column("sealed", sa.LargeBinary, nullable=False),
        sa.Column("saved_at", sa.BigInteger, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("mirrored_at", sa.BigInteger),
    )
    op.create_table(
        "installation",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )
    for table, column in (
        ("apps", "org_id"),
        ("keys", "app_id"),
        ("keys", "mirrored_at"),
        ("memberships", "user_id"),
        ("organizations", "mirrored_at"),
        ("tokens", "org_id"),
        ("webhook_secrets", "mirrored_at"),
    ):
        op.create_index(f"ix_{table}_{column}", table, [column])
