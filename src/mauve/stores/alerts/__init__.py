"""Alerts and digests: rules, channels, members who want e-mail, and the outbox of messages.

As in the catalog, every method is one transaction, durable when it returns, and raises `StoreUnavailableError` if the
engine cannot answer. Rules, notices and states are JSON that only `mauve.alerts` reads.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


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
    version: int  # the count of its judgments
    next_at: int  # when to judge it again
    created_at: int
    created_by: str  # a user's id


@dataclass(frozen=True, slots=True)
class Channel:
    """A webhook of an organization. What is secret of it is sealed."""

    channel_id: str
    org_id: str
    kind: str
    name: str
    masked: str  # the address without what is secret in it
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


class MessageState(StrEnum):
    DUE = "due"
    SENT = "sent"
    FAILED = "failed"  # and not tried again


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A notice for one receiver: either a channel or a member."""

    message_id: str
    org_id: str
    kind: str
    channel_id: str | None
    user_id: str | None
    receiver: str  # as the history shows it
    notice: str  # JSON
    created_at: int


@dataclass(frozen=True, slots=True)
class Message(NewMessage):
    state: MessageState
    attempts: int  # begun, the current one included
    due_at: int
    done_at: int | None
    failure: str | None  # of the last attempt


@dataclass(frozen=True, slots=True)
class Room:
    """How many messages an organization may cause since a moment, digests aside, and how many of the same kind."""

    messages_max: int
    of_kind_max: int
    since: int


class Times(Protocol):
    def find(self, org_id: str) -> OrganizationTimes:
        """Return the stored times, or the defaults."""
        ...

    def save(self, org_id: str, times: OrganizationTimes) -> None: ...


class Rules(Protocol):
    def create(self, rule: StoredRule, of_app_max: int, of_organization_max: int) -> bool:
        """Store a rule; return False if there are as many as may be."""
        ...

    def all_of(self, org_id: str) -> list[StoredRule]:
        """Return the organization's rules, oldest first."""
        ...

    def delete(self, org_id: str, rule_id: str) -> bool: ...

    def due(self, now_ms: int, count_max: int) -> list[StoredRule]:
        """Return rules of apps that are not archived, the longest due first."""
        ...

    def record(self, judged: StoredRule, state: str, next_at: int, messages: Sequence[NewMessage], room: Room) -> bool:
        """Store the new state together with the messages, or change nothing and return False.

        That is if the rule was judged or deleted since, or if there is no room for the messages.
        """
        ...

    def postpone(self, judged: StoredRule, next_at: int) -> None:
        """Judge the rule later; its state stays."""
        ...


class Channels(Protocol):
    def create(self, channel: Channel, count_max: int) -> bool:
        """Store a channel; return False if the organization has as many as may be."""
        ...

    def all_of(self, org_id: str) -> list[Channel]: ...

    def find(self, org_id: str, channel_id: str) -> Channel | None: ...

    def delete(self, org_id: str, channel_id: str) -> bool: ...


class Subscribers(Protocol):
    def find(self, user_id: str) -> Subscriber | None: ...

    def find_token(self, token: str) -> Subscriber | None: ...

    def save(self, subscriber: Subscriber) -> None:
        """Store what a member wants. The token of the first time stays."""
        ...

    def add(self, subscriber: Subscriber) -> None:
        """Store what a member wants, unless something is stored for them."""
        ...

    def save_digest(self, user_id: str, digest: str, next_at: int | None) -> None:
        """Change only the digest that a member wants."""
        ...

    def end_alerts(self, user_id: str) -> None:
        """Note that a member wants no more alerts, and change nothing else."""
        ...

    def wanting_alerts(self, org_id: str) -> list[Subscriber]: ...

    def wanting_digests(self, org_id: str) -> list[Subscriber]: ...

    def reschedule(self, user_id: str, next_at: int) -> None:
        """Move the next digest of a member who still wants one."""
        ...

    def due(self, now_ms: int, count_max: int) -> list[Subscriber]:
        """Return the members whose digest is due, the longest due first."""
        ...

    def record(self, subscriber: Subscriber, next_at: int, message: NewMessage) -> bool:
        """Store the digest and when the next one is due; return False if that was already done or changed."""
        ...


class Messages(Protocol):
    """The outbox. A message is claimed before it is sent; if the sender dies, the claim ends and another sends it."""

    def add(self, messages: Sequence[NewMessage], room: Room) -> bool:
        """Store messages; return False if there is no room for them."""
        ...

    def recent(self, org_id: str, count_max: int) -> list[Message]:
        """Return the organization's messages, newest first."""
        ...

    def claim(
        self, now_ms: int, claim_ms: int, count_max: int, of_organization_max: int, mail_until: int | None = None
    ) -> list[Message]:
        """Claim messages that are due, for this long, and few of each organization.

        The first of every organization comes before the second of any, the longest due first. Of those to members,
        claim only the ones created up to `mail_until`; None: all.
        """
        ...

    def finish(self, message: Message, state: MessageState, at: int, failure: str | None, notice: str) -> None:
        """Note that a message was sent, or never will be, with what the history keeps of its notice."""
        ...

    def retry(self, message: Message, due_at: int, failure: str) -> None:
        """Release the claim until the next attempt."""
        ...

    def count_waiting(self) -> int:
        """Return how many messages are neither sent nor given up."""
        ...

    def prune(self, before: int, of_organization_max: int) -> None:
        """Delete finished messages that are older, and each organization's oldest beyond a number."""
        ...


@dataclass(frozen=True, slots=True)
class AlertStore:
    times: Times
    rules: Rules
    channels: Channels
    subscribers: Subscribers
    messages: Messages
