"""Alembic's entry point: runs the migrations on the connection passed by `migrate`."""

from alembic import context

from mauve.stores.catalog.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
