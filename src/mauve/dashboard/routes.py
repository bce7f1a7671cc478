"""Every page and action of the dashboard, in two tables: public ones, and those for members.

The second names the grant that each entry needs. The same grants decide what a page offers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from starlette.responses import Response

from mauve.core.credential import Scope
from mauve.core.user import Grant, Permission
from mauve.dashboard.context import Context, MemberContext
from mauve.dashboard.pages import (
    alerts,
    apps,
    credentials,
    events,
    imports,
    members,
    overview,
    payments,
    sheets,
    subscriptions,
    usage,
    webhooks,
)
from mauve.dashboard.pages import app as app_page
from mauve.dashboard.pages import sign_in as signing_in

PublicHandler = Callable[[Context], Response]
MemberHandler = Callable[[MemberContext], Response]


@dataclass(frozen=True, slots=True)
class PublicPage:
    """A page or action for anyone who has the address."""

    method: str
    path: str
    handle: PublicHandler
    show_again: PublicHandler | None = None  # the form, after a refusal
    is_one_click: bool = False  # a mail program may post it, from anywhere and with any body


@dataclass(frozen=True, slots=True)
class MemberPage:
    """A page or action for signed-in members whose role has the grant; None: for every member."""

    method: str
    path: str
    needs: Grant | None
    handle: MemberHandler
    show_again: MemberHandler | None = None


def _show(path: str, needs: Grant | None, handle: MemberHandler) -> MemberPage:
    return MemberPage("GET", path, needs, handle)


def _do(path: str, needs: Grant | None, handle: MemberHandler, show_again: MemberHandler | None = None) -> MemberPage:
    return MemberPage("POST", path, needs, handle, show_again)


PUBLIC: Final = (
    PublicPage("GET", "/signin", signing_in.show_sign_in),
    PublicPage("POST", "/signin", signing_in.sign_in, signing_in.show_sign_in),
    PublicPage("GET", "/setup/{secret}", signing_in.show_setup),
    PublicPage("POST", "/setup/{secret}", signing_in.set_up, signing_in.show_setup),
    PublicPage("GET", "/password/{secret}", signing_in.show_password),
    PublicPage("POST", "/password/{secret}", signing_in.set_password, signing_in.show_password),
    PublicPage("GET", "/unsubscribe/{token}/{wish}", alerts.show_unsubscribe),
    PublicPage("POST", "/unsubscribe/{token}/{wish}", alerts.unsubscribe, is_one_click=True),
)

MEMBER: Final = (
    _show("/", Scope.METRICS_READ, overview.show_overview),
    _do("/refresh", Scope.METRICS_READ, overview.refresh_overview, overview.show_overview),
    _show("/apps", Scope.APPS_READ, apps.show_apps),
    _do("/apps", Scope.APPS_WRITE, apps.create_app, apps.show_new_app),
    _show("/apps/new", Scope.APPS_WRITE, apps.show_new_app),
    _show("/apps/{app_id}", Scope.METRICS_READ, app_page.show_app),
    _do("/apps/{app_id}/refresh", Scope.METRICS_READ, app_page.refresh_app, app_page.show_app),
    _show("/apps/{app_id}/sheets/{metric}.csv", Scope.METRICS_READ, sheets.show_sheet),
    _show("/apps/{app_id}/events", Scope.METRICS_READ, events.show_events),
    _do("/apps/{app_id}/events/refresh", Scope.METRICS_READ, events.refresh_events, events.show_events),
    _show("/apps/{app_id}/events/latest", Scope.METRICS_READ, events.show_latest_events),
    _show("/apps/{app_id}/payments", Scope.METRICS_READ, payments.show_payments),
    _show("/apps/{app_id}/payments.csv", Scope.METRICS_READ, payments.export_payments),
    _show("/apps/{app_id}/imports", Scope.METRICS_READ, imports.show_imports),
    _show("/apps/{app_id}/subscriptions", Scope.METRICS_READ, subscriptions.show_subscriptions),
    _show("/apps/{app_id}/subscriptions.csv", Scope.METRICS_READ, subscriptions.export_subscriptions),
    _show("/apps/{app_id}/first-event", Scope.APPS_READ, apps.show_first_event),
    _show("/apps/{app_id}/settings", Scope.APPS_READ, apps.show_settings),
    _do("/apps/{app_id}/settings", Scope.APPS_WRITE, apps.change_app, apps.show_settings),
    _show("/apps/{app_id}/archive", Scope.APPS_WRITE, apps.confirm_archiving),
    _do("/apps/{app_id}/archive", Scope.APPS_WRITE, apps.archive_app),
    _do("/apps/{app_id}/restore", Scope.APPS_WRITE, apps.restore_app),
    _show("/apps/{app_id}/keys", Scope.KEYS_READ, credentials.show_keys),
    _do("/apps/{app_id}/keys", Scope.KEYS_WRITE, credentials.mint_key, credentials.show_keys),
    _show("/apps/{app_id}/keys/{key_id}/revoke", Scope.KEYS_WRITE, credentials.confirm_revoking_key),
    _do("/apps/{app_id}/keys/{key_id}/revoke", Scope.KEYS_WRITE, credentials.revoke_key),
    _show("/apps/{app_id}/webhooks", Scope.APPS_READ, webhooks.show_webhooks),
    _do("/apps/{app_id}/webhooks/test/prepare", Scope.WEBHOOKS_WRITE, webhooks.prepare_test, webhooks.show_webhooks),
    _do(
        "/apps/{app_id}/webhooks/{environment}/{provider}",
        Scope.WEBHOOKS_WRITE,
        webhooks.save_webhook_secret,
        webhooks.show_webhooks,
    ),
    _show("/apps/{app_id}/webhooks/{environment}/{provider}/check", Scope.APPS_READ, webhooks.show_check),
    _show("/tokens", Permission.TOKENS_MINT, credentials.show_tokens),
    _do("/tokens", Permission.TOKENS_MINT, credentials.mint_token, credentials.show_tokens),
    _show("/tokens/{token_id}/revoke", Permission.TOKENS_MINT, credentials.confirm_revoking_token),
    _do("/tokens/{token_id}/revoke", Permission.TOKENS_MINT, credentials.revoke_token),
    _show("/members", None, members.show_members),
    _do("/members", Permission.MEMBERS_WRITE, members.invite, members.show_members),
    _do("/members/{user_id}/link", Permission.MEMBERS_WRITE, members.renew_link, members.show_members),
    _do("/members/{user_id}/role", Permission.MEMBERS_WRITE, members.change_role, members.show_members),
    _show("/members/{user_id}/remove", Permission.MEMBERS_WRITE, members.confirm_removal),
    _do("/members/{user_id}/remove", Permission.MEMBERS_WRITE, members.remove_member, members.confirm_removal),
    _show("/alerts", Scope.METRICS_READ, alerts.show_alerts),
    _show("/alerts/history", Scope.METRICS_READ, alerts.show_history),
    _do("/alerts/wishes", Scope.METRICS_READ, alerts.save_wishes, alerts.show_alerts),
    _do("/alerts/wishes/test", Scope.METRICS_READ, alerts.send_test_mail, alerts.show_alerts),
    _do("/alerts/times", Permission.ALERTS_WRITE, alerts.save_times, alerts.show_alerts),
    _do("/alerts/channels", Permission.ALERTS_WRITE, alerts.create_channel, alerts.show_alerts),
    _do("/alerts/channels/{channel_id}/test", Permission.ALERTS_WRITE, alerts.send_test_to_channel, alerts.show_alerts),
    _do("/alerts/channels/{channel_id}/delete", Permission.ALERTS_WRITE, alerts.delete_channel),
    _do("/alerts/rules/{rule_id}/delete", Permission.ALERTS_WRITE, alerts.delete_rule),
    _do("/alerts/rules/{kind}", Permission.ALERTS_WRITE, alerts.create_rule, alerts.show_alerts),
    _show("/usage", None, usage.show_usage),
    _do("/usage/cap", Permission.CAP_WRITE, usage.set_cap, usage.show_usage),
    _show("/organization", None, members.show_organization),
    _do(
        "/organization",
        Permission.ORGANIZATION_WRITE,
        members.rename_organization,
        members.show_organization,
    ),
    _show("/account", None, signing_in.show_account),
    _do("/account/password", None, signing_in.change_password, signing_in.show_account),
    _do("/account/sessions/{session_id}/end", None, signing_in.end_session, signing_in.show_account),
    _do("/signout", None, signing_in.sign_out),
    _do("/signout-everywhere", None, signing_in.sign_out_everywhere),
)
