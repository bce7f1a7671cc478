"""Change rules, channels and wishes, within their limits."""

from typing import Final
from urllib.parse import urlsplit

import msgspec

from mauve.access.vault import ChannelRow, Vault
from mauve.alerts.channels import Target, check_address, new_secret
from mauve.alerts.compose import (
    MESSAGES_PER_HOUR_MAX,
    TESTS_PER_HOUR_MAX,
    Draft,
    Wish,
    room_for_test,
    to_channel,
    to_member,
)
from mauve.alerts.parts import AlertParts
from mauve.alerts.rule_state import RuleState, packed_state
from mauve.alerts.schedule import Cadence, is_quiet_hour, next_digest_at, time_zones
from mauve.alerts.terms import (
    RULES_PER_APP_MAX,
    RULES_PER_ORGANIZATION_MAX,
    Terms,
    TermsError,
    checked,
    packed_terms,
)
from mauve.core.app import App, app_name_from
from mauve.core.ids import is_id, new_id
from mauve.core.organization import Organization
from mauve.core.problems import Code, Problem, not_found
from mauve.core.secret import Secret
from mauve.core.user import User
from mauve.stores.alerts import Channel, NewMessage, OrganizationTimes, StoredRule, Subscriber

CHANNELS_MAX: Final = 10  # of one organization
CHANNEL_KINDS: Final = ("slack", "discord", "webhook")
ADDRESS_CHARACTERS_MAX: Final = 2_000
_TOKEN_CHARACTERS: Final = 32
_HOURS: Final = 24


class _Sealed(msgspec.Struct, frozen=True):
    """What is secret of a channel. The address alone lets anyone post to a chat."""

    address: str
    secret: str | None


_sealed: Final = msgspec.json.Decoder(_Sealed)


def create_rule(parts: AlertParts, user: User, app: App, terms: Terms) -> StoredRule:
    now_ms = parts.clock.now_ms()
    try:
        packed = packed_terms(checked(terms))
    except TermsError as error:
        raise _refused(str(error)) from None
    if app.is_archived:
        raise _refused("the app is archived: restore it first")
    rule = StoredRule(
        rule_id=new_id("rule", parts.randomness),
        org_id=app.org_id,
        app_id=app.app_id,
        terms=packed,
        state=packed_state(RuleState()),
        version=0,
        next_at=now_ms,
        created_at=now_ms,
        created_by=user.user_id,
    )
    if not parts.store.rules.create(rule, RULES_PER_APP_MAX, RULES_PER_ORGANIZATION_MAX):
        raise _refused(
            f"an app may have {RULES_PER_APP_MAX} rules, all together {RULES_PER_ORGANIZATION_MAX}: delete one first"
        )
    return rule


def delete_rule(parts: AlertParts, org_id: str, rule_id: str) -> None:
    if not is_id(rule_id, "rule") or not parts.store.rules.delete(org_id, rule_id):
        raise not_found()


def create_channel(parts: AlertParts, user: User, kind: str, name: str, address: str) -> tuple[Channel, Secret | None]:
    """Store a channel; return it with the signing secret, which is never shown again."""
    known = app_name_from(name)
    if known is None:
        raise _refused("give the channel a name of 1 to 80 characters")
    target = Target(kind, address.strip(), new_secret() if kind == "webhook" else None)
    if kind not in CHANNEL_KINDS or not 0 < len(target.address) <= ADDRESS_CHARACTERS_MAX:
        raise _refused(f"choose one of {', '.join(CHANNEL_KINDS)}, and paste its address")
    try:
        check_address(kind, target.address, allow_private=parts.allow_private)
    except ValueError as error:
        raise _refused(str(error)) from None
    channel_id = new_id("chan", parts.randomness)
    packed = Secret(msgspec.json.encode(_Sealed(target.address, target.secret)).decode())
    channel = Channel(
        channel_id=channel_id,
        org_id=user.org_id,
        kind=kind,
        name=known,
        masked=masked_address(target.address),
        sealed=parts.vault.seal(packed, ChannelRow(user.org_id, channel_id)),
        created_at=parts.clock.now_ms(),
        created_by=user.user_id,
    )
    if not parts.store.channels.create(channel, CHANNELS_MAX):
        raise _refused(f"there are {CHANNELS_MAX} channels: delete one first")
    return channel, None if target.secret is None else Secret(target.secret)


def opened_target(vault: Vault, channel: Channel) -> Target:
    text = vault.open(channel.sealed, ChannelRow(channel.org_id, channel.channel_id)).reveal()
    sealed = _sealed.decode(text)
    return Target(channel.kind, sealed.address, sealed.secret)


