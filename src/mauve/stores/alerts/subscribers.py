"""What members want by e-mail, and when their next digest is due.

A method that inserts a row locks the organization first, as removing a member does. The row refers to the organization,
and two transactions that lock in different orders would wait for each other.
"""

from typing import Any

import sqlalchemy as sa

from mauve.stores.alerts import NewMessage, Subscriber
from mauve.stores.alerts.messages import insert_messages
from mauve.stores.catalog.minting import lock_organization
from mauve.stores.catalog.schema import alert_subscribers
from mauve.stores.sql.database import Database
from mauve.stores.sql.dialects import upsert


class SqlSubscribers:
    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, user_id: str) -> Subscriber | None:
        return self._one(alert_subscribers.c.user_id == user_id)

    def find_token(self, token: str) -> Subscriber | None:
        return self._one(alert_subscribers.c.token == token)

    def save(self, subscriber: Subscriber) -> None:
        changes = {"digest": subscriber.digest, "alerts": subscriber.alerts, "next_at": subscriber.next_at}
        with self._database.writing() as tx:
            lock_organization(tx, subscriber.org_id)
            insert = upsert(tx.dialect.name, alert_subscribers).values(_row_of(subscriber))
            tx.execute(insert.on_conflict_do_update(index_elements=[alert_subscribers.c.user_id], set_=changes))

    def add(self, subscriber: Subscriber) -> None:
        with self._database.writing() as tx:
            lock_organization(tx, subscriber.org_id)
            insert = upsert(tx.dialect.name, alert_subscribers).values(_row_of(subscriber))
            tx.execute(insert.on_conflict_do_nothing(index_elements=[alert_subscribers.c.user_id]))

    def save_digest(self, user_id: str, digest: str, next_at: int | None) -> None:
        self._update(alert_subscribers.c.user_id == user_id, {"digest": digest, "next_at": next_at})

    def end_alerts(self, user_id: str) -> None:
        self._update(alert_subscribers.c.user_id == user_id, {"alerts": False})

    def wanting_alerts(self, org_id: str) -> list[Subscriber]:
        return self._list(org_id, alert_subscribers.c.alerts)

    def wanting_digests(self, org_id: str) -> list[Subscriber]:
        return self._list(org_id, alert_subscribers.c.next_at.is_not(None))

    def reschedule(self, user_id: str, next_at: int) -> None:
        is_it = (alert_subscribers.c.user_id == user_id) & alert_subscribers.c.next_at.is_not(None)
        self._update(is_it, {"next_at": next_at})

    def due(self, now_ms: int, count_max: int) -> list[Subscriber]:
        with self._database.reading() as tx:
            is_due = alert_subscribers.c.next_at <= self._database.time_of(tx, now_ms)
            query = sa.select(alert_subscribers).where(is_due)
            ordered = query.order_by(alert_subscribers.c.next_at, alert_subscribers.c.user_id)
            return [_subscriber_from(row) for row in tx.execute(ordered.limit(count_max))]

    def record(self, subscriber: Subscriber, next_at: int, message: NewMessage) -> bool:
        is_it = alert_subscribers.c.user_id == subscriber.user_id
        is_unchanged = is_it & (alert_subscribers.c.next_at == subscriber.next_at)
        with self._database.writing() as tx:
            lock_organization(tx, subscriber.org_id)
            if tx.execute(sa.update(alert_subscribers).where(is_unchanged).values(next_at=next_at)).rowcount == 0:
                return False
            insert_messages(tx, [message])
            return True

    def _update(self, condition: sa.ColumnElement[bool], changes: dict[str, Any]) -> None:
        with self._database.writing() as tx:
            tx.execute(sa.update(alert_subscribers).where(condition).values(changes))

    def _one(self, condition: sa.ColumnElement[bool]) -> Subscriber | None:
        with self._database.reading() as tx:
            row = tx.execute(sa.select(alert_subscribers).where(condition)).one_or_none()
        return None if row is None else _subscriber_from(row)

    def _list(self, org_id: str, condition: sa.ColumnElement[bool]) -> list[Subscriber]:
        query = sa.select(alert_subscribers).where(alert_subscribers.c.org_id == org_id, condition)
        with self._database.reading() as tx:
            return [_subscriber_from(row) for row in tx.execute(query.order_by(alert_subscribers.c.user_id))]


def _row_of(subscriber: Subscriber) -> dict[str, Any]:
    return {column.name: getattr(subscriber, column.name) for column in alert_subscribers.c}


def _subscriber_from(row: sa.Row[Any]) -> Subscriber:
    return Subscriber(**row._mapping)  # noqa: SLF001 - SQLAlchemy's public name for it
