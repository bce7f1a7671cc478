"""Rules, and the state each of them is in."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from mauve.stores.alerts import NewMessage, Room, StoredRule
from mauve.stores.alerts.messages import has_room, insert_messages
from mauve.stores.catalog.minting import lock_organization
from mauve.stores.catalog.schema import alert_rules, apps
from mauve.stores.sql.database import Database


class SqlRules:
    def __init__(self, database: Database) -> None:
        self._database = database

    def create(self, rule: StoredRule, of_app_max: int, of_organization_max: int) -> bool:
        with self._database.writing() as tx:
            lock_organization(tx, rule.org_id)
            of_organization = alert_rules.c.org_id == rule.org_id
            of_app = of_organization & (alert_rules.c.app_id == rule.app_id)
            if _count(tx, of_organization) >= of_organization_max or _count(tx, of_app) >= of_app_max:
                return False
            row = {column.name: getattr(rule, column.name) for column in alert_rules.c}
            tx.execute(sa.insert(alert_rules).values(row))
            return True

    def all_of(self, org_id: str) -> list[StoredRule]:
        query = sa.select(alert_rules).where(alert_rules.c.org_id == org_id)
        with self._database.reading() as tx:
            rows = tx.execute(query.order_by(alert_rules.c.created_at, alert_rules.c.rule_id))
            return [_rule_from(row) for row in rows]

    def delete(self, org_id: str, rule_id: str) -> bool:
        is_it = (alert_rules.c.org_id == org_id) & (alert_rules.c.rule_id == rule_id)
        with self._database.writing() as tx:
            return tx.execute(sa.delete(alert_rules).where(is_it)).rowcount == 1

    def due(self, now_ms: int, count_max: int) -> list[StoredRule]:
        with self._database.reading() as tx:
            now_ms = self._database.time_of(tx, now_ms)
            query = (
                sa.select(alert_rules)
                .join(apps, apps.c.app_id == alert_rules.c.app_id)
                .where(alert_rules.c.next_at <= now_ms, apps.c.archived_at.is_(None))
                .order_by(alert_rules.c.next_at, alert_rules.c.rule_id)
                .limit(count_max)
            )
            return [_rule_from(row) for row in tx.execute(query)]

    def record(self, judged: StoredRule, state: str, next_at: int, messages: Sequence[NewMessage], room: Room) -> bool:
        with self._database.writing() as tx:
            if messages:
                lock_organization(tx, judged.org_id)  # Others must not take the same room.
                if not has_room(tx, messages, room):
                    return False
            changes = {"state": state, "next_at": next_at, "version": judged.version + 1}
            if tx.execute(sa.update(alert_rules).where(_is_unchanged(judged)).values(changes)).rowcount == 0:
                return False
            insert_messages(tx, messages)
            return True

    def postpone(self, judged: StoredRule, next_at: int) -> None:
        with self._database.writing() as tx:
            tx.execute(sa.update(alert_rules).where(_is_unchanged(judged)).values(next_at=next_at))


def _is_unchanged(judged: StoredRule) -> sa.ColumnElement[bool]:
    return (alert_rules.c.rule_id == judged.rule_id) & (alert_rules.c.version == judged.version)


def _count(tx: sa.Connection, condition: sa.ColumnElement[bool]) -> int:
    return tx.execute(sa.select(sa.func.count()).select_from(alert_rules).where(condition)).scalar_one()


def _rule_from(row: sa.Row[Any]) -> StoredRule:
    return StoredRule(**row._mapping)  # noqa: SLF001 - SQLAlchemy's public name for it
