"""Change rules, channels and wishes, within their limits."""

from typing import Final

import msgspec

from mauve.access.vault import channel_row
from mauve.alerts.channels import Draft, Target
from mauve.alerts.channels.connection import endpoint_from
from mauve.alerts.channels.formats import CHANNEL_KINDS
from mauve.alerts.channels.webhook import new_secret
from mauve.alerts.outbox import (
    MESSAGES_PER_HOUR_MAX,
    TESTS_PER_HOUR_MAX,
    AlertParts,
    Wish,
    room_for_test,
    to_channel,
    to_members,
)
from mauve.alerts.rules import RULES_PER_APP_MAX, RULES_PER_ORGANIZATION_MAX, RuleState, Terms, check
from mauve.alerts.schedule import Cadence, is_quiet_hour, next_digest_at, time_zones
from mauve.control.bodies import invalid_body
from mauve.core.app import App, app_name_from
from mauve.core.ids import is_id, new_id
from mauve.core.organization import Organization
from mauve.core.problems import Code, Problem, not_found
from mauve.core.secret import Secret
from mauve.core.user import User
from mauve.stores.alerts import Channel, OrganizationTimes, StoredRule, Subscriber
from mauve.stores.alerts.outbox import Message

CHANNELS_MAX: Final = 10  # of one organization
_TOKEN_CHARACTERS: Final = 32
_HOURS: Final = 24


def create_rule(parts: AlertParts, user: User, app: App, terms: Terms) -> StoredRule:
    check(terms)
    if app.is_archived:
        raise invalid_body("the app is archived: restore it first")
    now_ms = parts.clock.now_ms()
    rule = StoredRule(
        rule_id=new_id("rule", parts.randomness),
        org_id=app.org_id,
        app_id=app.app_id,
        terms=msgspec.json.encode(terms).decode(),
        state=msgspec.json.encode(RuleState()).decode(),
        version=0,
        next_at=now_ms,
        created_at=now_ms,
        created_by=user.user_id,
    )
    if not parts.store.rules.create(rule, RULES_PER_APP_MAX, RULES_PER_ORGANIZATION_MAX):
        raise invalid_body(
            f"an app may have {RULES_PER_APP_MAX} rules, all together {RULES_PER_ORGANIZATION_MAX}: delete one first"
        )
    return rule


def delete_rule(parts: AlertParts, org_id: str, rule_id: str) -> None:
    if not is_id(rule_id, "rule") or not parts.store.rules.delete(org_id, rule_id):
        raise not_found()


def create_channel(parts: AlertParts, user: User, kind: str, name: str, address: str) -> tuple[Channel, Secret | None]:
    """Store a channel; return it with the signing secret, which is never shown again."""
    known, address = app_name_from(name), address.strip()
    if known is None:
        raise invalid_body("give the channel a name of 1 to 80 characters")
    if kind not in CHANNEL_KINDS or not address:
        raise invalid_body(f"choose one of {', '.join(CHANNEL_KINDS)}, and paste its address")
    try:
        endpoint = endpoint_from(address, allow_private=parts.allow_private)
    except ValueError as error:
        raise invalid_body(str(error)) from None
    channel_id, secret = new_id("chan", parts.randomness), new_secret() if kind == "webhook" else None
    packed = Secret(msgspec.json.encode(Target(kind, address, secret)).decode())
    channel = Channel(
        channel_id=channel_id,
        org_id=user.org_id,
        kind=kind,
        name=known,
        masked=f"{'https' if endpoint.is_tls else 'http'}://{endpoint.host}/…",
        sealed=parts.vault.seal(packed, channel_row(user.org_id, channel_id)),
        created_at=parts.clock.now_ms(),
        created_by=user.user_id,
    )
    if not parts.store.channels.create(channel, CHANNELS_MAX):
        raise invalid_body(f"there are {CHANNELS_MAX} channels: delete one first")
    return channel, None if secret is None else Secret(secret)


def delete_channel(parts: AlertParts, org_id: str, channel_id: str) -> None:
    if not is_id(channel_id, "chan") or not parts.store.channels.delete(org_id, channel_id):
        raise not_found()


