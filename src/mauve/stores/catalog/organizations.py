"""Organizations with their standing and limits."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa

from mauve.core.organization import Limits, Organization
from mauve.stores.catalog.published import publish
from mauve.stores.catalog.schema import organizations
from mauve.stores.sql.database import SqlStore, record_from


class Organizations(SqlStore):
    def create(self, organization: Organization) -> None:
        with self._database.writing() as tx:
            insert_organization(tx, organization)

    def list_all(self) -> list[Organization]:
        query = sa.select(organizations).order_by(organizations.c.created_at, organizations.c.org_id)
        with self._database.reading() as tx:
            return [organization_from(row) for row in tx.execute(query)]

    def find(self, org_id: str) -> Organization | None:
        with self._database.reading() as tx:
            return _find(tx, org_id)

    def update(self, org_id: str, change: Callable[[Organization], Organization]) -> Organization | None:
        """Apply `change` to name, standing, grace and limits, and publish them.

        No other change happens in between.
        """
        with self._database.writing() as tx:
            tx.execute(sa.select(organizations.c.org_id).where(organizations.c.org_id == org_id).with_for_update())
            found = _find(tx, org_id)
            if found is None:
                return None
            is_it = organizations.c.org_id == org_id
            tx.execute(sa.update(organizations).where(is_it).values(_changeable_columns(change(found))))
            publish(tx, {organizations: is_it})
            return _find(tx, org_id)


def insert_organization(tx: sa.Connection, organization: Organization) -> None:
    """Store and publish an organization within the caller's transaction."""
    row = {"org_id": organization.org_id, "created_at": organization.created_at}
    tx.execute(sa.insert(organizations).values(row | _changeable_columns(organization)))
    publish(tx, {organizations: organizations.c.org_id == organization.org_id})


def _find(tx: sa.Connection, org_id: str) -> Organization | None:
    row = tx.execute(sa.select(organizations).where(organizations.c.org_id == org_id)).one_or_none()
    return None if row is None else organization_from(row)


def _changeable_columns(organization: Organization) -> dict[str, object]:
    names = ("name", "standing", "grace_ends_at")
    return {name: getattr(organization, name) for name in names} | asdict(organization.limits)


def organization_from(row: sa.Row[Any]) -> Organization:
    return record_from(row, Organization, limits=record_from(row, Limits))
