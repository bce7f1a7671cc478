"""Signing in and out, one-time links, and what the account page does.

Proves: password-guessing.
"""

import html
import re
from dataclasses import replace

import pytest
from starlette.testclient import TestClient

from mauve.access.sessions import IDLE_MS, LIFETIME_MS
from mauve.access.sign_in_attempts import ADDRESS_BURST, PAIR_BURST
from mauve.config import settings_from
from mauve.control import people
from mauve.control.people import LINK_LIFETIME_MS
from mauve.core.user import Role
from mauve.wiring.api import session_cookie
from mauve.wiring.bootstrap import prepare
from support.browser import PASSWORD, Browser, shown

ANN = "ann@example.com"
DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def stranger(client):
    return Browser(client, agent="Mozilla/5.0 (iPhone; CPU iPhone OS 19_0 like Mac OS X) Safari/605.1")


def is_in(browser):
    return browser.ask("GET", "/apps").status_code == 200


class TestSetup:
    def test_the_setup_link_works_once(self, browser, stranger, setup_path):
        form = {"organization": "Acme", "email": ANN, "password": PASSWORD}
        assert browser.send(setup_path, form).status_code == 200
        assert is_in(browser)
        late = stranger.send(setup_path, form | {"email": "bo@example.com"})
        assert late.status_code == 404
        assert stranger.open(setup_path).status_code == 404
        assert not is_in(stranger)

    def test_before_the_first_account_the_start_page_says_where_the_link_is(self, browser, setup_path):
        page = browser.open("/")
        assert "First time?" in page.text
        assert "mauve user link" in page.text
        assert 'href="/docs"' in page.text
        assert 'name="password"' not in page.text, "there is no account yet"
        browser.send(setup_path, {"organization": "Acme", "email": " Ann@Example.COM ", "password": PASSWORD})
        assert 'href="/docs"' in browser.open("/").text
        browser.send("/signout")
        page = browser.open("/")
        assert "First time?" not in page.text
        assert browser.send("/signin", {"email": "ANN@example.com", "password": PASSWORD}).status_code == 200
        assert is_in(browser)

    @pytest.mark.parametrize(
        "flaw",
        [
            {"organization": " "},
            {"email": "not-an-address"},
            {"password": "short"},
            {"password": "a" * 12},
            {"password": ANN},
        ],
    )
    def test_a_refused_form_does_not_consume_the_link(self, browser, setup_path, flaw):
        form = {"organization": "Acme", "email": ANN, "password": PASSWORD}
        refused = browser.send(setup_path, form | flaw)
        assert refused.status_code == 400
        assert 'role="alert"' in refused.text
        assert PASSWORD not in refused.text
        assert browser.send(setup_path, form).status_code == 200
        assert is_in(browser)

    def test_it_expires(self, browser, setup_path, clock):
        clock.advance(LINK_LIFETIME_MS)
        form = {"organization": "Acme", "email": ANN, "password": PASSWORD}
        assert browser.send(setup_path, form).status_code == 404
        assert "This link does not work" in browser.open(setup_path).text


class TestPasswordLinks:
    @pytest.fixture
    def link(self, parts, organization):
        return people.create_user(parts, organization.org_id, ANN, Role.DEVELOPER)[1].path.reveal()

    def test_a_link_works_once(self, browser, stranger, link):
        assert browser.send(link, {"password": "short"}).status_code == 400
        assert browser.send(link, {"password": PASSWORD}).status_code == 200
        assert is_in(browser)
        assert stranger.send(link, {"password": "another password"}).status_code == 404
        assert stranger.sign_in(ANN).status_code == 200
        assert is_in(stranger)

    def test_it_expires(self, browser, link, clock):
        clock.advance(LINK_LIFETIME_MS)
        assert browser.send(link, {"password": PASSWORD}).status_code == 404

    def test_a_reset_ends_open_sessions_and_the_old_password(self, browser, stranger, link, parts):
        browser.send(link, {"password": PASSWORD})
        reset = people.renew_link(parts, people.find_account(parts, ANN)).path.reveal()
        assert is_in(browser), "making the link changes nothing"
        stranger.send(reset, {"password": "a new password"})
        assert is_in(stranger)
        assert not is_in(browser)
        assert browser.sign_in(ANN, PASSWORD).status_code == 400
        assert browser.sign_in(ANN, "a new password").status_code == 200

    def test_a_link_works_only_for_its_own_purpose(self, browser, setup_path, parts, organization):
        secret = setup_path.rpartition("/")[2]
        assert browser.open(f"/password/{secret}").status_code == 404
        assert browser.send(f"/password/{secret}", {"password": PASSWORD}).status_code == 404
        user, link = people.create_user(parts, organization.org_id, ANN, Role.VIEWER)
        other = link.path.reveal().rpartition("/")[2]
        form = {"organization": "Acme", "email": "bo@example.com", "password": PASSWORD}
        assert browser.send(f"/setup/{other}", form).status_code == 404
        assert people.find_password_link(parts, other)[1] == user


