"""The dashboard refuses whatever the caller may not do."""

import dataclasses
import re
from urllib.parse import urlsplit

import pytest
from starlette.routing import compile_path

from mauve.alerts import edit as alerts_edit
from mauve.alerts.rules import NoEvents
from mauve.control import operator, people
from mauve.control.apps import create_app
from mauve.control.bodies import NewAppBody
from mauve.core.credential import Scope
from mauve.core.user import Role, may
from mauve.dashboard.rendering import asset_url
from mauve.dashboard.routes import MEMBER, PUBLIC
from mauve.stores import StoreUnavailableError
from mauve.wiring.api import session_cookie
from support.browser import PASSWORD, Browser

FORMS = {
    "/apps": {"name": "New", "type": "saas", "ownership": "mine"},
    "/apps/{app_id}/settings": {"name": "New", "type": "saas", "ownership": "mine"},
    "/apps/{app_id}/keys": {"choice": "pk_live"},
    "/apps/{app_id}/webhooks/{environment}/{provider}": {"secret": "whsec_of_some_length_at_all"},
    "/tokens": {"name": "New", "scopes": ["apps:read"]},
    "/members": {"email": "new@example.com", "role": "viewer"},
    "/members/{user_id}/role": {"role": "developer"},
    "/usage/cap": {"cap": "7"},
    "/organization": {"name": "New"},
    "/account/password": {"current": "wrong", "password": "another password"},
    "/alerts/wishes": {"digest": "daily"},
    "/alerts/times": {"time_zone": "UTC", "digest_hour": "8"},
    "/alerts/channels": {"kind": "slack", "name": "Chat", "address": "https://hooks.example.com/x"},
    "/alerts/rules/{kind}": {"hours": "1", "cooldown": "24"},
}
REFUSED = {
    "/account/password": "the current password was wrong",
    "/alerts/rules/{kind}": "no app was chosen",
    "/alerts/wishes/test": "e-mail is not set up",
}
REFERENCE = "/docs"
CHANGES = [action for action in MEMBER if action.method == "POST"]
NAMES = [f"{action.method} {action.path}" for action in MEMBER]


def member_page(method, path):
    """Return the member's page at a path, or None."""
    pages = [page for page in MEMBER if page.method == method and compile_path(page.path)[0].fullmatch(path)]
    return pages[0] if pages else None


@pytest.fixture
def place(parts, organization, core, client):
    """Fill in the parameters of a path with a new app, key, member, token and more of the organization."""

    def an_app():
        app, _ = create_app(parts, organization.org_id, NewAppBody("An app"))
        return app

    def a_key(app):
        (key,) = parts.catalog.keys.all_of(app.app_id)
        return key.key_id

    def a_member(minted_by):
        email = f"beside-{minted_by}@example.com"
        return people.create_user(parts, organization.org_id, email, Role.VIEWER)[0].user_id

    def a_session(minted_by):
        (session,) = parts.catalog.sessions.all_of(minted_by)
        return session.session_id

    def a_rule(minted_by, app):
        user = parts.catalog.users.find(minted_by).user
        return alerts_edit.create_rule(core.dashboard.alerts, user, app, NoEvents(hours=1)).rule_id

    def a_channel(minted_by):
        user = parts.catalog.users.find(minted_by).user
        return alerts_edit.create_channel(core.dashboard.alerts, user, **FORMS["/alerts/channels"])[0].channel_id

    def fill(path, minted_by):
        app = an_app() if re.search("{(app|key|rule)_id}", path) else None
        makers = {
            "app_id": lambda: app.app_id,
            "key_id": lambda: a_key(app),
            "user_id": lambda: a_member(minted_by),
            "token_id": lambda: operator.mint_token(parts, organization.org_id, "t", [Scope.APPS_READ], minted_by)[0],
            "session_id": lambda: a_session(minted_by),
            "environment": lambda: "live",
            "provider": lambda: "biller_a",
            "metric": lambda: "dau",
            "kind": lambda: "no_events",
            "rule_id": lambda: a_rule(minted_by, app),
            "channel_id": lambda: a_channel(minted_by),
        }
        return re.sub("{([a-z_]+)}", lambda name: makers[name[1]](), path)

    return fill


