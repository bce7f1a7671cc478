"""Projects: an app has a live one from the start, and a test one from its first test secret on."""

import sqlalchemy as sa

from mauve.core.app import Environment
from mauve.stores.sql.catalog.publications import UNPUBLISHED
from mauve.stores.sql.catalog.schema import projects


def insert_project(tx: sa.Connection, public_id: str, app_id: str, environment: Environment, created_at: int) -> None:
    """Store a project, unpublished, inside a transaction that someone else opened."""
    row = {"public_id": public_id, "app_id": app_id, "environment": environment, "created_at": created_at}
    tx.execute(sa.insert(projects).values(row | UNPUBLISHED))
