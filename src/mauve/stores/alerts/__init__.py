"""Alerts and digests: rules, channels, members who want e-mail, and the outbox of messages.

As in the catalog, every method is one transaction, durable when it returns, and raises `StoreUnavailableError` if the
engine cannot answer. Rules, notices and states are JSON that only `mauve.alerts` reads.

A method that inserts a row locks the organization first, as removing a member does. The row refers to the organization,
and two transactions that lock in different orders would wait for each other.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import sqlalchemy as sa

from mauve.stores.alerts.outbox import Message, Messages, Room, has_room, insert_messages
from mauve.stores.catalog.credentials import lock_organization
from mauve.stores.catalog.schema import alert_channels, alert_rules, alert_settings, alert_subscribers, apps
from mauve.stores.sql.database import Database, SqlStore, records_from
from mauve.stores.sql.dialects import upsert, upsert_replacing


@dataclass(frozen=True, slots=True)
class OrganizationTimes:
    """When an organization may be disturbed, in its own time zone."""

    time_zone: str = "UTC"
    quiet_from: int | None = None  # the hour; None: no quiet hours
    quiet_until: int | None = None
    digest_hour: int = 8


@dataclass(frozen=True, slots=True)
class StoredRule:
    rule_id: str
    org_id: str
    app_id: str
    terms: str  # JSON
    state: str  # JSON
    version: int  # the number of its evaluations
    next_at: int  # of the next evaluation
    created_at: int
    created_by: str  # a user's id


@dataclass(frozen=True, slots=True)
class Channel:
    """A webhook of an organization. Its secrets are sealed."""

    channel_id: str
    org_id: str
    kind: str
    name: str
    masked: str  # the address without its secrets
    sealed: bytes
    created_at: int
    created_by: str


@dataclass(frozen=True, slots=True)
class Subscriber:
    """What a member wants by e-mail."""

    user_id: str
    org_id: str
    digest: str
    alerts: bool
    token: str  # of the links that end it
    next_at: int | None  # of the next digest


class AlertStore:
    def __init__(self, database: Database) -> None:
        self.times = Times(database)
        self.rules = Rules(database)
        self.channels = Channels(database)
        self.subscribers = Subscribers(database)
        self.messages = Messages(database)


class Times(SqlStore):
    def find(self, org_id: str) -> OrganizationTimes:
        """Return the stored times, or the defaults."""
        query = sa.select(alert_settings).where(alert_settings.c.org_id == org_id)
        return self._first(query, OrganizationTimes) or OrganizationTimes()

    def save(self, org_id: str, times: OrganizationTimes) -> None:
        with self._database.writing() as tx:
            tx.execute(upsert_replacing(tx.dialect.name, alert_settings), asdict(times) | {"org_id": org_id})


class Rules(SqlStore):
    def create(self, rule: StoredRule, of_app_max: int, of_organization_max: int) -> bool:
        """Store a rule; return False if the app or the organization has too many."""
        with self._database.writing() as tx:
            lock_organization(tx, rule.org_id)
            app_ids = tx.execute(sa.select(alert_rules.c.app_id).where(alert_rules.c.org_id == rule.org_id))
            of_organization = app_ids.scalars().all()
            if len(of_organization) >= of_organization_max or of_organization.count(rule.app_id) >= of_app_max:
                return False
            tx.execute(sa.insert(alert_rules).values(asdict(rule)))
            return True

    def all_of(self, org_id: str) -> list[StoredRule]:
        """Return the organization's rules, oldest first."""
        query = sa.select(alert_rules).where(alert_rules.c.org_id == org_id)
        return self._records(query.order_by(alert_rules.c.created_at, alert_rules.c.rule_id), StoredRule)

    def delete(self, org_id: str, rule_id: str) -> bool:
        is_it = (alert_rules.c.org_id == org_id) & (alert_rules.c.rule_id == rule_id)
        return self._execute(sa.delete(alert_rules).where(is_it)) == 1

    def due(self, now_ms: int, count_max: int) -> list[StoredRule]:
        """Return due rules of apps that are not archived, the longest due first."""
        of_active_apps = sa.select(alert_rules).join(apps, apps.c.app_id == alert_rules.c.app_id)
        query = of_active_apps.where(apps.c.archived_at.is_(None))
        with self._database.reading() as tx:
            due = query.where(alert_rules.c.next_at <= self._database.time_of(tx, now_ms))
            ordered = due.order_by(alert_rules.c.next_at, alert_rules.c.rule_id)
            return records_from(tx, ordered.limit(count_max), StoredRule)

    def record(self, rule: StoredRule, state: str, next_at: int, messages: Sequence[Message], room: Room) -> bool:
        """Store the new state together with the messages, or change nothing and return False.

        It returns False if the rule was evaluated or deleted since, or if there is no room for the messages.
        """
        changes = {"state": state, "next_at": next_at, "version": rule.version + 1}
        with self._database.writing() as tx:
            if messages and not has_room(tx, messages, room):
                return False
            if tx.execute(_if_unchanged(rule).values(changes)).rowcount == 0:
                return False
            insert_messages(tx, messages)
            return True

    def postpone(self, rule: StoredRule, next_at: int) -> None:
        """Evaluate the rule later; its state stays."""
        self._execute(_if_unchanged(rule).values(next_at=next_at))