def masked_address(address: str) -> str:
    """Return the host of an address, which is all of it that is no secret."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.hostname or ''}/…"


def find_channel(parts: AlertParts, org_id: str, channel_id: str) -> Channel:
    channel = parts.store.channels.find(org_id, channel_id) if is_id(channel_id, "chan") else None
    if channel is None:
        raise not_found()
    return channel


def delete_channel(parts: AlertParts, org_id: str, channel_id: str) -> None:
    parts.store.channels.delete(org_id, find_channel(parts, org_id, channel_id).channel_id)


def send_test_to_channel(parts: AlertParts, organization: Organization, user: User, channel_id: str) -> None:
    """Put a test into the outbox, which sends it within seconds."""
    channel = find_channel(parts, organization.org_id, channel_id)
    now_ms = parts.clock.now_ms()
    _add(parts, to_channel(parts, organization, _test_draft(user), channel, now_ms), now_ms)


def send_test_mail(parts: AlertParts, organization: Organization, user: User) -> None:
    if not parts.can_mail:
        raise _refused("e-mail is not set up: the operator has to set MAUVE_SMTP_URL")
    member = parts.catalog.users.find(user.user_id)
    if member is None:
        raise not_found()
    now_ms = parts.clock.now_ms()
    parts.store.subscribers.add(subscriber_of(parts, user))  # The link to unsubscribe in the test works, too.
    subscriber = subscriber_of(parts, user)
    _add(parts, to_member(parts, organization, _test_draft(user), subscriber, member, now_ms=now_ms), now_ms)


def _test_draft(user: User) -> Draft:
    return Draft("test", "A test from Mauve", f"{user.email} asked for a test on the alerts page.", [], "/alerts")


def _add(parts: AlertParts, message: NewMessage, now_ms: int) -> None:
    if not parts.is_on:
        raise _refused("this machine sends nothing: the operator has set MAUVE_ALERTS to 0")
    if not parts.store.messages.add([message], room_for_test(now_ms)):
        raise Problem(
            Code.RATE_LIMITED,
            f"your organization had {TESTS_PER_HOUR_MAX} tests or {MESSAGES_PER_HOUR_MAX} messages in the last hour: "
            "try again later",
        )


def subscriber_of(parts: AlertParts, user: User) -> Subscriber:
    """Return what a member wants by e-mail: nothing, until they choose it."""
    found = parts.store.subscribers.find(user.user_id)
    if found is not None:
        return found
    token = parts.randomness.base62(_TOKEN_CHARACTERS)
    return Subscriber(user.user_id, user.org_id, Cadence.NEVER, alerts=False, token=token, next_at=None)


def save_wishes(parts: AlertParts, user: User, cadence: Cadence, *, alerts: bool) -> None:
    times = parts.store.times.find(user.org_id)
    next_at = next_digest_at(times, cadence, parts.clock.now_ms())
    known = subscriber_of(parts, user)
    parts.store.subscribers.save(Subscriber(user.user_id, user.org_id, cadence, alerts, known.token, next_at))


def find_subscriber(parts: AlertParts, token: str) -> Subscriber | None:
    """Return the member to whom the link of an e-mail belongs."""
    is_one = token.isascii() and token.isalnum()  # A malformed token need not be looked up.
    return parts.store.subscribers.find_token(token) if is_one else None


def unsubscribe(parts: AlertParts, token: str, wish: Wish) -> bool:
    """End one kind of e-mail; return False if the link belongs to no member."""
    known = find_subscriber(parts, token)
    if known is None:
        return False
    # A digest may be recorded meanwhile: writing back an earlier time would send it again.
    if wish is Wish.DIGEST:
        parts.store.subscribers.save_digest(known.user_id, Cadence.NEVER, None)
    else:
        parts.store.subscribers.end_alerts(known.user_id)
    return True


def save_times(parts: AlertParts, org_id: str, times: OrganizationTimes) -> None:
    """Save when an organization may be disturbed, and move the members' next digests to the new hour."""
    if times.time_zone not in time_zones():
        raise _refused("choose a time zone by its name, such as Europe/Berlin or UTC")
    hours = (times.quiet_from, times.quiet_until, times.digest_hour)
    if not all(hour is None or 0 <= hour < _HOURS for hour in hours):
        raise _refused("an hour is a number from 0 to 23")
    if (times.quiet_from is None) != (times.quiet_until is None):
        raise _refused("choose both the beginning and the end of the quiet hours, or neither")
    if times.quiet_from is not None and times.quiet_from == times.quiet_until:
        raise _refused("quiet hours must end at another hour than they begin: leave both empty for none")
    if is_quiet_hour(times, times.digest_hour):
        raise _refused("the digest's hour is within the quiet hours: choose another")
    parts.store.times.save(org_id, times)
    for each in parts.store.subscribers.wanting_digests(org_id):
        next_at = next_digest_at(times, Cadence(each.digest), parts.clock.now_ms())
        if next_at is not None:
            parts.store.subscribers.reschedule(each.user_id, next_at)


def _refused(message: str) -> Problem:
    return Problem(Code.INVALID_BODY, message)
