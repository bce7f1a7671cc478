"""The table of published records: written with each change, read by every process.

A transaction that publishes takes one lock first and keeps it until the commit. So revisions become visible in order,
and a reader that has seen one never finds a lower one later.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
import sqlalchemy as sa
import structlog

from mauve.core.app import Environment
from mauve.core.credential import Scope
from mauve.stores.catalog.schema import apps, keys, organizations, projects, published, tokens, webhook_secrets
from mauve.stores.published import (
    Changes,
    PublishedKey,
    PublishedOrganization,
    PublishedProject,
    PublishedRecord,
    PublishedSecret,
    PublishedToken,
)
from mauve.stores.sql.database import SqlStore, record_from
from mauve.stores.sql.dialects import now_ms, upsert_replacing

CHANNEL: Final = "mauve_published"
_LOCK: Final = 0x6D61757666  # any number that other programs in the same database do not use
_REVISIONS_PER_MS: Final = 1_000
KEPT_MS: Final = 7 * 86_400_000  # A process that was stopped for longer than a day reads everything again.
ROWS_MAX: Final = 10_000  # of one statement, whose time is limited
_NEWEST: Final = sa.select(sa.func.coalesce(sa.func.max(published.c.revision), 0))
_SINCE: Final = (
    sa.select(published.c.revision, published.c.kind, published.c.id, published.c.record)
    .where(published.c.revision > sa.bindparam("since"))
    .order_by(published.c.revision)
    .limit(sa.bindparam("count"))
)

log = structlog.get_logger()
_encoder: Final = msgspec.json.Encoder()
_decoder: Final[msgspec.json.Decoder[PublishedRecord]] = msgspec.json.Decoder(PublishedRecord)


def publish(tx: sa.Connection, rows: Mapping[sa.Table, sa.ColumnElement[bool]]) -> None:
    """Publish the current state of these rows. Call it last in a transaction: it takes a lock that all share."""
    if tx.dialect.name != "sqlite":  # SQLite has one writer.
        tx.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
    at: int = tx.execute(sa.select(now_ms(tx.dialect.name))).scalar_one()
    # At least the time: after a failover that lost the last commits, their revisions must not be used again.
    revision = max(tx.execute(_NEWEST).scalar_one(), at * _REVISIONS_PER_MS)
    for table, condition in rows.items():
        query, published_from = _SOURCES[table]
        found = [published_from(row) for row in tx.execute(query.where(condition))]
        values = [
            {"kind": kind, "id": id_, "revision": number, "record": _encoder.encode(record), "committed_at": at}
            for number, (kind, id_, record) in enumerate(found, revision + 1)
        ]
        if values:
            tx.execute(upsert_replacing(tx.dialect.name, published), values)
        revision += len(values)
    if tx.dialect.name != "sqlite":
        tx.execute(sa.select(sa.func.pg_notify(CHANNEL, "")))


def prune(tx: sa.Connection) -> None:
    """Delete records of apps that were deleted, a week after every process could know that they are archived.

    The newest record stays, because the next revision must be higher.
    """
    secret_ids = sa.select(webhook_secrets.c.public_id + "/" + webhook_secrets.c.provider)
    is_orphan = sa.or_(
        (published.c.kind == "key") & published.c.id.not_in(sa.select(keys.c.key_id)),
        (published.c.kind == "project") & published.c.id.not_in(sa.select(projects.c.public_id)),
        (published.c.kind == "secret") & published.c.id.not_in(secret_ids),
    )
    is_old = published.c.committed_at < now_ms(tx.dialect.name) - KEPT_MS
    tx.execute(sa.delete(published).where(is_orphan, is_old, published.c.revision < _NEWEST.scalar_subquery()))


class Published(SqlStore):
    """Reads what was published. Safe to use from several threads."""

    def changes_since(self, revision: int) -> Changes:
        records: list[PublishedRecord] = []
        while True:
            with self._database.reading() as tx:
                rows = tx.execute(_SINCE, {"since": revision, "count": ROWS_MAX}).all()
            records += [record for row in rows if (record := _decoded(row.kind, row.id, row.record)) is not None]
            revision = rows[-1].revision if rows else revision
            if len(rows) < ROWS_MAX:
                return Changes(records, revision)

    def prune(self) -> None:
        """Delete records of apps that were deleted more than a week ago."""
        with self._database.writing() as tx:
            prune(tx)


def _decoded(kind: str, id_: str, record: bytes) -> PublishedRecord | None:
    """Return the record; None if a newer release published a kind or a value that this one does not know."""
    try:
        return _decoder.decode(record)
    except msgspec.ValidationError as error:
        advice = "a machine runs a newer release: upgrade this one"
        log.warning("published_record_unknown", kind=kind, id=id_, reason=str(error), advice=advice)
        return None


def scopes_from(text: str) -> frozenset[Scope]:
    """Parse the comma-separated scopes of a token's row."""
    return frozenset(Scope(each) for each in text.split(",") if each)


_Published = tuple[str, str, PublishedRecord]  # its kind and id, under which it replaces an earlier one


def _organization_from(row: sa.Row[Any]) -> _Published:
    return "organization", row.org_id, record_from(row, PublishedOrganization)


def _key_from(row: sa.Row[Any]) -> _Published:
    revoked = row.revoked or row.archived_at is not None
    return "key", row.key_id, record_from(row, PublishedKey, revoked=revoked)


def _token_from(row: sa.Row[Any]) -> _Published:
    # Test tokens are reserved: none can be minted.
    others = {"environment": Environment.LIVE, "scopes": scopes_from(row.scopes)}
    return "token", row.lookup_id, record_from(row, PublishedToken, **others)


def _project_from(row: sa.Row[Any]) -> _Published:
    return "project", row.public_id, record_from(row, PublishedProject, archived=row.archived_at is not None)


def _secret_from(row: sa.Row[Any]) -> _Published:
    is_archived = row.archived_at is not None
    sealed = b"" if is_archived else row.sealed
    record = record_from(row, PublishedSecret, sealed=sealed, archived=is_archived)
    return "secret", record.record_id, record


_SOURCES: Final[Mapping[sa.Table, tuple[sa.Select[Any], Callable[[sa.Row[Any]], _Published]]]] = {
    organizations: (sa.select(organizations), _organization_from),
    projects: (
        sa.select(projects, apps.c.org_id, apps.c.archived_at).join(apps, apps.c.app_id == projects.c.app_id),
        _project_from,
    ),
    keys: (
        sa.select(keys, apps.c.org_id, apps.c.archived_at).join(apps, apps.c.app_id == keys.c.app_id),
        _key_from,
    ),
    tokens: (sa.select(tokens), _token_from),
    webhook_secrets: (
        sa.select(webhook_secrets, projects.c.environment, projects.c.app_id, apps.c.org_id, apps.c.archived_at)
        .join(projects, projects.c.public_id == webhook_secrets.c.public_id)
        .join(apps, apps.c.app_id == projects.c.app_id),
        _secret_from,
    ),
}
