"""Every page and every action of the dashboard, in two tables: what anybody may open, and what a member may do.

The second says which grant each action needs. What a page offers is decided by the same grants.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

from starlette.routing import compile_path

from mauve.core.credential import Scope
from mauve.core.roles import Grant, Permission
from mauve.dashboard.context import Context, MemberContext
from mauve.dashboard.pages import (
    account,
    apps,
    events,
    keys,
    links,
    members,
    overview,
    subscriptions,
    tokens,
    usage,
    webhooks,
)
from mauve.dashboard.pages import app as app_page
from mauve.dashboard.pages import sign_in as signing_in
from mauve.dashboard.request import READING
from mauve.web.messages import Reply

PublicHandler = Callable[[Context], Reply]
MemberHandler = Callable[[MemberContext], Reply]


@dataclass(frozen=True, slots=True)
class Route:
    method: str
    path: str
    pattern: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class PublicRoute(Route):
    """What anybody may open who has the address."""

    handle: PublicHandler
    show_again: PublicHandler | None  # the form, when what was filled in is refused


@dataclass(frozen=True, slots=True)
class MemberRoute(Route):
    """What somebody may do who is signed in and whose role grants it; None: whoever is signed in."""

    needs: Grant | None
    handle: MemberHandler
    show_again: MemberHandler | None


AnyRoute = TypeVar("AnyRoute", PublicRoute, MemberRoute)


def find(routes: Iterable[AnyRoute], method: str, path: str) -> tuple[AnyRoute, dict[str, str]] | None:
    """Return the route that is meant and what stands in the places of its path's names."""
    wanted = "GET" if method in READING else method
    for route in routes:
        found = route.pattern.fullmatch(path) if route.method == wanted else None
        if found is not None:
            return route, found.groupdict()
    return None


def is_known_path(path: str) -> bool:
    return any(route.pattern.fullmatch(path) for route in (*PUBLIC, *MEMBER))


def _pattern(path: str) -> re.Pattern[str]:
    return compile_path(path)[0]


def _public(method: str, path: str, handle: PublicHandler, show_again: PublicHandler | None = None) -> PublicRoute:
    return PublicRoute(method, path, _pattern(path), handle, show_again)


def _show(path: str, needs: Grant | None, handle: MemberHandler) -> MemberRoute:
    return MemberRoute("GET", path, _pattern(path), needs, handle, None)


def _do(path: str, needs: Grant | None, handle: MemberHandler, show_again: MemberHandler | None = None) -> MemberRoute:
    return MemberRoute("POST", path, _pattern(path), needs, handle, show_again)


PUBLIC: Final = (
    _public("GET", "/signin", signing_in.show_sign_in),
    _public("POST", "/signin", signing_in.sign_in, signing_in.show_sign_in),
    _public("GET", "/setup/{secret}", links.show_setup),
    _public("POST", "/setup/{secret}", links.set_up, links.show_setup),
    _public("GET", "/password/{secret}", links.show_password),
    _public("POST", "/password/{secret}", links.set_password, links.show_password),
)

MEMBER: Final = (
    _show("/", Scope.METRICS_READ, overview.show_overview),
    _show("/apps", Scope.APPS_READ, apps.show_apps),
    _do("/apps", Scope.APPS_WRITE, apps.create_app, apps.show_new_app),
    _show("/apps/new", Scope.APPS_WRITE, apps.show_new_app),
    _show("/apps/{app_id}", Scope.METRICS_READ, app_page.show_app),
    _show("/apps/{app_id}/sheets/{metric}.csv", Scope.METRICS_READ, app_page.show_sheet),
    _show("/apps/{app_id}/events", Scope.METRICS_READ, events.show_events),
    _show("/apps/{app_id}/events/latest", Scope.METRICS_READ, events.show_latest_events),
    _show("/apps/{app_id}/subscriptions", Scope.METRICS_READ, subscriptions.show_subscriptions),
    _show("/apps/{app_id}/first-event", Scope.APPS_READ, apps.show_first_event),
    _show("/apps/{app_id}/settings", Scope.APPS_READ, apps.show_settings),
    _do("/apps/{app_id}/settings", Scope.APPS_WRITE, apps.change_app, apps.show_settings),
    _show("/apps/{app_id}/keys", Scope.KEYS_READ, keys.show_keys),
    _do("/apps/{app_id}/keys", Scope.KEYS_WRITE, keys.mint_key, keys.show_keys),
    _show("/apps/{app_id}/keys/{key_id}/revoke", Scope.KEYS_WRITE, keys.confirm_revoking),
    _do("/apps/{app_id}/keys/{key_id}/revoke", Scope.KEYS_WRITE, keys.revoke_key),
    _show("/apps/{app_id}/webhooks", Scope.APPS_READ, webhooks.show_webhooks),
    _do(
        "/apps/{app_id}/webhooks/{environment}/{provider}",
        Scope.WEBHOOKS_WRITE,
        webhooks.save_webhook_secret,
        webhooks.show_webhooks,
    ),
    _show("/apps/{app_id}/webhooks/{environment}/{provider}/check", Scope.APPS_READ, webhooks.show_check),
    _show("/tokens", Permission.TOKENS_MINT, tokens.show_tokens),
    _do("/tokens", Permission.TOKENS_MINT, tokens.mint_token, tokens.show_tokens),
    _show("/tokens/{token_id}/revoke", Permission.TOKENS_MINT, tokens.confirm_revoking),
    _do("/tokens/{token_id}/revoke", Permission.TOKENS_MINT, tokens.revoke_token),
    _show("/members", None, members.show_members),
    _do("/members", Permission.MEMBERS_WRITE, members.invite, members.show_members),
    _do("/members/{user_id}/link", Permission.MEMBERS_WRITE, members.renew_link, members.show_members),
    _do("/members/{user_id}/role", Permission.MEMBERS_WRITE, members.change_role, members.show_members),
    _show("/members/{user_id}/remove", Permission.MEMBERS_WRITE, members.confirm_removal),
    _do("/members/{user_id}/remove", Permission.MEMBERS_WRITE, members.remove_member, members.show_members),
    _show("/usage", None, usage.show_usage),
    _do("/usage/cap", Permission.CAP_WRITE, usage.set_cap, usage.show_usage),
    _show("/organization", None, members.show_organization),
    _do(
        "/organization",
        Permission.ORGANIZATION_WRITE,
        members.rename_organization,
        members.show_organization,
    ),
    _show("/account", None, account.show_account),
    _do("/account/password", None, account.change_password, account.show_account),
    _do("/account/sessions/{session_id}/end", None, account.end_session, account.show_account),
    _do("/signout", None, signing_in.sign_out),
    _do("/signout-everywhere", None, signing_in.sign_out_everywhere),
)
