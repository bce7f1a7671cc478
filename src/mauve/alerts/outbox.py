"""Make messages, and send what is in the outbox: claim, send, record the result.

A process that dies after sending and before recording it leaves the claim. It expires after `CLAIM_MS`, and the message
is sent again, with the same id: at least once, never lost.
"""

import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec
import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from mauve.access.vault import Vault, VaultError, channel_row
from mauve.alerts.channels import NOTICE, TARGET, Draft, Notice, Sender, SendFailed, Target
from mauve.alerts.schedule import HOUR_MS, MINUTE_MS, Cadence, retry_at
from mauve.core.clock import Clock
from mauve.core.ids import Randomness, new_id
from mauve.core.organization import Organization
from mauve.query.numbers import Numbers
from mauve.stores.alerts import AlertStore, Channel, Subscriber
from mauve.stores.alerts.outbox import Message, MessageState, Room
from mauve.stores.catalog.catalog import Catalog
from mauve.stores.ledger.deliveries import DeliveryReader
from mauve.stores.ledger.usage import IngestStatsReader

MESSAGES_PER_HOUR_MAX: Final = 100  # of one organization, digests excluded
TO_EACH_PER_HOUR_MAX: Final = 10  # if that is more, so that an alert to very many receivers is sent, too
TESTS_PER_HOUR_MAX: Final = 20  # of those: every member may send tests, and must not use up the room for alerts
_TITLE_CHARACTERS_MAX: Final = 200
SEND_EVERY_S: Final = 5.0
CLAIM_MS: Final = 3 * MINUTE_MS  # far longer than a batch may take
_BATCH_MAX: Final = 16  # Each has a thread, so that a batch takes no longer than its slowest message.
_OF_ORGANIZATION_MAX: Final = 4  # in a batch: slow receivers of one organization hardly delay those of others
_BATCHES_MAX: Final = 20  # in a round
_MAIL_WAIT_MS: Final = 24 * HOUR_MS  # for a machine that can mail
_FAILURE_CHARACTERS_MAX: Final = 300
_UNEXPECTED: Final = "an unexpected error, which the log of the service explains"

log = structlog.get_logger()


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
    return _message(parts, organization, draft, now_ms, receiver=channel.name, channel_id=channel.channel_id)


def to_members(
    parts: AlertParts, organization: Organization, draft: Draft, subscribers: Iterable[Subscriber], now_ms: int
) -> list[Message]:
    """Return a message for each subscriber who is still a member."""
    emails = {each.user.user_id: each.user.email for each in parts.catalog.users.all_of(organization.org_id)}
    wish = Wish.DIGEST if draft.kind == Wish.DIGEST else Wish.ALERTS
    return [
        _message(
            parts,
            organization,
            draft,
            now_ms,
            receiver=emails[each.user_id],
            user_id=each.user_id,
            unsubscribe=f"{parts.url}/unsubscribe/{each.token}/{wish}",
        )
        for each in subscribers
        if each.user_id in emails
    ]


def _message(
    parts: AlertParts,
    organization: Organization,
    draft: Draft,
    now_ms: int,
    *,
    receiver: str,
    channel_id: str | None = None,
    user_id: str | None = None,
    unsubscribe: str | None = None,
) -> Message:
    notice = Notice(
        id=new_id("msg", parts.randomness),
        kind=draft.kind,
        title=draft.title[:_TITLE_CHARACTERS_MAX],
        reason=draft.reason,
        facts=[fact._replace(link=fact.link and parts.url + fact.link) for fact in draft.facts],
        link=parts.url + draft.link,
        unsubscribe=unsubscribe,
        sent_for=organization.name,
        at=now_ms,
    )
    text = msgspec.json.encode(notice).decode()
    return Message(notice.id, organization.org_id, notice.kind, channel_id, user_id, receiver, text, now_ms)


