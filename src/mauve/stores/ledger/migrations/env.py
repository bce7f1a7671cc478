"""Alembic's entry point: runs the migrations on the connection passed by `migrate`."""

from alembic import context

from mauve.stores.ledger.schema import metadata

attributes = context.config.attributes
context.configure(
    connection=attributes["connection"],
    target_metadata=metadata,
    # A separate table: the catalog may be in the same database.
    version_table=attributes["version_table"],
)
context.run_migrations()