class TestSigningIn:
    def test_a_page_asks_to_sign_in_and_then_opens(self, owner, stranger):
        asked = stranger.ask("GET", "/tokens")
        assert (asked.status_code, asked.headers["location"]) == (303, "/signin?next=%2Ftokens")
        form = {"email": " ANN@example.com", "password": PASSWORD, "next": "/tokens"}
        signed_in = stranger.ask("POST", "/signin", form)
        assert (signed_in.status_code, signed_in.headers["location"]) == (303, "/tokens")
        assert is_in(stranger)
        for query, target in {"": "/", "?next=%2Ftokens": "/tokens", "?next=%2F%2Fevil.example": "/"}.items():
            assert stranger.ask("GET", f"/signin{query}").headers["location"] == target, query

    def test_the_query_of_the_page_survives_signing_in(self, owner, stranger):
        page = "/alerts?days=7&name=a%26b+c&x=%C3%A9"
        asked = stranger.open(page)
        assert 'name="next" value="/alerts?days=7&amp;name=a%26b+c&amp;x=%C3%A9"' in asked.text
        form = {
            "email": ANN,
            "password": PASSWORD,
            "next": html.unescape(re.search('name="next" value="([^"]*)"', asked.text)[1]),
        }
        assert stranger.ask("POST", "/signin", form).headers["location"] == page

    @pytest.mark.embedded
    def test_two_installations_on_one_host_have_cookies_of_their_own(self, tmp_path):
        """Ports share cookies: with one name, signing in to one would sign out of the other."""
        names = set()
        for folder in ("one", "two"):
            settings = settings_from({"MAUVE_DATA": str(tmp_path / folder)})
            prepare(settings)
            names |= {session_cookie(settings).name, session_cookie(replace(settings, public_url="https://a.b")).name}
        assert len(names) == 4
        assert sum(name.startswith("__Host-mauve_session_") for name in names) == 2

    @pytest.mark.embedded  # no engine sees the address
    @pytest.mark.parametrize(
        "path", ["//evil.example", "//evil.example?a=b", "https://evil.example", "/\\evil.example", "\\", "", "/a\r\nb"]
    )
    def test_signing_in_never_redirects_to_another_site(self, owner, stranger, path):
        reply = stranger.ask("POST", "/signin", {"email": ANN, "password": PASSWORD, "next": path})
        assert (reply.status_code, reply.headers["location"]) == (303, "/")

    def test_a_wrong_password_and_an_unknown_or_invited_user_get_the_same_answer(self, owner, client):
        owner.send("/members", {"email": "bo@example.com", "role": "viewer"})
        replies = [
            Browser(client).sign_in(email, password)
            for email, password in ((ANN, "wrong password"), ("no@example.com", PASSWORD), ("bo@example.com", PASSWORD))
        ]
        assert {reply.status_code for reply in replies} == {400}
        texts = [reply.text.replace("bo@", "no@").replace("ann@", "no@") for reply in replies]
        assert len(set(texts)) == 1

    def test_signing_in_starts_a_new_session_and_ends_the_previous_one(self, owner, client):
        before = dict(owner.cookies)
        owner.send("/signin", {"email": ANN, "password": PASSWORD})
        assert owner.cookies != before
        old = Browser(client)
        old.cookies = before
        assert is_in(owner)
        assert not is_in(old)

    def test_attempts_at_an_account_from_one_address_are_limited_even_with_the_right_password(
        self, owner, client, clock
    ):
        guesses = [
            Browser(client).ask("POST", "/signin", {"email": ANN, "password": "wrong password"})
            for _ in range(PAIR_BURST)
        ]
        assert {reply.status_code for reply in guesses} == {400}
        limited = Browser(client).ask("POST", "/signin", {"email": ANN, "password": PASSWORD})
        assert (limited.status_code, limited.headers["retry-after"]) == (429, "60")
        clock.advance(60_000)
        late = Browser(client)
        assert late.sign_in(ANN).status_code == 200
        assert is_in(late)

    def test_guessing_from_one_address_does_not_lock_the_owner_out(self, owner, core, client):
        guesser = Browser(TestClient(core, client=("192.0.2.66", 50000)))
        for _ in range(PAIR_BURST + 5):
            last = guesser.ask("POST", "/signin", {"email": ANN, "password": "wrong password"})
        assert last.status_code == 429
        at_home = Browser(client)
        assert at_home.sign_in(ANN).status_code == 200
        assert is_in(at_home)

    @pytest.mark.embedded  # no engine sees the header
    @pytest.mark.parametrize(
        "foreign",
        [
            'prefs={"a":1}',
            "theme=dark mode",
            "a[b]=1",
            "nonsense",
            "=nameless",
            "caf\u00e9=cr\u00e8me",
            'quoted="half',
            "a,b=c@d",
        ],
    )
    def test_cookies_of_other_services_on_this_host_are_harmless(self, owner, client, foreign):
        """Ports share cookies: browsers send us those of other services on the host."""
        browser = Browser(client)
        (own,) = (f"{name}={credential}" for name, credential in owner.cookies.items())
        for cookies in (f"{foreign}; {own}", f"{own}; {foreign}"):
            assert browser.ask("GET", "/apps", cookie=cookies.encode()).status_code == 200

    def test_attempts_from_one_address_are_limited_whatever_it_claims(self, client):
        statuses = [
            Browser(client)
            .ask("POST", "/signin", {"email": f"{number}@example.com"}, x_forwarded_for=f"10.0.0.{number}")
            .status_code
            for number in range(ADDRESS_BURST + 1)
        ]
        assert statuses == [400] * ADDRESS_BURST + [429]


