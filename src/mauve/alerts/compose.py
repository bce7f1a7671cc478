"""Make messages: the same notice for every receiver, with an id of its own each."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import msgspec

from mauve.alerts.notice import Fact, Notice
from mauve.alerts.parts import AlertParts
from mauve.core.ids import new_id
from mauve.core.organization import Organization
from mauve.stores.alerts import Channel, NewMessage, Room, Subscriber
from mauve.stores.catalog import Member

MESSAGES_PER_HOUR_MAX: Final = 100  # of one organization, digests aside
TO_EACH_PER_HOUR_MAX: Final = 10  # if that is more, so that an alert to very many is sent, too
TESTS_PER_HOUR_MAX: Final = 20  # of those: every member may send them, and must not use up the room for alerts
_HOUR_MS: Final = 3_600_000
_TITLE_CHARACTERS_MAX: Final = 200


class Wish(StrEnum):
    """What a member can end by one click."""

    ALERTS = "alerts"
    DIGEST = "digest"


class Draft(msgspec.Struct, frozen=True):
    """A notice without a receiver."""

    kind: str
    title: str
    reason: str
    facts: Sequence[Fact]
    path: str  # of the page it links to


def room_for_alert(receivers: int, now_ms: int) -> Room:
    """Return the room for an alert to so many receivers."""
    messages_max = max(MESSAGES_PER_HOUR_MAX, TO_EACH_PER_HOUR_MAX * receivers)
    return Room(messages_max, messages_max, now_ms - _HOUR_MS)


def room_for_test(now_ms: int) -> Room:
    return Room(MESSAGES_PER_HOUR_MAX, TESTS_PER_HOUR_MAX, now_ms - _HOUR_MS)


def alert_messages(parts: AlertParts, organization: Organization, draft: Draft, now_ms: int) -> list[NewMessage]:
    """Return a message for every channel of the organization and every member who wants alerts."""
    channels = parts.store.channels.all_of(organization.org_id)
    messages = [to_channel(parts, organization, draft, channel, now_ms) for channel in channels]
    if not parts.can_mail:
        return messages
    members = members_by_id(parts, organization.org_id)
    wanting = parts.store.subscribers.wanting_alerts(organization.org_id)
    return messages + [
        to_member(parts, organization, draft, subscriber, member, now_ms=now_ms)
        for subscriber in wanting
        if (member := members.get(subscriber.user_id)) is not None
    ]


def members_by_id(parts: AlertParts, org_id: str) -> dict[str, Member]:
    return {member.user.user_id: member for member in parts.catalog.users.all_of(org_id)}


def to_channel(
    parts: AlertParts, organization: Organization, draft: Draft, channel: Channel, now_ms: int
) -> NewMessage:
    notice = _notice(parts, organization, draft, now_ms, unsubscribe=None)
    return _message(notice, organization, now_ms, channel.name, channel_id=channel.channel_id)


def to_member(
    parts: AlertParts, organization: Organization, draft: Draft, subscriber: Subscriber, member: Member, *, now_ms: int
) -> NewMessage:
    wish = Wish.DIGEST if draft.kind == "digest" else Wish.ALERTS
    unsubscribe = f"{parts.url}/unsubscribe/{subscriber.token}/{wish}"
    notice = _notice(parts, organization, draft, now_ms, unsubscribe=unsubscribe)
    return _message(notice, organization, now_ms, member.user.email, user_id=member.user.user_id)


def _notice(
    parts: AlertParts, organization: Organization, draft: Draft, now_ms: int, unsubscribe: str | None
) -> Notice:
    return Notice(
        id=new_id("msg", parts.randomness),
        kind=draft.kind,
        title=draft.title[:_TITLE_CHARACTERS_MAX],
        reason=draft.reason,
        facts=[fact._replace(link=fact.link and parts.url + fact.link) for fact in draft.facts],
        link=parts.url + draft.path,
        unsubscribe=unsubscribe,
        sent_for=organization.name,
        at=now_ms,
    )


def _message(
    notice: Notice,
    organization: Organization,
    now_ms: int,
    receiver: str,
    *,
    channel_id: str | None = None,
    user_id: str | None = None,
) -> NewMessage:
    return NewMessage(
        message_id=notice.id,
        org_id=organization.org_id,
        kind=notice.kind,
        channel_id=channel_id,
        user_id=user_id,
        receiver=receiver,
        notice=msgspec.json.encode(notice).decode(),
        created_at=now_ms,
    )
