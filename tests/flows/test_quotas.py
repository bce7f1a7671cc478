"""Quotas of an organization: one more is refused with a message that says what to do.

Proves: quotas.
"""

import dataclasses
import sqlite3
from concurrent.futures import ThreadPoolExecutor

import pytest

from mauve.access.sessions import begin_session
from mauve.control import people
from mauve.control.operator import create_organization, mint_token
from mauve.control.people import set_password
from mauve.core.credential import Scope
from mauve.core.organization import IN_ALL, Quotas
from mauve.core.secret import Secret
from mauve.core.user import Role
from support.browser import Browser, cookies_of
from support.service import mauve, mauve_json

QUOTAS = Quotas(apps=3, keys_per_app=2, keys=5, tokens=2, members=2)


@pytest.fixture
def settings(settings):
    return dataclasses.replace(settings, quotas=QUOTAS)


@pytest.fixture
def owner(client, parts, organization, clock, settings):
    user, _ = people.create_user(parts, organization.org_id, "owner@example.com", Role.OWNER)
    secret = begin_session(parts.catalog.sessions, user.user_id, "test", clock.now_ms(), parts.randomness)
    browser = Browser(client)
    browser.cookies = cookies_of(settings, secret)
    return browser


def assert_is_too_many(reply, sentence):
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid_body")
    assert sentence in reply.json()["error"]["message"]
    assert "have the operator raise MAUVE_" in reply.json()["error"]["message"]


class TestApps:
    def test_one_app_too_many_is_refused_by_the_api_and_by_the_page(self, api, owner):
        made = [api.post("/v1/apps", json={"name": "An app"}).status_code for _ in range(3)]
        assert made == [201] * 3
        refused = api.post("/v1/apps", json={"name": "An app"})
        assert_is_too_many(refused, "this organization has 3 apps")
        page = owner.send("/apps", {"name": "An app", "type": "saas", "ownership": "mine"})
        assert page.status_code == 400
        assert refused.json()["error"]["message"][1:] in page.text, "the same sentence, with a capital"
        assert len(api.get("/v1/apps").json()) == 3

    def test_concurrent_requests_do_not_exceed_the_limit(self, api):
        with ThreadPoolExecutor(8) as threads:
            asked = [threads.submit(api.post, "/v1/apps", json={"name": "An app"}) for _ in range(12)]
            statuses = sorted(each.result().status_code for each in asked)
        assert statuses.count(201) == len(api.get("/v1/apps").json()) == 3
        assert set(statuses) == {201, 400}

    def test_another_organization_has_its_own_limit(self, api, parts, client):
        for _ in range(4):
            api.post("/v1/apps", json={"name": "An app"})
        other = create_organization(parts, "Other")
        _, token = mint_token(parts, other.org_id, "t", Scope)
        headers = {"authorization": f"Bearer {token.reveal()}"}
        assert client.post("/v1/apps", json={"name": "An app"}, headers=headers).status_code == 201


class TestKeys:
    @pytest.fixture
    def app_ids(self, api):
        return [api.post("/v1/apps", json={"name": "An app"}).json()["app_id"] for _ in range(3)]

    def mint(self, api, app_id):
        return api.post(f"/v1/apps/{app_id}/keys", json={"kind": "sk"})

    def test_the_working_keys_of_an_app_are_limited_and_revoking_one_makes_room(self, api, app_ids, owner):
        first, *_ = app_ids
        key_id = self.mint(api, first).json()["key_id"]
        assert_is_too_many(self.mint(api, first), "this app has 2 keys that work")
        page = owner.send(f"/apps/{first}/keys", {"choice": "pk_live"})
        assert (page.status_code, "This app has 2 keys that work" in page.text) == (400, True)
        api.delete(f"/v1/apps/{first}/keys/{key_id}")
        assert self.mint(api, first).status_code == 201

    def test_the_working_keys_of_an_organization_are_limited(self, api, app_ids):
        one, two, three = app_ids
        assert [self.mint(api, one).status_code, self.mint(api, two).status_code] == [201, 201]
        assert_is_too_many(self.mint(api, three), "the apps of this organization have 5 keys that work")

    def test_revoked_keys_stay_listed_and_are_limited_too(self, api, app_ids):
        first, *_ = app_ids
        minted = 1
        while (reply := self.mint(api, first)).status_code == 201:
            minted += 1
            api.delete(f"/v1/apps/{first}/keys/{reply.json()['key_id']}")
        assert_is_too_many(reply, f"this app has {2 * IN_ALL} keys with the revoked ones")
        assert minted == len(api.get(f"/v1/apps/{first}/keys").json()) == 2 * IN_ALL


class TestTokensAndMembers:
    def test_tokens(self, owner, parts, organization):
        for _ in range(2):
            assert owner.send("/tokens", {"name": "t", "scopes": "apps:read"}).status_code == 200
        page = owner.send("/tokens", {"name": "t", "scopes": "apps:read"})
        assert (page.status_code, "has 2 control tokens that work" in page.text) == (400, True)
        one, _ = parts.catalog.tokens.all_of(organization.org_id)
        owner.send(f"/tokens/{one.token_id}/revoke")
        assert owner.send("/tokens", {"name": "t", "scopes": "apps:read"}).status_code == 200

    def test_members_invited_ones_included(self, owner, parts, organization):
        assert owner.send("/members", {"email": "a@example.com", "role": "viewer"}).status_code == 200
        page = owner.send("/members", {"email": "b@example.com", "role": "viewer"})
        assert (page.status_code, "has 2 members with the invited ones" in page.text) == (400, True)
        assert len(parts.catalog.users.all_of(organization.org_id)) == 2

    @pytest.mark.embedded
    def test_links_of_one_user_do_not_pile_up(self, parts, organization, settings):
        user, link = people.create_user(parts, organization.org_id, "a@example.com", Role.OWNER)
        for _ in range(3):
            set_password(parts, link.path.reveal().rpartition("/")[2], Secret("correct horse battery"))
            link = people.renew_link(parts, user)
        rows = sqlite3.connect(settings.data / "catalog.db").execute("SELECT count(*) FROM links").fetchone()
        assert rows == (1,)


def test_the_command_line_refuses_with_one_sentence_and_exit_code_2(tmp_path):
    data = tmp_path / "data"
    org = mauve_json(data, "org", "create", "Acme")["org_id"]
    arguments = ("token", "mint", "--org", org, "--scopes", "apps:read")
    assert mauve(data, *arguments, MAUVE_TOKENS_PER_ORGANIZATION="1").returncode == 0
    refused = mauve(data, *arguments, MAUVE_TOKENS_PER_ORGANIZATION="1")
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
    assert "has 1 control tokens that work, the most that is allowed" in refused.stderr
    people = ("user", "create", "--org", org, "--role", "owner", "--email")
    assert mauve(data, *people, "a@example.com", MAUVE_MEMBERS_PER_ORGANIZATION="1").returncode == 0
    refused = mauve(data, *people, "b@example.com", MAUVE_MEMBERS_PER_ORGANIZATION="1")
    assert (refused.returncode, "1 members with the invited ones" in refused.stderr) == (2, True)
