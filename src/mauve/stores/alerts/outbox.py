"""The outbox of messages, and the history of what it sent."""

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

import sqlalchemy as sa

from mauve.stores.catalog.credentials import lock_organization
from mauve.stores.catalog.schema import alert_messages
from mauve.stores.sql.database import SqlStore, records_from

_DIGEST: Final = "digest"  # The number of members limits the number of these.
_COLUMNS: Final = [column for column in alert_messages.c if column.name != "claimed_until"]
_IS_DONE: Final = alert_messages.c.state != "due"


class MessageState(StrEnum):
    DUE = "due"
    SENT = "sent"
    FAILED = "failed"  # and not retried


@dataclass(frozen=True, slots=True)
class Message:
    """A notice for one receiver: either a channel or a member."""

    message_id: str
    org_id: str
    kind: str
    channel_id: str | None
    user_id: str | None
    receiver: str  # as the history shows it
    notice: str  # JSON
    created_at: int
    state: str = MessageState.DUE
    attempts: int = 0  # started, the current one included
    due_at: int = 0  # set when it is stored
    done_at: int | None = None
    failure: str | None = None  # of the last attempt


@dataclass(frozen=True, slots=True)
class Room:
    """The most messages an organization may cause since a moment, digests excluded, and the most of one kind."""

    messages_max: int
    of_kind_max: int
    since: int


class Messages(SqlStore):
    """A message is claimed before it is sent; if the sender dies, the claim expires, and another sends it."""

    def add(self, messages: Sequence[Message], room: Room) -> bool:
        """Store messages; return False if there is no room for them."""
        with self._database.writing() as tx:
            if not has_room(tx, messages, room):
                return False
            insert_messages(tx, messages)
            return True

    def recent(self, org_id: str, count_max: int) -> list[Message]:
        """Return the organization's messages, newest first."""
        query = sa.select(*_COLUMNS).where(alert_messages.c.org_id == org_id)
        newest_first = query.order_by(alert_messages.c.created_at.desc(), alert_messages.c.message_id)
        return self._records(newest_first.limit(count_max), Message)

    def claim(
        self, now_ms: int, claim_ms: int, count_max: int, of_organization_max: int, mail_until: int | None = None
    ) -> list[Message]:
        """Claim due messages for this long, and only a few of each organization.

        The first of every organization comes before the second of any, the longest due first. Of those to members,
        claim only the ones created up to `mail_until`; None: all.
        """
        is_ours: sa.ColumnElement[bool] = sa.true()
        if mail_until is not None:
            is_ours = alert_messages.c.user_id.is_(None) | (alert_messages.c.created_at <= mail_until)
        with self._database.reading() as tx:
            is_due = _is_due(self._database.time_of(tx, now_ms)) & is_ours
            if tx.execute(sa.select(alert_messages.c.message_id).where(is_due).limit(1)).first() is None:
                return []  # as nearly always: take no write lock
        with self._database.writing() as tx:
            now_ms = self._database.time_of(tx, now_ms)
            is_due = _is_due(now_ms) & is_ours
            # Two machines lock rows in the same order.
            chosen = sorted(tx.execute(_fair_choice(is_due, of_organization_max).limit(count_max)).scalars())
            claim = sa.update(alert_messages).where(is_due).returning(*_COLUMNS)
            claim = claim.values(claimed_until=now_ms + claim_ms, attempts=alert_messages.c.attempts + 1)
            claims = [records_from(tx, claim.where(alert_messages.c.message_id == each), Message) for each in chosen]
        return sorted(itertools.chain(*claims), key=lambda message: (message.due_at, message.message_id))

    def finish(self, message: Message, state: MessageState, at: int, failure: str | None, notice: str) -> None:
        """Record that a message was sent, or never will be, with the part of its notice that the history keeps."""
        self._update(message, {"state": state, "done_at": at, "failure": failure, "notice": notice})

    def retry(self, message: Message, due_at: int, failure: str) -> None:
        """Release the claim until the next attempt."""
        self._update(message, {"due_at": due_at, "claimed_until": 0, "failure": failure})

    def count_waiting(self) -> int:
        """Return the number of messages that are neither sent nor given up."""
        return int(self._scalar(sa.select(sa.func.count()).select_from(alert_messages).where(~_IS_DONE)))

    def prune(self, before: int, of_organization_max: int) -> None:
        """Delete finished messages created before a moment, and the oldest of an organization that has too many."""
        counts = sa.select(alert_messages.c.org_id).group_by(alert_messages.c.org_id)
        with self._database.writing() as tx:
            tx.execute(sa.delete(alert_messages).where(_IS_DONE, alert_messages.c.created_at < before))
            for org_id in tx.execute(counts.having(sa.func.count() > of_organization_max)).scalars().all():
                own = alert_messages.c.org_id == org_id
                newest = sa.select(alert_messages.c.created_at).where(own).order_by(alert_messages.c.created_at.desc())
                oldest_kept = newest.offset(of_organization_max - 1).limit(1).scalar_subquery()
                tx.execute(sa.delete(alert_messages).where(own, _IS_DONE, alert_messages.c.created_at < oldest_kept))

    def _update(self, message: Message, changes: dict[str, Any]) -> None:
        # If the message was claimed again since, the later claim decides.
        is_ours = alert_messages.c.attempts == message.attempts
        update = sa.update(alert_messages).where(alert_messages.c.message_id == message.message_id, is_ours)
        self._execute(update.values(changes))


def has_room(tx: sa.Connection, messages: Sequence[Message], room: Room) -> bool:
    """Return whether an organization may cause these messages of one kind. Lock it: others must not take the room."""
    org_id, kind = messages[0].org_id, messages[0].kind
    lock_organization(tx, org_id)
    own = (alert_messages.c.org_id == org_id) & (alert_messages.c.kind != _DIGEST)
    recent = sa.select(alert_messages.c.kind, sa.func.count()).where(own, alert_messages.c.created_at > room.since)
    kinds: dict[str, int] = {row.kind: row[1] for row in tx.execute(recent.group_by(alert_messages.c.kind))}
    in_all, of_kind = sum(kinds.values()) + len(messages), kinds.get(kind, 0) + len(messages)
    return in_all <= room.messages_max and of_kind <= room.of_kind_max


def insert_messages(tx: sa.Connection, messages: Sequence[Message]) -> None:
    """Store messages, due now, within the caller's transaction."""
    rows = [asdict(message) | {"due_at": message.created_at, "claimed_until": 0} for message in messages]
    if rows:
        tx.execute(sa.insert(alert_messages), rows)


def _is_due(now_ms: int) -> sa.ColumnElement[bool]:
    return ~_IS_DONE & (alert_messages.c.due_at <= now_ms) & (alert_messages.c.claimed_until <= now_ms)


def _fair_choice(is_due: sa.ColumnElement[bool], of_organization_max: int) -> sa.Select[tuple[str]]:
    order = (alert_messages.c.due_at, alert_messages.c.message_id)
    place = sa.func.row_number().over(partition_by=alert_messages.c.org_id, order_by=order).label("place")
    ranked = sa.select(*order, place).where(is_due).subquery()
    few = sa.select(ranked.c.message_id).where(ranked.c.place <= of_organization_max)
    return few.order_by(ranked.c.place, ranked.c.due_at, ranked.c.message_id)