def send_test_to_channel(parts: AlertParts, organization: Organization, user: User, channel_id: str) -> None:
    """Put a test into the outbox, which sends it within seconds."""
    channel = parts.store.channels.find(organization.org_id, channel_id) if is_id(channel_id, "chan") else None
    if channel is None:
        raise not_found()
    now_ms = parts.clock.now_ms()
    _add_test(parts, [to_channel(parts, organization, _test_draft(user), channel, now_ms)], now_ms)


def send_test_mail(parts: AlertParts, organization: Organization, user: User) -> None:
    if not parts.can_mail:
        raise invalid_body("e-mail is not set up: the operator has to set MAUVE_SMTP_URL")
    now_ms = parts.clock.now_ms()
    parts.store.subscribers.add(subscriber_of(parts, user))  # The link to unsubscribe in the test works, too.
    _add_test(parts, to_members(parts, organization, _test_draft(user), [subscriber_of(parts, user)], now_ms), now_ms)


def _test_draft(user: User) -> Draft:
    return Draft("test", "A test from Mauve", f"{user.email} asked for a test on the alerts page.", [], "/alerts")


def _add_test(parts: AlertParts, tests: list[Message], now_ms: int) -> None:
    if not parts.is_on:
        raise invalid_body("this machine sends nothing: the operator has set MAUVE_ALERTS to 0")
    if not tests:
        raise not_found()  # The member was removed during the request.
    if not parts.store.messages.add(tests, room_for_test(now_ms)):
        raise Problem(
            Code.RATE_LIMITED,
            f"your organization had {TESTS_PER_HOUR_MAX} tests or {MESSAGES_PER_HOUR_MAX} messages "
            "in the last hour: try again later",
        )


def subscriber_of(parts: AlertParts, user: User) -> Subscriber:
    """Return what a member wants by e-mail: nothing, until they choose it."""
    token = parts.randomness.base62(_TOKEN_CHARACTERS)
    nothing = Subscriber(user.user_id, user.org_id, Cadence.NEVER, alerts=False, token=token, next_at=None)
    return parts.store.subscribers.find(user.user_id) or nothing


def save_wishes(parts: AlertParts, user: User, cadence: Cadence, *, alerts: bool) -> None:
    next_at = next_digest_at(parts.store.times.find(user.org_id), cadence, parts.clock.now_ms())
    parts.store.subscribers.add(subscriber_of(parts, user))
    parts.store.subscribers.change(user.user_id, digest=cadence, alerts=alerts, next_at=next_at)


def find_subscriber(parts: AlertParts, token: str) -> Subscriber | None:
    """Return the member to whom the link of an e-mail belongs."""
    is_one = token.isascii() and token.isalnum()  # A malformed token need not be looked up.
    return parts.store.subscribers.find_token(token) if is_one else None


def unsubscribe(parts: AlertParts, token: str, wish: Wish) -> bool:
    """End one kind of e-mail; return False if the link belongs to no member."""
    known = find_subscriber(parts, token)
    if known is None:
        return False
    if wish is Wish.DIGEST:
        parts.store.subscribers.change(known.user_id, digest=Cadence.NEVER, next_at=None)
    else:
        parts.store.subscribers.change(known.user_id, alerts=False)
    return True


def save_times(parts: AlertParts, org_id: str, times: OrganizationTimes) -> None:
    """Save when an organization may be disturbed, and move the members' next digests to the new hour."""
    if times.time_zone not in time_zones():
        raise invalid_body("choose a time zone by its name, such as Europe/Berlin or UTC")
    hours = (times.quiet_from, times.quiet_until, times.digest_hour)
    if not all(hour is None or 0 <= hour < _HOURS for hour in hours):
        raise invalid_body("an hour is a number from 0 to 23")
    if (times.quiet_from is None) != (times.quiet_until is None):
        raise invalid_body("choose both the beginning and the end of the quiet hours, or neither")
    if times.quiet_from is not None and times.quiet_from == times.quiet_until:
        raise invalid_body("quiet hours must end at another hour than they begin: leave both empty for none")
    if is_quiet_hour(times, times.digest_hour):
        raise invalid_body("the digest's hour is within the quiet hours: choose another")
    parts.store.times.save(org_id, times)
    for each in parts.store.subscribers.wanting_digests(org_id):
        next_at = next_digest_at(times, Cadence(each.digest), parts.clock.now_ms())
        if next_at is not None:
            parts.store.subscribers.reschedule(each.user_id, next_at)