@pytest.mark.parametrize("role", Role)
def test_a_role_can_do_what_the_table_grants_and_nothing_else(signed_in, place, role):
    """Each action is taken by a new member, on new objects."""
    for number, (name, action) in enumerate(zip(NAMES, MEMBER, strict=True)):
        browser, user = signed_in(role, f"{number}@example.com")
        reply = browser.ask(action.method, place(action.path, user.user_id), FORMS.get(action.path))
        if action.needs is not None and not may(role, action.needs):
            assert reply.status_code == 403, name
            assert "does not include this" in reply.text, name
        elif action.path in REFUSED:
            assert reply.status_code == 400, REFUSED[action.path]
        else:
            assert reply.status_code in {200, 303}, name


@pytest.mark.parametrize("role", Role)
def test_a_page_offers_only_what_the_role_may_do(signed_in, place, role):
    browser, user = signed_in(role)
    home = place("/apps/{app_id}", user.user_id)
    place("{user_id}{token_id}", user.user_id)  # which pages then list
    to_look_at, seen, offered = ["/", home], set(), set()
    while to_look_at:
        path = to_look_at.pop()
        seen.add(path)
        text = browser.open(path).text
        links = {("GET", urlsplit(target).path) for target in re.findall(r'<a [^>]*href="(/[^"]*)"', text)}
        forms = {("POST", urlsplit(target).path) for target in re.findall(r'<form [^>]*action="([^"]*)"', text)}
        assert ("GET", REFERENCE) in links or not text.lstrip().startswith("<!doctype"), path
        # The reference and the documentation site, if it was built, are public and not part of the dashboard.
        links = {link for link in links if not link[1].startswith(REFERENCE)}
        offered |= links | forms
        to_look_at += [target for _, target in links if target not in seen and target not in to_look_at]
    actions = [member_page(method, path) for method, path in offered]
    assert None not in actions
    assert len(actions) > 10
    forbidden = [action.path for action in actions if action.needs and not may(role, action.needs)]
    assert forbidden == []


def test_without_a_session_nothing_is_shown_or_changed(client, parts, organization, signed_in):
    signed_in(Role.OWNER)
    before = (parts.catalog.users.all_of(organization.org_id), parts.catalog.tokens.all_of(organization.org_id))
    for action in MEMBER:
        reply = Browser(client).ask(
            action.method, action.path.replace("{", "").replace("}", ""), FORMS.get(action.path)
        )
        assert (reply.status_code, urlsplit(reply.headers["location"]).path) == (303, "/signin"), action.path
        assert reply.content == b""
    after = (parts.catalog.users.all_of(organization.org_id), parts.catalog.tokens.all_of(organization.org_id))
    assert before == after


class TestOtherSites:
    ELSEWHERE = (
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"sec_fetch_site": "none"},
        {"sec_fetch_site": "cross-site", "origin": "http://testserver"},
        {"sec_fetch_site": "", "origin": "http://evil.example"},
        {"sec_fetch_site": "", "origin": "null"},
        {"sec_fetch_site": "", "origin": "http://testserver.evil.example"},
        {"sec_fetch_site": "", "origin": "http://testserver:81"},
        {"sec_fetch_site": "", "origin": ""},
    )

    @pytest.mark.parametrize("headers", ELSEWHERE, ids=str)
    def test_a_form_that_another_site_sends_changes_nothing(self, signed_in, parts, organization, headers):
        owner, _ = signed_in(Role.OWNER)
        reply = owner.ask("POST", "/organization", {"name": "Stolen"}, **headers)
        assert reply.status_code == 403
        assert parts.catalog.organizations.find(organization.org_id).name == "Acme"

    def test_every_action_checks_the_origin(self, signed_in):
        owner, _ = signed_in(Role.OWNER)
        by_mail_programs = [page for page in PUBLIC if page.is_one_click]
        assert [page.path for page in by_mail_programs] == ["/unsubscribe/{token}/{wish}"], "its token is the check"
        forms = [page for page in PUBLIC if page.method == "POST" and page not in by_mail_programs]
        for route in (*CHANGES, *forms):
            path = route.path.replace("{", "").replace("}", "")
            assert owner.ask("POST", path, FORMS.get(route.path), sec_fetch_site="cross-site").status_code == 403

    @pytest.mark.parametrize("headers", [{"sec_fetch_site": "", "origin": "http://testserver"}, {}], ids=str)
    def test_forms_of_our_own_pages_are_accepted(self, signed_in, parts, organization, headers):
        owner, _ = signed_in(Role.OWNER)
        assert owner.ask("POST", "/organization", {"name": "Mine"}, **headers).status_code == 303
        assert parts.catalog.organizations.find(organization.org_id).name == "Mine"

    def test_get_never_changes_anything(self, signed_in, parts, organization):
        """A link on another site can only open a page, and no page changes anything."""
        owner, _ = signed_in(Role.OWNER)
        for action in CHANGES:
            reply = owner.ask("GET", action.path.replace("{", "").replace("}", ""))
            assert reply.status_code in {200, 404, 405}


