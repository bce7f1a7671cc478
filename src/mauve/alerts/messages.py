"""Make messages: the same notice for every receiver, each with its own id."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from mauve.access.vault import Vault
from mauve.alerts.channels import Draft, Notice, Sender
from mauve.alerts.schedule import HOUR_MS
from mauve.core.clock import Clock
from mauve.core.ids import Randomness, new_id
from mauve.core.organization import Organization
from mauve.query.numbers import Numbers
from mauve.stores.alerts import AlertStore, Channel, Subscriber
from mauve.stores.alerts.outbox import Message, Room
from mauve.stores.catalog.catalog import Catalog
from mauve.stores.ledger.deliveries import DeliveryReader
from mauve.stores.ledger.usage import IngestStatsReader

MESSAGES_PER_HOUR_MAX: Final = 100  # of one organization, digests excluded
TO_EACH_PER_HOUR_MAX: Final = 10  # if that is more, so that an alert to very many receivers is sent, too
TESTS_PER_HOUR_MAX: Final = 20  # of those: every member may send tests, and must not use up the room for alerts
_TITLE_CHARACTERS_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class AlertParts:
    """The dependencies of alerts and digests."""

    store: AlertStore
    catalog: Catalog
    vault: Vault
    numbers: Numbers
    ingest_stats: IngestStatsReader
    deliveries: DeliveryReader
    senders: Mapping[str, Sender]  # by the kind of channel; none for "email" unless it is set up
    clock: Clock
    randomness: Randomness
    url: str  # of the dashboard, for links
    allow_private: bool
    is_on: bool  # False: this machine evaluates no rules and sends nothing

    @property
    def can_mail(self) -> bool:
        return "email" in self.senders


class Wish(StrEnum):
    """What a member can end with one click."""

    ALERTS = "alerts"
    DIGEST = "digest"


def room_for_alert(receivers: int, now_ms: int) -> Room:
    messages_max = max(MESSAGES_PER_HOUR_MAX, TO_EACH_PER_HOUR_MAX * receivers)
    return Room(messages_max, messages_max, now_ms - HOUR_MS)


def room_for_test(now_ms: int) -> Room:
    return Room(MESSAGES_PER_HOUR_MAX, TESTS_PER_HOUR_MAX, now_ms - HOUR_MS)


def alert_messages(parts: AlertParts, organization: Organization, draft: Draft, now_ms: int) -> list[Message]:
    """Return a message for every channel of the organization and every member who wants alerts."""
    org_id = organization.org_id
    messages = [to_channel(parts, organization, draft, each, now_ms) for each in parts.store.channels.all_of(org_id)]
    if not parts.can_mail:
        return messages
    return messages + to_members(parts, organization, draft, parts.store.subscribers.wanting_alerts(org_id), now_ms)


def to_channel(parts: AlertParts, organization: Organization, draft: Draft, channel: Channel, now_ms: int) -> Message:
    return _message(parts, organization, draft, now_ms, _Receiver(channel.name, channel_id=channel.channel_id))


def to_members(
    parts: AlertParts, organization: Organization, draft: Draft, subscribers: Iterable[Subscriber], now_ms: int
) -> list[Message]:
    """Return a message for each subscriber who is still a member."""
    emails = {each.user.user_id: each.user.email for each in parts.catalog.users.all_of(organization.org_id)}
    wish = Wish.DIGEST if draft.kind == Wish.DIGEST else Wish.ALERTS
    receivers = [
        _Receiver(emails[each.user_id], None, each.user_id, f"{parts.url}/unsubscribe/{each.token}/{wish}")
        for each in subscribers
        if each.user_id in emails
    ]
    return [_message(parts, organization, draft, now_ms, receiver) for receiver in receivers]


class _Receiver(NamedTuple):
    name: str  # as the history shows it
    channel_id: str | None = None
    user_id: str | None = None
    unsubscribe: str | None = None


def _message(parts: AlertParts, organization: Organization, draft: Draft, now_ms: int, receiver: _Receiver) -> Message:
    notice = Notice(
        id=new_id("msg", parts.randomness),
        kind=draft.kind,
        title=draft.title[:_TITLE_CHARACTERS_MAX],
        reason=draft.reason,
        facts=[fact._replace(link=fact.link and parts.url + fact.link) for fact in draft.facts],
        link=parts.url + draft.link,
        unsubscribe=receiver.unsubscribe,
        sent_for=organization.name,
        at=now_ms,
    )
    return Message(
        message_id=notice.id,
        org_id=organization.org_id,
        kind=notice.kind,
        channel_id=receiver.channel_id,
        user_id=receiver.user_id,
        receiver=receiver.name,
        notice=msgspec.json.encode(notice).decode(),
        created_at=now_ms,
    )
