"""Apps, their projects and their sealed webhook secrets. An app's first test secret creates its test project."""

from collections.abc import Iterator
from dataclasses import asdict

import sqlalchemy as sa

from mauve.core.app import App, Environment
from mauve.core.biller import Provider
from mauve.stores.catalog import AppChanges, NewApp, NewKey, SavedSecret, SealedSecret, TallyCheck
from mauve.stores.catalog.credentials import insert_key, lock_in_order, tally
from mauve.stores.catalog.published import prune, publish
from mauve.stores.catalog.schema import alert_channels, apps, keys, projects, webhook_secrets
from mauve.stores.sql.database import SqlStore, record_from
from mauve.stores.sql.dialects import upsert_replacing

_live = projects.alias("live")
_test = projects.alias("test")


def _has_live_secret(provider: Provider) -> sa.ColumnElement[bool]:
    of_provider = (webhook_secrets.c.public_id == _live.c.public_id) & (webhook_secrets.c.provider == provider)
    return sa.exists().where(of_provider & webhook_secrets.c.is_placeholder.is_(False)).label(f"has_{provider}_webhook")


_APP = (
    sa.select(
        apps,
        _live.c.public_id,
        _test.c.public_id.label("test_public_id"),
        _has_live_secret(Provider.BILLER_A),
        _has_live_secret(Provider.BILLER_B),
    )
    .join(_live, (_live.c.app_id == apps.c.app_id) & (_live.c.environment == Environment.LIVE))
    .outerjoin(_test, (_test.c.app_id == apps.c.app_id) & (_test.c.environment == Environment.TEST))
)


class Apps(SqlStore):
    def create(self, app: NewApp, first_key: NewKey, check: TallyCheck) -> App:
        """Store the app, its live project and its first key, and publish them."""
        with self._database.writing() as tx:
            check(tally(tx, app.org_id, first_key.minted_by))
            row = {name: value for name, value in asdict(app).items() if name in apps.c}
            tx.execute(sa.insert(apps).values(row))
            insert_project(tx, app.public_id, app.app_id, Environment.LIVE, app.created_at)
            insert_key(tx, app.app_id, app.public_id, first_key)
            publish(tx, dict(_published_of(app.app_id)))
            return record_from(tx.execute(_APP.where(apps.c.app_id == app.app_id)).one(), App)

    def all_of(self, org_id: str) -> list[App]:
        """Return the organization's apps that are not archived, oldest first."""
        return self._list(org_id, apps.c.archived_at.is_(None))

    def archived_of(self, org_id: str) -> list[App]:
        """Return the organization's archived apps, oldest first."""
        return self._list(org_id, apps.c.archived_at.is_not(None))

    def find(self, org_id: str, app_id: str) -> App | None:
        """Return the app, even an archived one, if it belongs to this organization.

        A foreign id takes as long as a missing one.
        """
        return self._first(_APP.where(_is(org_id, app_id)), App)

    def find_anywhere(self, app_id: str) -> App | None:
        """Return the app of any organization: for the operator only."""
        return self._first(_APP.where(apps.c.app_id == app_id), App)

    def change(self, org_id: str, app_id: str, changes: AppChanges) -> App | None:
        given = {name: value for name, value in asdict(changes).items() if value is not None}
        with self._database.writing() as tx:
            tx.execute(sa.update(apps).where(_is(org_id, app_id)).values(given))
            row = tx.execute(_APP.where(_is(org_id, app_id))).one_or_none()
        return None if row is None else record_from(row, App)

    def archive(self, org_id: str, app_id: str, at: int) -> App | None:
        """Archive the app once; publish its keys, projects and secrets as revoked or missing."""
        return self._set_archived(_is(org_id, app_id) & apps.c.archived_at.is_(None), org_id, app_id, at)

    def restore(self, org_id: str, app_id: str) -> App | None:
        """Undo `archive`. Keys that were revoked themselves stay revoked."""
        return self._set_archived(_is(org_id, app_id) & apps.c.archived_at.is_not(None), org_id, app_id, None)

    def _set_archived(
        self, needs_change: sa.ColumnElement[bool], org_id: str, app_id: str, at: int | None
    ) -> App | None:
        with self._database.writing() as tx:
            if tx.execute(sa.update(apps).where(needs_change).values(archived_at=at)).rowcount:
                publish(tx, dict(_published_of(app_id)))
            row = tx.execute(_APP.where(_is(org_id, app_id))).one_or_none()
        return None if row is None else record_from(row, App)

    def delete(self, org_id: str, app_id: str) -> bool:
        """Delete an archived app with its keys, projects and secrets.

        Return False if it does not exist or is not archived.
        """
        archived = _is(org_id, app_id) & apps.c.archived_at.is_not(None)
        with self._database.writing() as tx:
            if tx.execute(sa.select(apps.c.app_id).where(archived).with_for_update()).first() is None:
                return False
            for table, of_app in _published_of(app_id):
                lock_in_order(tx, table, of_app)
                tx.execute(sa.delete(table).where(of_app))
            tx.execute(sa.delete(apps).where(archived))
            prune(tx)
            return True

    def note_first_event(self, public_id: str, at: int) -> None:
        """Set the time of an app's first event, given its live project, unless an earlier one is known."""
        live = sa.select(projects.c.app_id).where(
            projects.c.public_id == public_id, projects.c.environment == Environment.LIVE
        )
        is_later = apps.c.first_event_at.is_(None) | (apps.c.first_event_at > at)
        self._execute(sa.update(apps).where(apps.c.app_id.in_(live), is_later).values(first_event_at=at))

    def _list(self, org_id: str, condition: sa.ColumnElement[bool]) -> list[App]:
        query = _APP.where((apps.c.org_id == org_id) & condition).order_by(apps.c.created_at, apps.c.app_id)
        return self._records(query, App)


