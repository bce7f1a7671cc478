"""The alerts page: rules, channels, e-mail for the member, quiet hours, and the history."""

from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from starlette.responses import Response

from mauve.alerts import edit, rules
from mauve.alerts.channels import NOTICE, Notice
from mauve.alerts.outbox import AlertParts, Wish
from mauve.alerts.schedule import Cadence, time_zones
from mauve.control.bodies import invalid_body
from mauve.core.app import App
from mauve.core.problems import not_found
from mauve.dashboard.context import Context, MemberContext
from mauve.dashboard.rendering import page, see_other
from mauve.stores.alerts import OrganizationTimes, StoredRule
from mauve.stores.alerts.outbox import Message

_SHOWN_MAX: Final = 50
_DIGITS_MAX: Final = 6


@dataclass(frozen=True, slots=True)
class ShownRule:
    rule: StoredRule
    app: App
    text: str
    state: rules.RuleState


def show_alerts(context: MemberContext) -> Response:
    parts, org_id = _parts(context), context.organization.org_id
    apps = context.control.catalog.apps.all_of(org_id)
    return page(
        context,
        "alerts.html",
        apps=apps,
        rules=_rules(parts, org_id, apps),
        channels=parts.store.channels.all_of(org_id),
        times=parts.store.times.find(org_id),
        wishes=edit.subscriber_of(parts, context.user),
        history=_history(parts, org_id),
        can_mail=parts.can_mail,
        is_on=parts.is_on,
        url=parts.url,
        has_public_url=context.parts.public_url is not None,
        time_zones=sorted(time_zones()),
        METRIC_NAMES=rules.METRIC_NAMES,
        DAYS=rules.DAYS,
    )


def show_history(context: MemberContext) -> Response:
    """Return the history fragment; the page polls it while messages are pending."""
    return page(context, "alert_history.html", history=_history(_parts(context), context.organization.org_id))


def create_rule(context: MemberContext) -> Response:
    terms = _terms_of(context)
    app = context.control.catalog.apps.find(context.organization.org_id, context.field("app"))
    if app is None:
        raise invalid_body("choose an app")
    edit.create_rule(_parts(context), context.user, app, terms)
    return see_other("/alerts", done="rule-created")


def delete_rule(context: MemberContext) -> Response:
    edit.delete_rule(_parts(context), context.organization.org_id, context.path["rule_id"])
    return see_other("/alerts", done="rule-deleted")


def create_channel(context: MemberContext) -> Response:
    """Create a channel; show its signing secret if it has one. Without a redirect, since it is shown only once."""
    kind, name, address = (context.field(each) for each in ("kind", "name", "address"))
    channel, secret = edit.create_channel(_parts(context), context.user, kind, name, address)
    if secret is None:
        return see_other("/alerts", done="channel-created")
    return page(context, "alert_channel.html", channel=channel, secret=secret.reveal())


def delete_channel(context: MemberContext) -> Response:
    edit.delete_channel(_parts(context), context.organization.org_id, context.path["channel_id"])
    return see_other("/alerts", done="channel-deleted")


def send_test_to_channel(context: MemberContext) -> Response:
    edit.send_test_to_channel(_parts(context), context.organization, context.user, context.path["channel_id"])
    return see_other("/alerts", done="test-queued")


def send_test_mail(context: MemberContext) -> Response:
    edit.send_test_mail(_parts(context), context.organization, context.user)
    return see_other("/alerts", done="test-queued")


def save_wishes(context: MemberContext) -> Response:
    cadence = context.chosen("digest", Cadence)
    edit.save_wishes(_parts(context), context.user, cadence, alerts=bool(context.field("alerts")))
    return see_other("/alerts", done="saved")


def save_times(context: MemberContext) -> Response:
    digest_hour = _hour(context, "digest_hour")
    if digest_hour is None:
        raise invalid_body("choose the hour of the digest")
    quiet_from, quiet_until = _hour(context, "quiet_from"), _hour(context, "quiet_until")
    times = OrganizationTimes(context.field("time_zone"), quiet_from, quiet_until, digest_hour)
    edit.save_times(_parts(context), context.organization.org_id, times)
    return see_other("/alerts", done="saved")


def show_unsubscribe(context: Context) -> Response:
    """Show a button: mail programs open links to check them, which must not unsubscribe anyone."""
    wish = _wish(context)
    if edit.find_subscriber(context.parts.alerts, context.path["token"]) is None:
        return _unknown_link(context)
    return page(context, "unsubscribe.html", wish=wish, is_done=False)


def unsubscribe(context: Context) -> Response:
    """Stop one kind of e-mail, from the button or from a mail program (RFC 8058) without a session."""
    wish = _wish(context)
    if not edit.unsubscribe(context.parts.alerts, context.path["token"], wish):
        return _unknown_link(context)
    return page(context, "unsubscribe.html", wish=wish, is_done=True)


def _unknown_link(context: Context) -> Response:
    return page(context, "unsubscribe.html", HTTPStatus.NOT_FOUND, wish=None, is_done=False)


def _wish(context: Context) -> Wish:
    try:
        return Wish(context.path["wish"])
    except ValueError:
        raise not_found() from None


def _parts(context: Context) -> AlertParts:
    return context.parts.alerts


def _rules(parts: AlertParts, org_id: str, apps: Sequence[App]) -> list[ShownRule]:
    by_id = {app.app_id: app for app in apps}
    shown = [
        ShownRule(rule, app, rules.describe(rules.TERMS.decode(rule.terms)), rules.STATE.decode(rule.state))
        for rule in parts.store.rules.all_of(org_id)
        if (app := by_id.get(rule.app_id)) is not None
    ]
    return sorted(shown, key=lambda each: (each.app.name.casefold(), each.app.app_id, each.rule.created_at))


def _history(parts: AlertParts, org_id: str) -> list[tuple[Message, Notice]]:
    messages = parts.store.messages.recent(org_id, _SHOWN_MAX)
    return [(message, NOTICE.decode(message.notice)) for message in messages]


def _terms_of(context: MemberContext) -> rules.Terms:
    """Parse the terms of a rule from its form."""
    if context.path["kind"] not in set(rules.Kind):
        raise not_found()
    kind, cooldown_h = rules.Kind(context.path["kind"]), _number(context, "cooldown")
    if kind is rules.Kind.NO_EVENTS:
        return rules.NoEvents(hours=_number(context, "hours"), cooldown_h=cooldown_h)
    if kind is rules.Kind.DELIVERIES_FAILING:
        return rules.DeliveriesFailing(hours=_number(context, "hours"), cooldown_h=cooldown_h)
    metric, days = context.field("metric"), _number(context, "days")
    code = context.field("currency").strip().lower() or None
    currency = code if metric in rules.MONEY else None
    if kind is rules.Kind.THRESHOLD:
        side = context.chosen("side", rules.Side)
        rules.check_metric(metric, days, currency)
        value = rules.minor_units(context.field("value"), currency)
        return rules.Threshold(
            metric=metric, days=days, side=side, value=value, currency=currency, cooldown_h=cooldown_h
        )
    direction, percent = context.chosen("direction", rules.Direction), _number(context, "percent")
    return rules.Change(
        metric=metric, days=days, direction=direction, percent=percent, currency=currency, cooldown_h=cooldown_h
    )


def _number(context: MemberContext, name: str) -> int:
    text = context.field(name).strip()
    if not text.isascii() or not text.isdigit() or len(text) > _DIGITS_MAX:
        raise invalid_body(f"{name} must be a whole number")
    return int(text)


def _hour(context: MemberContext, name: str) -> int | None:
    return None if not context.field(name) else _number(context, name)