def _if_unchanged(rule: StoredRule) -> sa.Update:
    is_it = (alert_rules.c.rule_id == rule.rule_id) & (alert_rules.c.version == rule.version)
    return sa.update(alert_rules).where(is_it)


class Channels(SqlStore):
    def create(self, channel: Channel, count_max: int) -> bool:
        """Store a channel; return False if the organization has too many."""
        with self._database.writing() as tx:
            lock_organization(tx, channel.org_id)
            count = sa.select(sa.func.count()).where(alert_channels.c.org_id == channel.org_id)
            if tx.execute(count).scalar_one() >= count_max:
                return False
            tx.execute(sa.insert(alert_channels).values(asdict(channel)))
            return True

    def all_of(self, org_id: str) -> list[Channel]:
        query = sa.select(alert_channels).where(alert_channels.c.org_id == org_id)
        return self._records(query.order_by(alert_channels.c.created_at, alert_channels.c.channel_id), Channel)

    def find(self, org_id: str, channel_id: str) -> Channel | None:
        return next((channel for channel in self.all_of(org_id) if channel.channel_id == channel_id), None)

    def delete(self, org_id: str, channel_id: str) -> bool:
        is_it = (alert_channels.c.org_id == org_id) & (alert_channels.c.channel_id == channel_id)
        return self._execute(sa.delete(alert_channels).where(is_it)) == 1


class Subscribers(SqlStore):
    def find(self, user_id: str) -> Subscriber | None:
        return self._first(sa.select(alert_subscribers).where(alert_subscribers.c.user_id == user_id), Subscriber)

    def find_token(self, token: str) -> Subscriber | None:
        return self._first(sa.select(alert_subscribers).where(alert_subscribers.c.token == token), Subscriber)

    def add(self, subscriber: Subscriber) -> None:
        """Store what a member wants, unless something is stored for them."""
        with self._database.writing() as tx:
            lock_organization(tx, subscriber.org_id)
            insert = upsert(tx.dialect.name, alert_subscribers).values(asdict(subscriber))
            tx.execute(insert.on_conflict_do_nothing(index_elements=[alert_subscribers.c.user_id]))

    def change(self, user_id: str, **changes: str | bool | int | None) -> None:
        """Change only these fields, since a digest may be recorded at the same time."""
        self._execute(sa.update(alert_subscribers).where(alert_subscribers.c.user_id == user_id).values(changes))

    def reschedule(self, user_id: str, next_at: int) -> None:
        """Move the next digest of a member who still wants one."""
        is_wanted = (alert_subscribers.c.user_id == user_id) & alert_subscribers.c.next_at.is_not(None)
        self._execute(sa.update(alert_subscribers).where(is_wanted).values(next_at=next_at))

    def wanting_alerts(self, org_id: str) -> list[Subscriber]:
        return self._list((alert_subscribers.c.org_id == org_id) & alert_subscribers.c.alerts)

    def wanting_digests(self, org_id: str) -> list[Subscriber]:
        return self._list((alert_subscribers.c.org_id == org_id) & alert_subscribers.c.next_at.is_not(None))

    def due(self, now_ms: int, count_max: int) -> list[Subscriber]:
        """Return the members whose digest is due, the longest due first."""
        with self._database.reading() as tx:
            is_due = alert_subscribers.c.next_at <= self._database.time_of(tx, now_ms)
            query = sa.select(alert_subscribers).where(is_due)
            ordered = query.order_by(alert_subscribers.c.next_at, alert_subscribers.c.user_id).limit(count_max)
            return records_from(tx, ordered, Subscriber)

    def record(self, subscriber: Subscriber, next_at: int, message: Message) -> bool:
        """Store the digest and the time of the next one; return False if that was done or changed since."""
        is_it = alert_subscribers.c.user_id == subscriber.user_id
        is_unchanged = is_it & (alert_subscribers.c.next_at == subscriber.next_at)
        with self._database.writing() as tx:
            lock_organization(tx, subscriber.org_id)
            if tx.execute(sa.update(alert_subscribers).where(is_unchanged).values(next_at=next_at)).rowcount == 0:
                return False
            insert_messages(tx, [message])
            return True

    def _list(self, condition: sa.ColumnElement[bool]) -> list[Subscriber]:
        query = sa.select(alert_subscribers).where(condition).order_by(alert_subscribers.c.user_id)
        return self._records(query, Subscriber)
