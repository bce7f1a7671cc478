"""Data-plane keys. Only the digest and the masked form are stored."""

from collections.abc import Mapping
from typing import Final

import sqlalchemy as sa

from mauve.core.credential import AppKey
from mauve.stores.catalog import NewKey, TallyCheck
from mauve.stores.catalog.minting import KEYS, key_from, tally
from mauve.stores.catalog.published import publish
from mauve.stores.catalog.schema import apps, keys, projects
from mauve.stores.sql.database import Database

_NOTE_USE: Final = (
    sa.update(keys)
    .where(
        keys.c.key_id == sa.bindparam("of_key_id"),
        keys.c.last_used_at.is_(None) | (keys.c.last_used_at < sa.bindparam("at")),
    )
    .values(last_used_at=sa.bindparam("at"))
)


class Keys:
    def __init__(self, database: Database) -> None:
        self._database = database

    def mint(self, app_id: str, key: NewKey, check: TallyCheck) -> AppKey | None:
        """Store and publish the key; return None if the app has no project in the key's environment."""
        on_its_plane = (projects.c.app_id == app_id) & (projects.c.environment == key.environment)
        place = sa.select(projects.c.public_id, apps.c.org_id).join(apps, apps.c.app_id == projects.c.app_id)
        with self._database.writing() as tx:
            found = tx.execute(place.where(on_its_plane)).one_or_none()
            if found is None:
                return None
            check(tally(tx, found.org_id, key.minted_by, app_id))
            insert_key(tx, app_id, found.public_id, key)
            publish(tx, {keys: keys.c.key_id == key.key_id})
            return key_from(tx.execute(KEYS.where(keys.c.key_id == key.key_id)).one())

    def all_of(self, app_id: str) -> list[AppKey]:
        """Return the app's keys, including revoked ones, oldest first."""
        query = KEYS.where(keys.c.app_id == app_id).order_by(keys.c.created_at, keys.c.key_id)
        with self._database.reading() as tx:
            return [key_from(row) for row in tx.execute(query)]

    def revoke(self, app_id: str, key_id: str) -> AppKey | None:
        """Revoke permanently, and publish that; a revoked key stays unchanged."""
        is_it = (keys.c.key_id == key_id) & (keys.c.app_id == app_id)
        with self._database.writing() as tx:
            if tx.execute(sa.update(keys).where(is_it & keys.c.revoked.is_(False)).values(revoked=True)).rowcount:
                publish(tx, {keys: is_it})
            row = tx.execute(KEYS.where(is_it)).one_or_none()
        return None if row is None else key_from(row)

    def note_uses(self, used_at: Mapping[str, int]) -> None:
        """Record when keys were last used, by id, without publishing anything. An earlier use changes nothing."""
        rows = [{"of_key_id": key_id, "at": at} for key_id, at in sorted(used_at.items())]
        if rows:
            with self._database.writing() as tx:
                tx.execute(_NOTE_USE, rows)


def insert_key(tx: sa.Connection, app_id: str, public_id: str, key: NewKey) -> None:
    """Store a key within the caller's transaction, which publishes it: an app is created with its first key."""
    row = {
        "key_id": key.key_id,
        "app_id": app_id,
        "public_id": public_id,
        "environment": key.environment,
        "kind": key.kind,
        "digest": key.digest,
        "masked": key.masked,
        "revoked": False,
        "created_at": key.created_at,
        "minted_by": key.minted_by,
        "name": key.name,
    }
    tx.execute(sa.insert(keys).values(row))