class TestSessions:
    def test_signing_out_ends_the_session_on_the_server(self, owner, client):
        copied = Browser(client)
        copied.cookies = dict(owner.cookies)
        assert "You are signed out" in owner.send("/signout").text
        assert owner.cookies == {}
        assert not is_in(copied)

    def test_signing_out_everywhere_ends_every_session_of_that_user_only(self, owner, stranger, signed_in):
        other, _ = signed_in(Role.VIEWER)
        stranger.sign_in(ANN)
        assert is_in(stranger)
        assert "signed out in every browser" in owner.send("/signout-everywhere").text
        assert (is_in(owner), is_in(stranger), is_in(other)) == (False, False, True)

    def test_an_unused_session_expires(self, owner, clock):
        for _ in range(3):
            clock.advance(IDLE_MS - 1)
            assert is_in(owner), "each use counts"
        clock.advance(IDLE_MS)
        assert not is_in(owner)

    def test_a_session_expires_however_often_it_is_used(self, owner, clock):
        for _ in range(LIFETIME_MS // DAY_MS - 1):
            clock.advance(DAY_MS)
            assert is_in(owner)
        clock.advance(DAY_MS)
        assert not is_in(owner)

    def test_the_account_lists_sessions_and_ends_one(self, owner, stranger, parts):
        stranger.sign_in(ANN)
        page = owner.open("/account").text
        assert "Firefox on Linux" in page
        assert "Safari on iPhone" in page
        user = parts.catalog.passwords.find(ANN).user
        (other,) = [session for session in parts.catalog.sessions.all_of(user.user_id) if "iPhone" in session.agent]
        assert "That browser is signed out" in owner.send(f"/account/sessions/{other.session_id}/end").text
        assert (is_in(owner), is_in(stranger)) == (True, False)

    def test_a_member_cannot_end_the_session_of_another(self, owner, signed_in, parts):
        viewer, user = signed_in(Role.VIEWER)
        (session,) = parts.catalog.sessions.all_of(user.user_id)
        owner.send(f"/account/sessions/{session.session_id}/end")
        assert is_in(viewer)

    def test_a_new_password_needs_the_old_one_and_ends_the_other_sessions(self, owner, stranger, client):
        stranger.sign_in(ANN)
        wrong = owner.send("/account/password", {"current": "wrong password", "password": "a new password"})
        assert (wrong.status_code, is_in(stranger)) == (400, True)
        assert owner.send("/account/password", {"current": PASSWORD, "password": "short"}).status_code == 400
        before = dict(owner.cookies)
        changed = owner.send("/account/password", {"current": PASSWORD, "password": "a new password"})
        assert "The password is changed" in changed.text
        assert owner.cookies != before
        assert (is_in(owner), is_in(stranger)) == (True, False)
        assert Browser(client).sign_in(ANN, "a new password").status_code == 200

    @pytest.mark.embedded
    def test_no_credential_is_stored_in_plain_text(self, owner, settings, parts):
        link = shown(owner.send("/members", {"email": "bo@example.com", "role": "viewer"}), "link")
        hidden = [PASSWORD, *owner.cookies.values(), link.rpartition("/")[2]]
        stored = b"".join(path.read_bytes() for path in settings.data.glob("catalog.db*"))
        assert b"ann@example.com" in stored
        assert [secret for secret in hidden if secret.encode() in stored] == []
