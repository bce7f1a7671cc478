"""Removing or demoting a member lists the credentials they minted and revokes them in the same step.

Proves: departures.
"""

import re

import pytest

from mauve.control.apps import mint_key, revoke_key
from mauve.control.operator import mint_token
from mauve.core.app import Environment
from mauve.core.credential import OPERATOR, KeyKind, Scope
from mauve.core.user import Role
from support.browser import shown
from support.service import bearer

EVENT = {"name": "seen"}
BOTH = {"revoke": ["tokens", "keys"]}


@pytest.fixture
def admin(signed_in):
    return signed_in(Role.ADMIN)[0]


def boxes(page):
    """Return the form fields that a browser would send: checked boxes and hidden fields."""
    found = re.findall(r'<input type="(checkbox|hidden)" name="(\w+)" value="([^"]*)"( checked)?>', page.text)
    form = {}
    for kind, name, value, checked in found:
        if kind == "hidden" or checked:
            form.setdefault(name, []).append(value)
    return form


class Minter:
    """A member who minted a token, a key, and another key with the token."""

    def __init__(self, browser, user, client, scopes=("apps:read", "keys:write", "keys:read")):
        self.browser, self.user, self._client = browser, user, client
        self.token = shown(browser.send("/tokens", {"name": "Deploy", "scopes": scopes}), "token")

    def mint_key(self, app_id):
        self.key = shown(self.browser.send(f"/apps/{app_id}/keys", {"choice": "sk_live"}), "key")
        reply = self._client.post(f"/v1/apps/{app_id}/keys", json={"kind": "sk"}, headers=bearer(self.token))
        self.key_through_token = reply.json()["key"]
        return self

    def works(self):
        """Return whether the token, the key, and the key minted with the token still work."""
        token = self._client.get("/v1/apps", headers=bearer(self.token)).status_code == 200
        keys = [
            self._client.post("/v1/events", json=EVENT, headers=bearer(key)).status_code == 202
            for key in (self.key, self.key_through_token)
        ]
        return (token, *keys)


@pytest.fixture
def app_id(admin):
    created = admin.send("/apps", {"name": "An app", "type": "saas", "ownership": "mine"})
    return created.text.partition('data-poll="/apps/')[2].partition("/")[0]


@pytest.fixture
def minter(signed_in, client, app_id):
    return Minter(*signed_in(Role.DEVELOPER), client).mint_key(app_id)


class TestRemoval:
    def test_minted_credentials_are_listed_and_revoked_by_default(self, admin, minter, keyring):
        path = f"/members/{minter.user.user_id}/remove"
        page = admin.open(path)
        for text in ("Revoke 1 control token", "Deploy", "Revoke 2 keys", "An app", "through the token Deploy"):
            assert text in page.text, text
        assert boxes(page) == BOTH
        assert minter.works() == (True, True, True)
        assert "done=member-removed" in str(admin.send(path, boxes(page)).url)
        keyring.refresh()
        assert minter.works() == (False, False, False)

    @pytest.mark.parametrize(
        ("revoke", "left"), [("tokens", (False, True, True)), ("keys", (True, False, False)), ([], (True, True, True))]
    )
    def test_unchecked_credentials_keep_working(self, admin, minter, keyring, revoke, left):
        admin.send(f"/members/{minter.user.user_id}/remove", {"revoke": revoke})
        keyring.refresh()
        assert minter.works() == left

    def test_credentials_of_others_are_left_alone(self, admin, minter, parts, app_id):
        before = parts.catalog.keys.all_of(app_id)
        theirs = parts.catalog.users.minted_by(minter.user.org_id, minter.user.user_id)
        admin.send(f"/members/{minter.user.user_id}/remove", BOTH)
        revoked = {key.key_id for key in parts.catalog.keys.all_of(app_id) if key.revoked}
        assert (len(before), revoked) == (3, {key.key_id for key in theirs.keys})

    def test_credentials_minted_while_the_page_is_open_are_revoked_too(self, admin, signed_in, client, app_id, keyring):
        browser, user = signed_in(Role.DEVELOPER)
        path = f"/members/{user.user_id}/remove"
        page = admin.open(path)
        assert "They have no active keys or tokens" in page.text
        minter = Minter(browser, user, client).mint_key(app_id)
        admin.send(path, boxes(page))
        keyring.refresh()
        assert minter.works() == (False, False, False)

    def test_a_request_in_flight_mints_nothing_for_a_removed_member(
        self, signed_in, parts, organization, client, monkeypatch, app_id
    ):
        """The request was authorized, and the member is removed before the token is stored."""
        browser, user = signed_in(Role.DEVELOPER)
        mint = type(parts.catalog.tokens).mint

        def mint_too_late(tokens, new, check):
            parts.catalog.users.remove(organization.org_id, user.user_id, lambda _members: None, lambda all_: all_)
            return mint(tokens, new, check)

        monkeypatch.setattr(type(parts.catalog.tokens), "mint", mint_too_late)
        reply = browser.send("/tokens", {"name": "Late", "scopes": "apps:read"})
        assert reply.status_code == 403
        assert "taken away a moment ago" in reply.text
        assert parts.catalog.tokens.all_of(organization.org_id) == []

    def test_a_long_list_is_shortened_and_revoked_completely(self, admin, signed_in, parts, organization):
        _, user = signed_in(Role.DEVELOPER)
        for number in range(52):
            mint_token(parts, organization.org_id, f"Token {number:03}", [Scope.APPS_READ], user.user_id)
        path = f"/members/{user.user_id}/remove"
        page = admin.open(path)
        assert ("Revoke 52 control tokens" in page.text, "and 2 more" in page.text) == (True, True)
        assert page.text.count("<b>Token 0") == 50
        admin.send(path, boxes(page))
        assert {token.revoked for token in parts.catalog.tokens.all_of(organization.org_id)} == {True}


