"""The store of alerts, assembled, with the settings and the channels of organizations."""

from typing import Any

import sqlalchemy as sa

from mauve.stores.alerts import AlertStore, Channel, OrganizationTimes
from mauve.stores.alerts.messages import SqlMessages
from mauve.stores.alerts.rules import SqlRules
from mauve.stores.alerts.subscribers import SqlSubscribers
from mauve.stores.catalog.minting import lock_organization
from mauve.stores.catalog.schema import alert_channels, alert_settings
from mauve.stores.sql.database import Database
from mauve.stores.sql.dialects import upsert


class SqlTimes:
    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, org_id: str) -> OrganizationTimes:
        with self._database.reading() as tx:
            row = tx.execute(sa.select(alert_settings).where(alert_settings.c.org_id == org_id)).one_or_none()
        if row is None:
            return OrganizationTimes()
        return OrganizationTimes(row.time_zone, row.quiet_from, row.quiet_until, row.digest_hour)

    def save(self, org_id: str, times: OrganizationTimes) -> None:
        changes = {
            "time_zone": times.time_zone,
            "quiet_from": times.quiet_from,
            "quiet_until": times.quiet_until,
            "digest_hour": times.digest_hour,
        }
        with self._database.writing() as tx:
            insert = upsert(tx.dialect.name, alert_settings).values({"org_id": org_id} | changes)
            tx.execute(insert.on_conflict_do_update(index_elements=[alert_settings.c.org_id], set_=changes))


class SqlChannels:
    def __init__(self, database: Database) -> None:
        self._database = database

    def create(self, channel: Channel, count_max: int) -> bool:
        with self._database.writing() as tx:
            lock_organization(tx, channel.org_id)
            count = sa.select(sa.func.count()).where(alert_channels.c.org_id == channel.org_id)
            if tx.execute(count).scalar_one() >= count_max:
                return False
            row = {column.name: getattr(channel, column.name) for column in alert_channels.c}
            tx.execute(sa.insert(alert_channels).values(row))
            return True

    def all_of(self, org_id: str) -> list[Channel]:
        query = sa.select(alert_channels).where(alert_channels.c.org_id == org_id)
        with self._database.reading() as tx:
            rows = tx.execute(query.order_by(alert_channels.c.created_at, alert_channels.c.channel_id))
            return [_channel_from(row) for row in rows]

    def find(self, org_id: str, channel_id: str) -> Channel | None:
        with self._database.reading() as tx:
            row = tx.execute(sa.select(alert_channels).where(_is(org_id, channel_id))).one_or_none()
        return None if row is None else _channel_from(row)

    def delete(self, org_id: str, channel_id: str) -> bool:
        with self._database.writing() as tx:
            return tx.execute(sa.delete(alert_channels).where(_is(org_id, channel_id))).rowcount == 1


def _is(org_id: str, channel_id: str) -> sa.ColumnElement[bool]:
    return (alert_channels.c.org_id == org_id) & (alert_channels.c.channel_id == channel_id)


def _channel_from(row: sa.Row[Any]) -> Channel:
    return Channel(**row._mapping)  # noqa: SLF001 - SQLAlchemy's public name for it


def sql_alert_store(database: Database) -> AlertStore:
    return AlertStore(
        times=SqlTimes(database),
        rules=SqlRules(database),
        channels=SqlChannels(database),
        subscribers=SqlSubscribers(database),
        messages=SqlMessages(database),
    )
