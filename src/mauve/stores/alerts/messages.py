"""The outbox, and the history of what it sent."""

from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa

from mauve.stores.alerts import Message, MessageState, NewMessage, Room
from mauve.stores.catalog.minting import lock_organization
from mauve.stores.catalog.schema import alert_messages
from mauve.stores.sql.database import Database

_DIGEST: Final = "digest"  # Its number is bounded by that of the members.


class SqlMessages:
    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, messages: Sequence[NewMessage], room: Room) -> bool:
        with self._database.writing() as tx:
            lock_organization(tx, messages[0].org_id)
            if not has_room(tx, messages, room):
                return False
            insert_messages(tx, messages)
            return True

    def recent(self, org_id: str, count_max: int) -> list[Message]:
        query = sa.select(alert_messages).where(alert_messages.c.org_id == org_id)
        newest_first = query.order_by(alert_messages.c.created_at.desc(), alert_messages.c.message_id).limit(count_max)
        with self._database.reading() as tx:
            return [_message_from(row) for row in tx.execute(newest_first)]

    def claim(
        self, now_ms: int, claim_ms: int, count_max: int, of_organization_max: int, mail_until: int | None = None
    ) -> list[Message]:
        is_ours = _is_sendable(mail_until)
        with self._database.reading() as tx:
            is_due = _is_due(self._database.time_of(tx, now_ms)) & is_ours
            if tx.execute(sa.select(alert_messages.c.message_id).where(is_due).limit(1)).first() is None:
                return []  # as nearly always: take no write lock
        with self._database.writing() as tx:
            now_ms = self._database.time_of(tx, now_ms)
            order = (alert_messages.c.due_at, alert_messages.c.message_id)
            place = sa.func.row_number().over(partition_by=alert_messages.c.org_id, order_by=order).label("place")
            due = sa.select(alert_messages.c.message_id, alert_messages.c.due_at, place)
            ranked = due.where(_is_due(now_ms), is_ours).subquery()
            few = sa.select(ranked.c.message_id).where(ranked.c.place <= of_organization_max)
            fair = few.order_by(ranked.c.place, ranked.c.due_at, ranked.c.message_id).limit(count_max)
            chosen = sorted(tx.execute(fair).scalars())  # Two machines lock rows in the same order.
            changes = {"claimed_until": now_ms + claim_ms, "attempts": alert_messages.c.attempts + 1}
            claimed = [each for each in chosen if tx.execute(_claim(each, now_ms).values(changes)).rowcount]
            query = sa.select(alert_messages).where(alert_messages.c.message_id.in_(claimed)).order_by(*order)
            return [_message_from(row) for row in tx.execute(query)]

    def finish(self, message: Message, state: MessageState, at: int, failure: str | None, notice: str) -> None:
        changes = {"state": state, "done_at": at, "failure": failure, "notice": notice}
        self._update(message, changes)

    def retry(self, message: Message, due_at: int, failure: str) -> None:
        self._update(message, {"due_at": due_at, "claimed_until": 0, "failure": failure})

    def count_waiting(self) -> int:
        waiting = sa.select(sa.func.count()).where(alert_messages.c.state == MessageState.DUE)
        with self._database.reading() as tx:
            return tx.execute(waiting).scalar_one()

    def prune(self, before: int, of_organization_max: int) -> None:
        is_done = alert_messages.c.state != MessageState.DUE
        with_too_many = (
            sa.select(alert_messages.c.org_id)
            .group_by(alert_messages.c.org_id)
            .having(sa.func.count() > of_organization_max)
        )
        with self._database.writing() as tx:
            tx.execute(sa.delete(alert_messages).where(is_done, alert_messages.c.created_at < before))
            for org_id in list(tx.execute(with_too_many).scalars()):
                own = alert_messages.c.org_id == org_id
                newest = sa.select(alert_messages.c.created_at).where(own).order_by(alert_messages.c.created_at.desc())
                oldest_kept = newest.offset(of_organization_max - 1).limit(1).scalar_subquery()
                tx.execute(sa.delete(alert_messages).where(own, is_done, alert_messages.c.created_at < oldest_kept))

    def _update(self, message: Message, changes: dict[str, Any]) -> None:
        is_it = alert_messages.c.message_id == message.message_id
        # The later claim decides: this one has ended.
        is_ours = is_it & (alert_messages.c.attempts == message.attempts)
        with self._database.writing() as tx:
            tx.execute(sa.update(alert_messages).where(is_ours).values(changes))


def insert_messages(tx: sa.Connection, messages: Sequence[NewMessage]) -> None:
    """Store messages, due now, within the caller's transaction."""
    for message in messages:
        row = {
            "message_id": message.message_id,
            "org_id": message.org_id,
            "kind": message.kind,
            "channel_id": message.channel_id,
            "user_id": message.user_id,
            "receiver": message.receiver,
            "notice": message.notice,
            "state": MessageState.DUE,
            "attempts": 0,
            "due_at": message.created_at,
            "claimed_until": 0,
            "created_at": message.created_at,
        }
        tx.execute(sa.insert(alert_messages).values(row))


def has_room(tx: sa.Connection, messages: Sequence[NewMessage], room: Room) -> bool:
    """Return whether an organization may cause these messages of one kind. Lock the organization first."""
    own = (alert_messages.c.org_id == messages[0].org_id) & (alert_messages.c.kind != _DIGEST)
    recent = sa.select(alert_messages.c.kind, sa.func.count()).where(own, alert_messages.c.created_at > room.since)
    kinds: dict[str, int] = {row.kind: row[1] for row in tx.execute(recent.group_by(alert_messages.c.kind))}
    in_all, of_kind = sum(kinds.values()) + len(messages), kinds.get(messages[0].kind, 0) + len(messages)
    return in_all <= room.messages_max and of_kind <= room.of_kind_max


def _is_due(now_ms: int) -> sa.ColumnElement[bool]:
    is_waiting = (alert_messages.c.state == MessageState.DUE) & (alert_messages.c.due_at <= now_ms)
    return is_waiting & (alert_messages.c.claimed_until <= now_ms)


def _is_sendable(mail_until: int | None) -> sa.ColumnElement[bool]:
    if mail_until is None:
        return sa.true()
    return alert_messages.c.user_id.is_(None) | (alert_messages.c.created_at <= mail_until)


def _claim(message_id: str, now_ms: int) -> sa.Update:
    return sa.update(alert_messages).where(alert_messages.c.message_id == message_id, _is_due(now_ms))


def _message_from(row: sa.Row[Any]) -> Message:
    return Message(
        message_id=row.message_id,
        org_id=row.org_id,
        kind=row.kind,
        channel_id=row.channel_id,
        user_id=row.user_id,
        receiver=row.receiver,
        notice=row.notice,
        created_at=row.created_at,
        state=MessageState(row.state),
        attempts=row.attempts,
        due_at=row.due_at,
        done_at=row.done_at,
        failure=row.failure,
    )
