"""The catalog of 0.1.0: the tables of `schema.py`, until a second revision changes them and states them here."""

from alembic import op

from mauve.stores.catalog.schema import metadata

revision = "0001"
down_revision = None


def upgrade() -> None:
    metadata.create_all(op.get_bind())
