"""Webhook signing secrets, already sealed."""

from collections.abc import Iterator

import sqlalchemy as sa

from mauve.core.app import Environment
from mauve.core.biller import Provider
from mauve.stores.catalog import SavedSecret, SealedSecret
from mauve.stores.catalog.apps import insert_project
from mauve.stores.catalog.published import publish
from mauve.stores.catalog.schema import alert_channels, apps, projects, webhook_secrets
from mauve.stores.sql.database import Database


class WebhookSecrets:
    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, secret: SealedSecret, public_id_if_new: str) -> str:
        """Store and publish the secret in place of any earlier one; return its project's public id.

        The first secret in an app's test environment creates the test project with the given id. A placeholder
        replaces nothing.
        """
        with self._database.writing() as tx:
            # Lock the app's row, so that two first secrets do not create two test projects (PostgreSQL; SQLite has one
            # writer anyway).
            tx.execute(sa.select(apps.c.app_id).where(apps.c.app_id == secret.app_id).with_for_update())
            public_id = _project_of(tx, secret) or _new_project(tx, secret, public_id_if_new)
            if _replace(tx, secret, public_id):
                is_it = (webhook_secrets.c.public_id == public_id) & (webhook_secrets.c.provider == secret.provider)
                is_new = (projects.c.public_id == public_id_if_new) & (projects.c.app_id == secret.app_id)
                publish(tx, {projects: is_new, webhook_secrets: is_it})
        return public_id

    def saved_for(self, app_id: str) -> list[SavedSecret]:
        """Return which secrets an app has, in both environments."""
        columns = sa.select(projects.c.environment, webhook_secrets)
        query = columns.join(projects, projects.c.public_id == webhook_secrets.c.public_id)
        query = query.where(projects.c.app_id == app_id).order_by(projects.c.environment, webhook_secrets.c.provider)
        with self._database.reading() as tx:
            return [
                SavedSecret(Environment(row.environment), Provider(row.provider), row.saved_at, row.is_placeholder)
                for row in tx.execute(query)
            ]

    def all_sealed(self) -> Iterator[bytes]:
        """Yield all that is sealed, channels of alerts included, to find which master keys are still needed."""
        with self._database.reading() as tx:
            yield from tx.execute(sa.select(webhook_secrets.c.sealed)).scalars()
            yield from tx.execute(sa.select(alert_channels.c.sealed)).scalars()


def _project_of(tx: sa.Connection, secret: SealedSecret) -> str | None:
    on_its_plane = (projects.c.app_id == secret.app_id) & (projects.c.environment == secret.environment)
    return tx.execute(sa.select(projects.c.public_id).where(on_its_plane)).scalar_one_or_none()


def _new_project(tx: sa.Connection, secret: SealedSecret, public_id: str) -> str:
    insert_project(tx, public_id, secret.app_id, secret.environment, secret.saved_at)
    return public_id


def _replace(tx: sa.Connection, secret: SealedSecret, public_id: str) -> bool:
    """Store the secret; return False if a placeholder would have replaced another."""
    columns = {"sealed": secret.sealed, "saved_at": secret.saved_at, "is_placeholder": secret.is_placeholder}
    is_it = (webhook_secrets.c.public_id == public_id) & (webhook_secrets.c.provider == secret.provider)
    if secret.is_placeholder and tx.execute(sa.select(webhook_secrets.c.provider).where(is_it)).first() is not None:
        return False
    update = sa.update(webhook_secrets).where(is_it).values(columns)
    if tx.execute(update).rowcount == 0:
        row = {"public_id": public_id, "provider": secret.provider} | columns
        tx.execute(sa.insert(webhook_secrets).values(row))
    return True
