"""Changes not yet published to the edge.

Each published row has `version`, the count of its changes, and `mirrored_at`, NULL while the current version is
unpublished. A change increments the one and clears the other in its own transaction, so none is lost and no separate
outbox is needed. The marks refer to one edge, whose id is kept beside them: one that replaces it starts without any.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import sqlalchemy as sa

from mauve.core.app import Environment
from mauve.core.biller import Provider
from mauve.core.credential import KeyKind, Scope
from mauve.core.organization import Standing
from mauve.stores.edge import (
    PublishedKey,
    PublishedOrganization,
    PublishedProject,
    PublishedRecord,
    PublishedSecret,
    PublishedToken,
)
from mauve.stores.sql.catalog.row_locks import LOCK_ORDER, lock_rows
from mauve.stores.sql.catalog.schema import (
    apps,
    installation,
    keys,
    organizations,
    projects,
    tokens,
    webhook_secrets,
)
from mauve.stores.sql.database import Database
from mauve.stores.sql.dialects import upsert

_EDGE_ID: Final = "edge_id"
_EDGE: Final = sa.select(installation.c.value).where(installation.c.name == _EDGE_ID)
UNPUBLISHED: Final[dict[str, object]] = {"version": 1, "mirrored_at": None}
"""The publication columns of a new row."""


def changed(table: sa.Table) -> dict[str, object]:
    """Return the publication columns of a row that has just changed."""
    return {"version": table.c.version + 1, "mirrored_at": None}


def scopes_from(text: str) -> frozenset[Scope]:
    """Parse the comma-separated scopes of a token's row."""
    return frozenset(Scope(each) for each in text.split(",") if each)


class SqlPublications:
    def __init__(self, database: Database) -> None:
        self._database = database

    def pending(self, count_max: int) -> list[PublishedRecord]:
        records: list[PublishedRecord] = []
        with self._database.reading() as tx:
            for query, record_from in _SOURCES:
                rows = tx.execute(query.limit(count_max - len(records)))
                records += [record_from(row) for row in rows]
        return records

    def mark_published(self, records: Sequence[PublishedRecord], at: int, edge_id: str) -> bool:
        with self._database.writing() as tx:
            # Locked until the end: another machine that finds a new edge clears these marks, too, or has been faster.
            if tx.execute(_EDGE.with_for_update(read=True)).scalar_one_or_none() != edge_id:
                return False
            for record in sorted(records, key=_place_of):
                tx.execute(_row_of(record).values(mirrored_at=at))
            return True

    def edge_id(self) -> str | None:
        with self._database.reading() as tx:
            found: str | None = tx.execute(_EDGE).scalar_one_or_none()
            return found

    def use_edge(self, edge_id: str) -> None:
        with self._database.writing() as tx:
            insert = upsert(tx.dialect.name, installation).values(name=_EDGE_ID, value=edge_id)
            changes = {"value": insert.excluded.value}
            tx.execute(insert.on_conflict_do_update(index_elements=[installation.c.name], set_=changes))
            lock_rows(tx, dict.fromkeys(LOCK_ORDER, sa.true()))
            for table in LOCK_ORDER:
                tx.execute(sa.update(table).values(mirrored_at=None))


def _place_of(record: PublishedRecord) -> tuple[int, str]:
    """Return the record's place in the order in which rows are locked."""
    return LOCK_ORDER.index(_row_of(record).table), record.record_id


def _row_of(record: PublishedRecord) -> sa.Update:
    """Select the record's row at the published version, so that a later change stays pending."""
    match record:
        case PublishedOrganization():
            table, is_it = organizations, organizations.c.org_id == record.org_id
        case PublishedKey():
            table, is_it = keys, keys.c.key_id == record.key_id
        case PublishedToken():
            table, is_it = tokens, tokens.c.lookup_id == record.lookup_id
        case PublishedProject():
            table, is_it = projects, projects.c.public_id == record.public_id
        case PublishedSecret():
            of_project = webhook_secrets.c.public_id == record.public_id
            table, is_it = webhook_secrets, of_project & (webhook_secrets.c.provider == record.provider)
    return sa.update(table).where(is_it & (table.c.version == record.version))


def _organization_from(row: sa.Row[Any]) -> PublishedRecord:
    return PublishedOrganization(
        org_id=row.org_id,
        version=row.version,
        standing=Standing(row.standing),
        grace_ends_at=row.grace_ends_at,
        event_cap=row.event_cap,
        reads_per_minute=row.reads_per_minute,
        agent_queries=row.agent_queries,
        raw_scans=row.raw_scans,
    )


def _key_from(row: sa.Row[Any]) -> PublishedRecord:
    return PublishedKey(
        key_id=row.key_id,
        version=row.version,
        digest=row.digest,
        kind=KeyKind(row.kind),
        environment=Environment(row.environment),
        public_id=row.public_id,
        app_id=row.app_id,
        org_id=row.org_id,
        revoked=row.revoked or row.archived_at is not None,
    )


def _token_from(row: sa.Row[Any]) -> PublishedRecord:
    return PublishedToken(
        lookup_id=row.lookup_id,
        version=row.version,
        digest=row.digest,
        org_id=row.org_id,
        environment=Environment.LIVE,  # test tokens are reserved: none can be minted
        scopes=scopes_from(row.scopes),
        revoked=row.revoked,
    )


def _project_from(row: sa.Row[Any]) -> PublishedRecord:
    return PublishedProject(
        public_id=row.public_id,
        version=row.version,
        app_id=row.app_id,
        org_id=row.org_id,
        environment=Environment(row.environment),
        archived=row.archived_at is not None,
    )


def _secret_from(row: sa.Row[Any]) -> PublishedRecord:
    return PublishedSecret(
        public_id=row.public_id,
        provider=Provider(row.provider),
        version=row.version,
        environment=Environment(row.environment),
        app_id=row.app_id,
        org_id=row.org_id,
        sealed=row.sealed if row.archived_at is None else b"",
        archived=row.archived_at is not None,
    )


_PENDING_ORGANIZATIONS: Final = sa.select(organizations).where(organizations.c.mirrored_at.is_(None))
_PENDING_PROJECTS: Final = (
    sa.select(projects, apps.c.org_id, apps.c.archived_at)
    .join(apps, apps.c.app_id == projects.c.app_id)
    .where(projects.c.mirrored_at.is_(None))
)
_PENDING_TOKENS: Final = sa.select(tokens).where(tokens.c.mirrored_at.is_(None))
_PENDING_KEYS: Final = (
    sa.select(keys, apps.c.org_id, apps.c.archived_at)
    .join(apps, apps.c.app_id == keys.c.app_id)
    .where(keys.c.mirrored_at.is_(None))
)
_PENDING_SECRETS: Final = (
    sa.select(webhook_secrets, projects.c.environment, projects.c.app_id, apps.c.org_id, apps.c.archived_at)
    .join(projects, projects.c.public_id == webhook_secrets.c.public_id)
    .join(apps, apps.c.app_id == projects.c.app_id)
    .where(webhook_secrets.c.mirrored_at.is_(None))
)
_SOURCES: Final[tuple[tuple[sa.Select[Any], Callable[[sa.Row[Any]], PublishedRecord]], ...]] = (
    (_PENDING_ORGANIZATIONS, _organization_from),
    (_PENDING_PROJECTS, _project_from),
    (_PENDING_KEYS, _key_from),
    (_PENDING_TOKENS, _token_from),
    (_PENDING_SECRETS, _secret_from),
)