def _is(org_id: str, app_id: str) -> sa.ColumnElement[bool]:
    return (apps.c.app_id == app_id) & (apps.c.org_id == org_id)


def _published_of(app_id: str) -> list[tuple[sa.Table, sa.ColumnElement[bool]]]:
    """Return the tables with published rows of an app and which rows those are, in the order to delete them."""
    its_projects = sa.select(projects.c.public_id).where(projects.c.app_id == app_id)
    return [
        (webhook_secrets, webhook_secrets.c.public_id.in_(its_projects)),
        (keys, keys.c.app_id == app_id),
        (projects, projects.c.app_id == app_id),
    ]


def insert_project(tx: sa.Connection, public_id: str, app_id: str, environment: Environment, created_at: int) -> None:
    """Store a project within the caller's transaction, which publishes it."""
    row = {"public_id": public_id, "app_id": app_id, "environment": environment, "created_at": created_at}
    tx.execute(sa.insert(projects).values(row))


class WebhookSecrets(SqlStore):
    def put(self, secret: SealedSecret, public_id_if_new: str) -> str:
        """Store and publish the secret in place of any earlier one; return its project's public id.

        The first secret in an app's test environment creates the test project with the given id. A placeholder
        replaces nothing.
        """
        with self._database.writing() as tx:
            # Lock the app's row, so that two first secrets do not create two test projects (PostgreSQL; SQLite has one
            # writer anyway).
            tx.execute(sa.select(apps.c.app_id).where(apps.c.app_id == secret.app_id).with_for_update())
            of_environment = (projects.c.app_id == secret.app_id) & (projects.c.environment == secret.environment)
            known = tx.execute(sa.select(projects.c.public_id).where(of_environment)).scalar_one_or_none()
            public_id = public_id_if_new if known is None else known
            if known is None:
                insert_project(tx, public_id, secret.app_id, secret.environment, secret.saved_at)
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
        return self._records(query, SavedSecret)

    def all_sealed(self) -> Iterator[bytes]:
        """Yield all that is sealed, channels of alerts included, to find which master keys are still needed."""
        with self._database.reading() as tx:
            yield from tx.execute(sa.select(webhook_secrets.c.sealed)).scalars()
            yield from tx.execute(sa.select(alert_channels.c.sealed)).scalars()


def _replace(tx: sa.Connection, secret: SealedSecret, public_id: str) -> bool:
    """Store the secret; return False if a placeholder would have replaced another."""
    is_it = (webhook_secrets.c.public_id == public_id) & (webhook_secrets.c.provider == secret.provider)
    if secret.is_placeholder and tx.execute(sa.select(webhook_secrets.c.provider).where(is_it)).first() is not None:
        return False
    row = {column.name: getattr(secret, column.name) for column in webhook_secrets.c if column.name != "public_id"}
    tx.execute(upsert_replacing(tx.dialect.name, webhook_secrets), row | {"public_id": public_id})
    return True