class Outbox:
    def __init__(self, parts: AlertParts, registry: CollectorRegistry) -> None:
        self._parts = parts
        self._stopped = threading.Event()
        sent = Counter("mauve_alerts_sent", "Alerts and digests sent", ["channel"], registry=registry)
        failed = Counter("mauve_alerts_failed", "Attempts to send one that failed", ["channel"], registry=registry)
        # Now, since a counter that appears with its first failure raises no alert.
        self._sent = {channel: sent.labels(channel) for channel in ("email", "webhook")}
        self._failed = {channel: failed.labels(channel) for channel in ("email", "webhook")}
        self._waiting = Gauge("mauve_alerts_waiting", "Alerts and digests that wait to be sent", registry=registry)

    def stop(self) -> None:
        """Begin no further batch."""
        self._stopped.set()

    def send_due(self) -> None:
        """Send what is due, until nothing is or a round has been long enough."""
        for _ in range(_BATCHES_MAX):
            if self._stopped.is_set() or not self._send_batch():
                break
        self._waiting.set(self._parts.store.messages.count_waiting())

    def _send_batch(self) -> int:
        now_ms = self._parts.clock.now_ms()
        # Leave e-mail to a machine that can send it. If none has for this long, it fails here and is given up.
        mail_until = None if self._parts.can_mail else now_ms - _MAIL_WAIT_MS
        claimed = self._parts.store.messages.claim(now_ms, CLAIM_MS, _BATCH_MAX, _OF_ORGANIZATION_MAX, mail_until)
        if claimed:
            with ThreadPoolExecutor(_BATCH_MAX, thread_name_prefix="alerts") as threads:
                list(threads.map(self._send, claimed))
        return len(claimed)

    def _send(self, message: Message) -> None:
        """Send one message, and record the result. If recording fails, the claim expires and it is sent again."""
        try:
            self._deliver(message)
        except SendFailed as failed:
            self._record_failure(message, failed.reason, retry=failed.retry)
        except Exception:
            log.exception("alert_failed", message_id=message.message_id)
            self._record_failure(message, _UNEXPECTED, retry=True)
        else:
            log.info("alert_sent", message_id=message.message_id, kind=message.kind, attempts=message.attempts)
            self._sent[_channel(message)].inc()
            self._finish(message, MessageState.SENT, None)

    def _deliver(self, message: Message) -> None:
        """Send the message to where it goes now: the receiver may have left, or no longer want it."""
        target = self._channel_of(message) if message.user_id is None else self._mailbox_of(message, message.user_id)
        sender = self._parts.senders.get(target.kind)
        if sender is None:
            raise SendFailed("e-mail is not set up on this machine: set MAUVE_SMTP_URL", retry=True)
        sender.send(target, NOTICE.decode(message.notice))

    def _channel_of(self, message: Message) -> Target:
        channel = self._parts.store.channels.find(message.org_id, message.channel_id or "")
        if channel is None:
            raise SendFailed("the channel was deleted", retry=False)
        try:
            packed = self._parts.vault.open(channel.sealed, channel_row(channel.org_id, channel.channel_id))
        except VaultError as error:
            raise SendFailed(str(error), retry=True) from None
        return TARGET.decode(packed.reveal())

    def _mailbox_of(self, message: Message, user_id: str) -> Target:
        member = self._parts.catalog.users.find(user_id)
        if member is None or member.user.org_id != message.org_id:
            raise SendFailed("no longer a member", retry=False)
        if not _is_wanted(message, self._parts.store.subscribers.find(user_id)):
            raise SendFailed("the member has unsubscribed from these e-mails", retry=False)
        return Target("email", member.user.email)

    def _record_failure(self, message: Message, reason: str, *, retry: bool) -> None:
        failure = "".join(filter(str.isprintable, reason))[:_FAILURE_CHARACTERS_MAX]
        due_at = retry_at(message.attempts, self._parts.clock.now_ms()) if retry else None
        self._failed[_channel(message)].inc()
        log.warning("alert_not_sent", message_id=message.message_id, reason=failure, is_retried=due_at is not None)
        if due_at is None:
            self._finish(message, MessageState.FAILED, failure)
        else:
            self._parts.store.messages.retry(message, due_at, failure)

    def _finish(self, message: Message, state: MessageState, failure: str | None) -> None:
        kept = message.notice
        if message.kind == Wish.DIGEST:  # The history does not keep its many numbers.
            kept = msgspec.json.encode(msgspec.structs.replace(NOTICE.decode(kept), facts=[])).decode()
        self._parts.store.messages.finish(message, state, self._parts.clock.now_ms(), failure, kept)


def _channel(message: Message) -> str:
    return "webhook" if message.user_id is None else "email"


def _is_wanted(message: Message, subscriber: Subscriber | None) -> bool:
    if message.kind == "test":
        return True
    if subscriber is None:
        return False
    return subscriber.digest != Cadence.NEVER if message.kind == Wish.DIGEST else subscriber.alerts
