"""Imports of history, and a generation of the closed days."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
compatible_from = "0008"


def upgrade() -> None:
    op.add_column("closed_days", sa.Column("generation", sa.BigInteger, nullable=False, server_default="0"))
    op.create_table(
        "imports",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("project", sa.Text, nullable=False),
        sa.Column("format", sa.Text, nullable=False),
        sa.Column("file", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("options", sa.Text, nullable=False),
        sa.Column("first_day", sa.Text, nullable=False),
        sa.Column("last_day", sa.Text, nullable=False),
        sa.Column("is_approximate", sa.Boolean, nullable=False),
        sa.Column("who", sa.Text, nullable=False),
        sa.Column("began_at", sa.BigInteger, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.Column("counts", sa.Text, nullable=False),
        sa.Column("ended_at", sa.BigInteger),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_imports_project", "imports", ["project", "number"])
    is_kept = sa.text("state <> 'undone'")
    op.create_index(
        "ix_imports_file",
        "imports",
        ["project", "digest"],
        unique=True,
        sqlite_where=is_kept,
        postgresql_where=is_kept,
    )
    op.create_table(
        "imported_figures",
        sa.Column("project", sa.Text, primary_key=True),
        sa.Column("day", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("value", sa.BigInteger, nullable=False),
    )