class TestDemotion:
    def demote(self, admin, user, **form):
        return admin.send(f"/members/{user.user_id}/role", {"role": "viewer"} | form)

    def test_credentials_beyond_the_new_role_are_listed_before_anything_changes(self, admin, minter, parts):
        page = self.demote(admin, minter.user)
        for text in ("a viewer?", "Revoke 1 control token", "Deploy", "keys:write", "Revoke 2 keys"):
            assert text in page.text, text
        assert boxes(page) == BOTH | {"role": ["viewer"], "confirmed": ["yes"]}
        assert parts.catalog.users.find(minter.user.user_id).user.role is Role.DEVELOPER
        assert minter.works() == (True, True, True)

    def test_a_confirmed_demotion_revokes_them_with_the_role(self, admin, minter, parts, keyring):
        page = self.demote(admin, minter.user)
        assert "done=role-changed" in str(self.demote(admin, minter.user, **boxes(page)).url)
        keyring.refresh()
        assert parts.catalog.users.find(minter.user.user_id).user.role is Role.VIEWER
        assert minter.works() == (False, False, False)

    def test_a_confirmed_demotion_may_keep_them(self, admin, minter, parts, keyring):
        assert "done=role-changed" in str(self.demote(admin, minter.user, confirmed="yes").url)
        keyring.refresh()
        assert parts.catalog.users.find(minter.user.user_id).user.role is Role.VIEWER
        assert minter.works() == (True, True, True)

    def test_credentials_within_the_new_role_are_kept(
        self, admin, signed_in, client, parts, organization, app_id, keyring
    ):
        browser, user = signed_in(Role.ADMIN, "second@example.com")
        reading = Minter(browser, user, client, scopes=["apps:read", "keys:read", "keys:write"]).mint_key(app_id)
        writing = Minter(browser, user, client, scopes=["apps:read", "apps:write", "keys:write"]).mint_key(app_id)
        form = {"role": "developer"}
        page = admin.send(f"/members/{user.user_id}/role", form)
        assert "Revoke 1 control token<" in page.text
        assert "through" not in page.text, "a developer may mint keys, so theirs are kept"
        admin.send(f"/members/{user.user_id}/role", form | boxes(page))
        keyring.refresh()
        assert reading.works() == (True, True, True)
        assert writing.works() == (False, True, True)

    def test_no_confirmation_is_needed_when_nothing_is_beyond_the_role(self, admin, signed_in, client):
        browser, user = signed_in(Role.DEVELOPER)
        browser.send("/tokens", {"name": "Reads", "scopes": "metrics:read"})
        assert "done=role-changed" in str(self.demote(admin, user).url)


class TestMintedBy:
    def test_pages_show_the_minter_of_every_credential(self, admin, minter, parts, organization, app_id):
        (app,) = parts.catalog.apps.all_of(organization.org_id)

        mint_key(parts, app, KeyKind.SERVER, Environment.LIVE)
        mint_token(parts, organization.org_id, "By hand", [Scope.APPS_READ])
        page = admin.open(f"/apps/{app_id}/keys").text
        for text in ("admin@example.com", "developer@example.com", "the token Deploy", "the command line"):
            assert text in page, text
        tokens = admin.open("/tokens").text
        assert ("developer@example.com" in tokens, "the command line" in tokens) == (True, True)
        admin.send(f"/members/{minter.user.user_id}/remove", {"revoke": []})
        assert "a former member" in admin.open("/tokens").text
        assert {token.minted_by for token in parts.catalog.tokens.all_of(organization.org_id)} == {
            OPERATOR,
            minter.user.user_id,
        }

    def test_the_api_records_the_minting_token_but_does_not_return_it(self, api, parts, organization):
        app = api.post("/v1/apps", json={"name": "An app"}).json()
        (token,) = parts.catalog.tokens.all_of(organization.org_id)
        (key,) = parts.catalog.keys.all_of(app["app_id"])
        assert key.minted_by == token.token_id
        (listed,) = api.get(f"/v1/apps/{app['app_id']}/keys").json()
        assert set(listed) == {"key_id", "kind", "masked", "revoked", "mirrored_at", "created_at"}

    def test_only_the_last_hundred_revoked_keys_are_shown(self, admin, parts, organization, app_id):
        (app,) = parts.catalog.apps.all_of(organization.org_id)

        for _ in range(102):
            revoke_key(parts, app, mint_key(parts, app, KeyKind.SERVER, Environment.LIVE)[0])
        page = admin.open(f"/apps/{app_id}/keys").text
        assert "and 2 more, revoked earlier" in page
        assert page.count("<code>sk_live_") == 101