class TestHeaders:
    PAGES = ("/signin", "/setup/nonsense", "/apps", "/nowhere", "/account")

    @pytest.mark.parametrize("path", PAGES)
    def test_every_page_has_the_security_headers(self, signed_in, path):
        owner, _ = signed_in(Role.OWNER)
        headers = owner.ask("GET", path).headers
        policy = headers["content-security-policy"]
        for rule in ("default-src 'self'", "frame-ancestors 'none'", "form-action 'self'", "base-uri 'none'"):
            assert rule in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert headers["referrer-policy"] == "same-origin"

    def test_no_page_needs_what_the_policy_forbids(self, signed_in, place):
        owner, user = signed_in(Role.OWNER)
        own = place("/apps/{app_id}", user.user_id)
        place("{user_id}{token_id}", user.user_id)  # which pages then list
        of_app = [
            own + path
            for path in ("", "/events?name=view", "/payments", "/subscriptions", "/webhooks", "/keys", "/settings")
        ]
        for path in (
            "/",
            *of_app,
            "/signin",
            "/apps",
            "/apps/new",
            "/tokens",
            "/members",
            "/usage",
            "/alerts",
            "/organization",
            "/account",
        ):
            text = owner.open(path).text
            assert re.findall(r"<style|style=|<script(?! [^>]*src=\"/static/)|\son[a-z]+=|javascript:", text) == []
            assert re.findall(r'(?:src|href)="(?:https?:)?//', text) == []

    def test_assets_are_named_by_content_and_cached_forever(self, browser):
        text = browser.open("/signin").text
        paths = set(re.findall(r'(?:src|href)="(/static/[^"]+)"', text))
        assert len(paths) == 4
        for path in paths:
            reply = browser.ask("GET", path)
            assert reply.status_code == 200
            assert "immutable" in reply.headers["cache-control"]
            assert reply.headers["x-content-type-options"] == "nosniff"
        assert browser.ask("GET", "/static/style.css").status_code == 404
        assert browser.ask("GET", "/static/../../config.py").status_code == 404

    def test_assets_do_not_need_the_catalog(self, signed_in, parts, monkeypatch):
        def fail(_self, _digest):
            raise StoreUnavailableError("down")

        owner, _ = signed_in(Role.OWNER)
        monkeypatch.setattr(type(parts.catalog.sessions), "find", fail)
        assert owner.ask("GET", "/apps").status_code == 503
        assert owner.ask("GET", asset_url("style.css")).status_code == 200

    def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(self, browser, setup_path):
        form = {"organization": "Acme", "email": "ann@example.com", "password": PASSWORD}
        cookie = browser.ask("POST", setup_path, form).headers["set-cookie"]
        assert cookie.startswith("mauve_session_")
        assert {"HttpOnly", "SameSite=Lax", "Path=/"} <= set(cookie.split("; "))
        assert "Secure" not in cookie


