"""Alembic's door: runs the migrations on the connection that `migrate` hands over."""

from alembic import context

from mauve.stores.sql.catalog.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