class TestBehindTls:
    @pytest.fixture
    def settings(self, settings):
        return dataclasses.replace(settings, public_url="https://mauve.example/", proxies=1)

    def test_the_cookie_is_secure_and_for_this_host_alone(self, browser, setup_path):
        form = {"organization": "Acme", "email": "ann@example.com", "password": PASSWORD}
        cookie = browser.ask("POST", setup_path, form, sec_fetch_site="", origin="https://mauve.example")
        parts = cookie.headers["set-cookie"].split("; ")
        assert parts[0].startswith("__Host-mauve_session_")
        assert {"HttpOnly", "SameSite=Lax", "Path=/", "Secure"} <= set(parts)
        assert "Domain" not in cookie.headers["set-cookie"]
        assert browser.ask("GET", "/apps").status_code == 200
        page = browser.send("/members", {"email": "bo@example.com", "role": "viewer"})
        assert "https://mauve.example/password/" in page.text

    def test_attempts_are_counted_by_the_address_that_the_proxy_names(self, client):
        def attempt(number):
            headers = {"x_forwarded_for": f"6.6.6.6, 10.0.0.{number}"}
            return Browser(client).ask("POST", "/signin", {"email": f"{number}@example.com"}, **headers).status_code

        assert {attempt(number) for number in range(40)} == {400}


class TestPaths:
    def test_an_unknown_path_is_a_page_for_browsers_and_an_envelope_for_programs(self, client, browser):
        page = browser.ask("GET", "/nowhere")
        assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
        assert "Page not found" in page.text
        for accept in ("*/*", "application/json"):
            reply = client.get("/nowhere", headers={"accept": accept})
            assert (reply.status_code, reply.json()["ok"]) == (404, False)
        assert client.post("/nowhere", headers={"accept": "text/html"}).json()["ok"] is False

    @pytest.mark.parametrize("path", ["/v1/nowhere", "/v1", "/v1/metrics/nonsense", "/v1/webhooks/x/y"])
    def test_an_api_path_keeps_its_envelope_even_in_a_browser(self, browser, path):
        reply = browser.ask("GET", path)
        assert reply.headers["content-type"] == "application/json"
        assert reply.json()["ok"] is False

    def test_health_is_for_programs(self, browser):
        assert browser.ask("GET", "/healthz").json() == {"ok": True}
        assert browser.ask("GET", "/readyz").headers["content-type"] == "application/json"

    @pytest.mark.parametrize(
        "path", ["/apps/", "/apps/x/y/z", "/apps/%2e%2e/keys", "/apps/app_x%2fkeys", "/apps%0a", "/signin/"]
    )
    def test_near_misses_of_a_path_are_404(self, signed_in, path):
        owner, _ = signed_in(Role.OWNER)
        assert owner.ask("GET", path).status_code == 404

    def test_a_head_request_has_the_headers_and_no_body(self, browser):
        reply = browser.ask("HEAD", "/signin")
        assert (reply.status_code, reply.content) == (200, b"")


class TestBadForms:
    def test_a_body_that_is_not_a_form_is_refused(self, signed_in):
        owner, _ = signed_in(Role.OWNER)
        assert owner.ask("POST", "/organization", content_type="application/json").status_code == 415
        assert owner.ask("POST", "/organization", {"name": "x" * 70_000}).status_code == 413
        assert owner.ask("POST", "/organization", {f"f{n}": "1" for n in range(101)}).status_code == 400

    def test_a_form_that_is_not_utf_8_is_refused(self, client, signed_in):
        owner, _ = signed_in(Role.OWNER)
        cookie = "; ".join(f"{name}={value}" for name, value in owner.cookies.items())
        headers = {
            "content-type": "application/x-www-form-urlencoded",
            "sec-fetch-site": "same-origin",
            "cookie": cookie,
        }
        for body in (b"name=%ff", b"name=\xff", b"name=%ed%a0%80"):
            assert client.post("/organization", content=body, headers=headers).status_code == 400

    @pytest.mark.parametrize("cookie", ["NAME=", "NAME=x", "NAME=" + "a" * 40, "=;;\x01"])
    def test_an_invalid_cookie_is_not_a_session(self, client, settings, cookie):
        cookie = cookie.replace("NAME", session_cookie(settings).name)
        reply = client.get("/apps", headers={"cookie": cookie, "accept": "text/html"}, follow_redirects=False)
        assert reply.status_code == 303
