"""The dashboard from end to end, starting at the setup link."""

import dataclasses
import re
from pathlib import Path

import pytest

from mauve.access.uses import KeyUseCopy
from mauve.control.operator import change_limits, mark_unpaid, suspend
from mauve.core.app import Environment
from mauve.core.biller import Provider
from mauve.core.credential import Scope
from mauve.core.user import Role
from mauve.dashboard import rendering
from mauve.ingest.stats import write_key_uses
from mauve.openapi import routes as reference
from mauve.stores.ledger import LoadStep
from mauve.stores.limits.read_meter import ReadCost, ReadLimits
from mauve.wiring.databases import open_load_ledger
from support.billing import SECRET_A, signed_a
from support.browser import PASSWORD, Browser, shown
from support.service import bearer

ROOT = Path(__file__).parents[2]
EVENT = {"name": "seen"}


def app_id_of(page):
    return page.text.partition('data-poll="/apps/')[2].partition("/")[0]


def create_app(browser, name="An app"):
    """Create an app; return its id and its first key."""
    created = browser.send("/apps", {"name": name, "type": "saas", "ownership": "mine"})
    assert created.status_code == 200
    return app_id_of(created), shown(created, "key")


@pytest.fixture
def admin(signed_in):
    return signed_in(Role.ADMIN)[0]


def test_from_the_setup_link_to_the_first_event(client, parts, clock, browser, setup_path):
    welcome = browser.open(setup_path)
    assert (welcome.status_code, "Welcome to Mauve" in welcome.text) == (200, True)
    home = browser.send(setup_path, {"organization": "Acme", "email": "ann@example.com", "password": PASSWORD})
    assert "Create your first app" in home.text

    created = browser.send("/apps", {"name": "  My   app ", "type": "library", "ownership": "mine"})
    assert "My app is ready" in created.text
    key, app_id = shown(created, "key"), app_id_of(created)
    assert key.startswith("sk_live_")
    assert "Waiting for the first event" in browser.open(f"/apps/{app_id}/first-event").text

    assert client.post("/v1/events", json=EVENT, headers=bearer(key)).status_code == 202
    (app,) = parts.catalog.apps.all_of(parts.catalog.organizations.list_all()[0].org_id)
    parts.catalog.apps.note_first_event(app.public_id, clock.now_ms())  # as the loader does
    fragment = browser.open(f"/apps/{app_id}/first-event")
    assert "First event received" in fragment.text
    clock.advance(60 * 60_000)  # Until then it waits for more numbers.
    assert "data-waiting" not in browser.open(f"/apps/{app_id}/first-event").text
    assert "First event received" in browser.open(f"/apps/{app_id}").text
    assert key not in browser.open(f"/apps/{app_id}/keys").text


def test_every_page_opens_and_escapes_names(owner):
    app_id, _ = create_app(owner, "<b>Bold</b> & co")
    own = f"/apps/{app_id}"
    pages = ["/apps", "/apps/new", own, f"{own}/keys", f"{own}/webhooks", f"{own}/settings"]
    for path in [*pages, "/tokens", "/members", "/usage", "/alerts", "/organization", "/account"]:
        page = owner.open(path)
        assert page.status_code == 200, path
        assert "<b>Bold</b>" not in page.text
        assert "Acme &amp; Söhne" in page.text
    assert "&lt;b&gt;Bold&lt;/b&gt; &amp; co" in owner.open(own).text


class TestApps:
    @pytest.mark.embedded  # refused before an engine is asked
    @pytest.mark.parametrize(
        "form", [{"name": " "}, {"name": "x" * 81}, {"name": "a\x07b"}, {"type": "robot"}, {"ownership": "theirs"}, {}]
    )
    def test_an_invalid_app_is_refused_and_the_form_keeps_its_values(self, admin, form):
        known = {"name": "Kept <as> typed", "type": "desktop", "ownership": "mine"} if form else {}
        refused = admin.send("/apps", known | form)
        assert refused.status_code == 400
        assert 'role="alert"' in refused.text
        assert ("Kept &lt;as&gt; typed" in refused.text) is ("name" not in form and bool(form))
        assert "No apps yet" in admin.open("/apps").text

    def test_settings_are_normalized_and_checked_as_in_the_api(self, admin, parts, organization):
        app_id, _ = create_app(admin)
        form = {"name": "  New   name", "type": "other", "ownership": "client_operated"}
        saved = admin.send(f"/apps/{app_id}/settings", form)
        assert "Saved." in saved.text
        app = parts.catalog.apps.find(organization.org_id, app_id)
        assert (app.name, app.type, app.ownership) == ("New name", "other", "client_operated")
        refused = admin.send(f"/apps/{app_id}/settings", form | {"name": ""})
        assert refused.status_code == 400
        assert parts.catalog.apps.find(organization.org_id, app_id).name == "New name"

    def test_an_app_of_another_organization_is_not_found(self, owner, admin):
        app_id, _ = create_app(admin)
        for path in ("", "/keys", "/webhooks", "/settings", "/first-event"):
            assert owner.open(f"/apps/{app_id}{path}").status_code == 404
        assert owner.send(f"/apps/{app_id}/keys", {"choice": "sk_live"}).status_code == 404


class TestKeys:
    @pytest.mark.parametrize(("choice", "statuses"), [("sk_live", (202, 202)), ("pk_live", (202, 403))])
    def test_a_minted_key_is_shown_once_and_works(self, client, admin, choice, statuses):
        app_id, _ = create_app(admin)
        minted = admin.send(f"/apps/{app_id}/keys", {"choice": choice})
        key = shown(minted, "key")
        assert key.startswith(f"{choice}_")
        assert minted.text.count(key) > 1, "in the snippets too"
        payment = {"name": "payment", "id": "1", "props": {"amount": 1, "currency": "eur"}}
        answered = tuple(
            client.post("/v1/events", json=body, headers=bearer(key)).status_code for body in (EVENT, payment)
        )
        assert answered == statuses
        listed = admin.open(f"/apps/{app_id}/keys").text
        assert key not in listed
        assert f"{key[:12]}…{key[-4:]}" in listed

    def test_a_key_is_revoked_after_a_confirmation(self, client, keyring, parts, admin):
        app_id, key = create_app(admin)
        (stored,) = parts.catalog.keys.all_of(app_id)
        path = f"/apps/{app_id}/keys/{stored.key_id}/revoke"
        assert "cannot be undone" in admin.open(path).text
        assert parts.catalog.keys.all_of(app_id)[0].revoked is False, "opening the confirmation changes nothing"
        assert "The key is revoked" in admin.send(path).text
        keyring.refresh()
        assert client.post("/v1/events", json=EVENT, headers=bearer(key)).status_code == 401

    def test_a_key_has_a_name_if_it_is_given_one(self, parts, admin):
        app_id, _ = create_app(admin)
        admin.send(f"/apps/{app_id}/keys", {"choice": "pk_live", "name": "  Web <site> "})
        (named,) = [key for key in parts.catalog.keys.all_of(app_id) if key.name]
        assert named.name == "Web <site>"
        assert "Web &lt;site&gt;" in admin.open(f"/apps/{app_id}/keys").text
        assert "Web &lt;site&gt;" in admin.open(f"/apps/{app_id}/keys/{named.key_id}/revoke").text

    def test_a_refused_form_keeps_what_was_typed(self, parts, admin):
        app_id, _ = create_app(admin)
        refused = admin.send(f"/apps/{app_id}/keys", {"choice": "pk_live", "name": "x" * 81})
        assert refused.status_code == 400
        assert "A key&#39;s name has at most 80 characters" in refused.text
        assert 'value="pk_live" checked' in refused.text
        assert f'value="{"x" * 81}"' in refused.text
        assert len(parts.catalog.keys.all_of(app_id)) == 1

    def test_the_last_use_of_a_key_is_shown(self, client, core, parts, clock, admin):
        app_id, key = create_app(admin)
        assert "never" in admin.open(f"/apps/{app_id}/keys").text
        copy = KeyUseCopy(core.dashboard.ingest_stats, parts.catalog.keys, clock).copy

        assert client.post("/v1/events", json=EVENT, headers=bearer(key)).status_code == 202
        client.portal.call(write_key_uses, core.ingest)
        copy()  # as the core does every few seconds
        (stored,) = parts.catalog.keys.all_of(app_id)
        assert stored.last_used_at == clock.now_ms()
        clock.advance(7 * 60_000)
        assert "7 minutes ago" in admin.open(f"/apps/{app_id}/keys").text

        assert client.get("/v1/metrics/mrr", headers=bearer(key)).status_code == 200
        parts.uses.flush()
        copy()
        (stored,) = parts.catalog.keys.all_of(app_id)
        assert stored.last_used_at == clock.now_ms(), "a read is a use, and an earlier use changes nothing"
        assert "just now" in admin.open(f"/apps/{app_id}/keys").text

    def test_a_clock_that_ran_ahead_does_not_hide_later_uses(self, client, core, parts, clock, admin):
        app_id, key = create_app(admin)
        copy = KeyUseCopy(core.dashboard.ingest_stats, parts.catalog.keys, clock).copy
        for turn in (5 * 60_000, 0, 60_000):  # ahead, corrected, and later
            clock.advance(turn)
            assert client.post("/v1/events", json=EVENT, headers=bearer(key)).status_code == 202
            client.portal.call(write_key_uses, core.ingest)
            clock.advance(-(turn if turn > 60_000 else 0))
            copy()
            (stored,) = parts.catalog.keys.all_of(app_id)
            assert stored.last_used_at == clock.now_ms()

    def test_a_test_key_is_not_called_live(self, parts, admin):
        app_id, _ = create_app(admin)
        admin.send(f"/apps/{app_id}/webhooks/test/prepare")
        admin.send(f"/apps/{app_id}/keys", {"choice": "sk_test"})
        listed = admin.open(f"/apps/{app_id}/keys").text
        assert (listed.count(">Active<"), listed.count(">Live<")) == (2, 0)

    def test_a_key_of_another_app_is_not_found(self, parts, admin):
        (mine, _), (other, _) = create_app(admin), create_app(admin)
        (key,) = parts.catalog.keys.all_of(other)
        path = f"/apps/{mine}/keys/{key.key_id}/revoke"
        assert (admin.open(path).status_code, admin.send(path).status_code) == (404, 404)
        assert parts.catalog.keys.all_of(other)[0].revoked is False

    @pytest.mark.embedded  # refused before an engine is asked
    @pytest.mark.parametrize("choice", ["", "pk_test", "ctl_live", "sk_test"])
    def test_an_unavailable_kind_of_key_is_refused(self, parts, admin, choice):
        app_id, _ = create_app(admin)
        assert admin.send(f"/apps/{app_id}/keys", {"choice": choice}).status_code == 400
        assert len(parts.catalog.keys.all_of(app_id)) == 1

    def test_a_test_key_can_be_minted_after_the_first_test_secret(self, admin):
        app_id, _ = create_app(admin)
        admin.send(f"/apps/{app_id}/webhooks/test/biller_a", {"secret": "whsec_test_0123456789ab"})
        assert shown(admin.send(f"/apps/{app_id}/keys", {"choice": "sk_test"}), "key").startswith("sk_test_")


class TestArchiving:
    def test_an_app_is_archived_after_a_confirmation_and_restored(self, client, keyring, admin):
        app_id, key = create_app(admin, "Old <app>")
        own = f"/apps/{app_id}"
        assert f'href="{own}/archive"' in admin.open(f"{own}/settings").text
        assert "Archive Old &lt;app&gt;?" in admin.open(f"{own}/archive").text
        keyring.refresh()
        assert client.post("/v1/events", json=EVENT, headers=bearer(key)).status_code == 202
        assert "The app is archived" in admin.send(f"{own}/archive").text
        keyring.refresh()
        assert client.post("/v1/events", json=EVENT, headers=bearer(key)).status_code == 401
        listed = admin.open("/apps").text
        assert ("1 archived app<" in listed, f'href="{own}"' in listed) == (True, False)
        assert f'href="{own}"' not in admin.open("/").text
        assert "This app is archived" in admin.open(own).text, "its data can still be read"
        refused = admin.send(f"{own}/keys", {"choice": "sk_live"})
        assert (refused.status_code, "restore it first" in refused.text) == (400, True)
        refused = admin.send(f"{own}/webhooks/live/biller_a", {"secret": SECRET_A})
        assert (refused.status_code, "restore it first" in refused.text) == (400, True)

        assert "The app is restored" in admin.send(f"{own}/restore").text
        keyring.refresh()
        assert client.post("/v1/events", json=EVENT, headers=bearer(key)).status_code == 202
        assert f'href="{own}"' in admin.open("/apps").text

    @pytest.mark.embedded  # only the text of a page
    def test_the_settings_show_the_command_that_deletes(self, admin):
        app_id, _ = create_app(admin, "It's mine")
        shown_command = f"mauve app delete {app_id} --name &#39;It&#39;&#34;&#39;&#34;&#39;s mine&#39;"
        assert shown_command in admin.open(f"/apps/{app_id}/settings").text


class TestWebhooks:
    def test_a_secret_is_saved_for_its_environment_and_never_shown(self, parts, organization, admin):
        app_id, _ = create_app(admin)
        app = parts.catalog.apps.find(organization.org_id, app_id)
        saved = admin.send(f"/apps/{app_id}/webhooks/live/biller_b", {"secret": "  whsec_canary_0123456789 "})
        assert "The signing secret is saved" in saved.text
        assert f"http://testserver/v1/webhooks/biller_b/{app.public_id}" in saved.text
        assert "canary" not in saved.text
        assert parts.catalog.apps.find(organization.org_id, app_id).has_biller_b_webhook is True
        assert "Polar" in admin.open("/apps").text

    def test_the_test_address_appears_with_the_first_test_secret(self, parts, organization, admin):
        app_id, _ = create_app(admin)
        before = admin.open(f"/apps/{app_id}/webhooks").text
        assert before.count("/v1/webhooks/") == 2
        after = admin.send(f"/apps/{app_id}/webhooks/test/biller_a", {"secret": "whsec_test_0123456789ab"}).text
        app = parts.catalog.apps.find(organization.org_id, app_id)
        assert f"/v1/webhooks/biller_a/{app.test_public_id}" in after
        (secret,) = parts.catalog.webhook_secrets.saved_for(app_id)
        assert (secret.environment, secret.provider) == (Environment.TEST, Provider.BILLER_A)

    def test_the_test_environment_is_prepared_before_the_biller_gives_its_secret(
        self, client, parts, organization, admin
    ):
        app_id, _ = create_app(admin)
        assert "Prepare the test environment" in admin.open(f"/apps/{app_id}/webhooks").text
        prepared = admin.send(f"/apps/{app_id}/webhooks/test/prepare")
        app = parts.catalog.apps.find(organization.org_id, app_id)
        path = f"/v1/webhooks/biller_a/{app.test_public_id}"
        assert f"http://testserver{path}" in prepared.text
        assert "Prepare the test environment" not in prepared.text
        assert prepared.text.count("Needs the secret") == 2
        assert "Secret saved" not in prepared.text
        body = b'{"type":"customer.created","object":"event"}'
        signed = {"content-type": "application/json", **signed_a(body, SECRET_A, at=parts.clock.now_ms() // 1000)}
        assert client.post(path, content=body, headers=signed).status_code == 401

        saved = admin.send(f"/apps/{app_id}/webhooks/test/biller_a", {"secret": SECRET_A})
        assert (saved.text.count("Needs the secret"), saved.text.count("Secret saved")) == (1, 1)
        assert client.post(path, content=body, headers=signed).status_code == 200
        admin.send(f"/apps/{app_id}/webhooks/test/prepare")  # again: it replaces no secret
        assert client.post(path, content=body, headers=signed).status_code == 200

    @pytest.mark.embedded  # only the text of a page
    def test_the_page_names_the_events_to_choose(self, admin):
        app_id, _ = create_app(admin)
        text = admin.open(f"/apps/{app_id}/webhooks").text
        for type_ in ("invoice.paid", "customer.subscription.*", "order.paid", "subscription.*"):
            assert f"<code>{type_}</code>" in text

    @pytest.mark.parametrize(("provider", "name"), [("biller_a", "Stripe"), ("biller_b", "Polar")])
    def test_a_secret_that_does_not_look_like_one_is_saved_only_on_request(self, parts, admin, provider, name):
        app_id, _ = create_app(admin)
        form = f"/apps/{app_id}/webhooks/live/{provider}"
        for short in ("whsec_", "whsec_abc"):
            assert admin.send(form, {"secret": short}).status_code == 400, short
        refused = admin.send(form, {"secret": "sk_live_canary"})
        assert refused.status_code == 400
        assert f"This does not look like a signing secret of {name}" in refused.text
        assert "canary" not in refused.text
        assert refused.text.count('name="insist"') == 1
        assert parts.catalog.webhook_secrets.saved_for(app_id) == []
        assert "The signing secret is saved" in admin.send(form, {"secret": "sk_live_canary", "insist": "yes"}).text

    def test_an_empty_secret_is_refused_and_unknown_billers_are_not_found(self, admin):
        app_id, _ = create_app(admin)
        assert admin.send(f"/apps/{app_id}/webhooks/live/biller_a", {"secret": "  "}).status_code == 400
        assert admin.send(f"/apps/{app_id}/webhooks/live/biller_c", {"secret": "x"}).status_code == 404
        assert admin.send(f"/apps/{app_id}/webhooks/stage/biller_a", {"secret": "x"}).status_code == 404


class TestTokens:
    def mint(self, browser, *scopes, name="Report"):
        return browser.send("/tokens", {"name": name, "scopes": list(scopes)})

    def test_a_token_is_shown_once_and_carries_exactly_the_chosen_scopes(self, client, admin, parts, organization):
        token = shown(self.mint(admin, "apps:read", "keys:read"), "token")
        assert client.get("/v1/apps", headers=bearer(token)).status_code == 200
        assert client.post("/v1/apps", json={"name": "x"}, headers=bearer(token)).status_code == 403
        assert token not in admin.open("/tokens").text
        (stored,) = parts.catalog.tokens.all_of(organization.org_id)
        assert stored.scopes == {Scope.APPS_READ, Scope.KEYS_READ}

    def test_a_member_mints_only_scopes_of_their_own_role(self, signed_in, parts, organization):
        viewer, _ = signed_in(Role.VIEWER)
        developer, _ = signed_in(Role.DEVELOPER)
        assert self.mint(viewer, "apps:read", "keys:read").status_code == 403
        assert self.mint(developer, "apps:write").status_code == 403
        assert parts.catalog.tokens.all_of(organization.org_id) == []
        assert self.mint(viewer, "apps:read", "metrics:read").status_code == 200

    def test_a_token_needs_a_name_and_a_scope(self, admin):
        assert self.mint(admin).status_code == 400
        assert self.mint(admin, "apps:destroy").status_code == 400
        assert self.mint(admin, "apps:read", name=" ").status_code == 400

    def test_the_last_use_is_shown(self, client, admin, parts, clock):
        token = shown(self.mint(admin, "apps:read"), "token")
        assert "never" in admin.open("/tokens").text
        client.get("/v1/apps", headers=bearer(token))
        parts.uses.flush()  # as the core does every few seconds
        clock.advance(3 * 60_000)
        assert "3 minutes ago" in admin.open("/tokens").text

    def test_reading_metrics_counts_as_a_use(self, client, admin, parts, organization, clock):
        token = shown(self.mint(admin, "metrics:read"), "token")
        client.get("/v1/metrics/mrr", headers=bearer(token))
        parts.uses.flush()
        assert parts.catalog.tokens.all_of(organization.org_id)[0].last_used_at == clock.now_ms()

    def test_a_wrong_token_is_not_recorded_as_a_use(self, client, admin, parts, organization):
        token = shown(self.mint(admin, "apps:read"), "token")
        client.get("/v1/apps", headers=bearer(token[:-1] + ("a" if token[-1] != "a" else "b")))
        parts.uses.flush()
        assert parts.catalog.tokens.all_of(organization.org_id)[0].last_used_at is None

    def test_members_revoke_their_own_tokens_and_an_admin_those_of_others(
        self, client, admin, signed_in, parts, organization
    ):
        viewer, _ = signed_in(Role.VIEWER)
        own = shown(self.mint(viewer, "apps:read"), "token")
        shown(self.mint(admin, "apps:read"), "token")
        mine, other = parts.catalog.tokens.all_of(organization.org_id)
        if mine.minted_by != parts.catalog.passwords.find("viewer@example.com").user.user_id:
            mine, other = other, mine
        assert viewer.send(f"/tokens/{other.token_id}/revoke").status_code == 403
        assert "cannot be undone" in viewer.open(f"/tokens/{mine.token_id}/revoke").text
        assert "The token is revoked" in viewer.send(f"/tokens/{mine.token_id}/revoke").text
        assert client.get("/v1/apps", headers=bearer(own)).status_code == 401
        assert "The token is revoked" in admin.send(f"/tokens/{other.token_id}/revoke").text

    def test_a_token_of_another_organization_is_not_found(self, owner, admin, parts, organization):
        self.mint(admin, "apps:read")
        (token,) = parts.catalog.tokens.all_of(organization.org_id)
        assert owner.send(f"/tokens/{token.token_id}/revoke").status_code == 404
        assert parts.catalog.tokens.all_of(organization.org_id)[0].revoked is False


class TestUsage:
    def test_events_and_reads_of_the_period_are_shown_against_their_limits(
        self, core, settings, parts, organization, signed_in, clock
    ):
        owner, _ = signed_in(Role.OWNER)
        change_limits(parts, organization.org_id, {"event_cap": 2_000, "agent_queries": 4_321})
        with open_load_ledger(settings) as ledger:
            ledger.finish(
                LoadStep({1: 7}, {(organization.org_id, "2027-01"): 1_234, (organization.org_id, "2026-12"): 9})
            )
        meter = core.dashboard.meter
        for _ in range(7):
            meter.take(organization.org_id, ReadCost(queries=1), ReadLimits(10, 10, 10), clock.now_ms())
        page = owner.open("/usage").text.replace("\N{NARROW NO-BREAK SPACE}", " ")
        for text in ("1 234", "2 000, your cap", "<b>7</b>", "4 321", "1 Feb 2027, 00:00 UTC", "Events are accepted"):
            assert text in page, text

    @pytest.mark.parametrize(("typed", "cap"), [("2 000 000", 2_000_000), ("0", 0), ("1,000", 1000), ("", None)])
    def test_the_owner_sets_the_cap(self, signed_in, parts, organization, typed, cap):
        change_limits(parts, organization.org_id, {"event_cap": 5})
        owner, _ = signed_in(Role.OWNER)
        assert "Saved." in owner.send("/usage/cap", {"cap": typed}).text
        assert parts.catalog.organizations.find(organization.org_id).limits.event_cap == cap

    @pytest.mark.embedded  # refused before an engine is asked
    @pytest.mark.parametrize("typed", ["-1", "many", "1e9", "٣", "9" * 17])
    def test_an_invalid_cap_is_refused(self, signed_in, parts, organization, typed):
        owner, _ = signed_in(Role.OWNER)
        refused = owner.send("/usage/cap", {"cap": typed})
        assert refused.status_code == 400
        assert "whole number of events" in refused.text
        assert parts.catalog.organizations.find(organization.org_id).limits.event_cap is None

    def test_every_page_warns_of_a_suspension_and_of_an_unpaid_invoice(self, admin, parts, organization):
        mark_unpaid(parts, organization.org_id, 3)
        assert "Ingest will be suspended on" in admin.open("/apps").text
        suspend(parts, organization.org_id)
        assert "Ingest is suspended" in admin.open("/members").text
        assert f"mauve org resume {organization.org_id}" in admin.open("/members").text


class TestMembers:
    def test_an_invited_member_sets_a_password_and_is_signed_in(self, client, admin):
        page = admin.send("/members", {"email": "Bo@Example.com", "role": "developer"})
        link = shown(page, "link")
        assert link.startswith("http://testserver/password/")
        assert "Invited" in admin.open("/members").text
        bo = Browser(client)
        invitation = bo.open(link)
        assert "bo@example.com" in invitation.text
        assert "Acme" in invitation.text
        assert "Apps" in bo.send(link, {"password": PASSWORD}).text
        assert "Invited" not in admin.open("/members").text
        assert bo.open("/account").status_code == 200

    def test_an_address_with_an_account_cannot_be_invited_again(self, admin):
        refused = admin.send("/members", {"email": "admin@example.com", "role": "viewer"})
        assert refused.status_code == 400
        assert "has an account already" in refused.text

    def test_a_new_link_replaces_the_previous_one(self, client, admin, parts, organization):
        first = shown(admin.send("/members", {"email": "bo@example.com", "role": "viewer"}), "link")
        bo = parts.catalog.passwords.find("bo@example.com").user
        second = shown(admin.send(f"/members/{bo.user_id}/link"), "link")
        stranger = Browser(client)
        assert stranger.open(first).status_code == 404
        assert stranger.open(second).status_code == 200

    def test_a_role_takes_effect_at_once(self, admin, signed_in):
        viewer, user = signed_in(Role.VIEWER)
        assert viewer.open("/apps/new").status_code == 403
        assert "The role is changed" in admin.send(f"/members/{user.user_id}/role", {"role": "admin"}).text
        assert viewer.open("/apps/new").status_code == 200

    def test_a_removed_member_is_signed_out_at_once(self, admin, signed_in):
        viewer, user = signed_in(Role.VIEWER)
        path = f"/members/{user.user_id}/remove"
        assert "signed out everywhere" in admin.open(path).text
        assert "The member is removed" in admin.send(path).text
        assert viewer.ask("GET", "/apps").status_code == 303
        assert admin.send(path).status_code == 404

    def test_an_admin_cannot_create_or_change_owners(self, admin, signed_in, parts):
        _, owner = signed_in(Role.OWNER)
        _, viewer = signed_in(Role.VIEWER)
        base = f"/members/{owner.user_id}"
        assert admin.send("/members", {"email": "x@example.com", "role": "owner"}).status_code == 403
        assert admin.send(f"/members/{viewer.user_id}/role", {"role": "owner"}).status_code == 403
        assert admin.send(f"{base}/role", {"role": "viewer"}).status_code == 403
        assert admin.send(f"{base}/link").status_code == 403
        assert admin.send(f"{base}/remove").status_code == 403
        assert parts.catalog.users.find(owner.user_id).user.role is Role.OWNER
        assert parts.catalog.users.find(viewer.user_id).user.role is Role.VIEWER

    def test_the_last_owner_can_be_neither_removed_nor_demoted(self, signed_in, parts):
        browser, owner = signed_in(Role.OWNER)
        browser.send("/members", {"email": "invited@example.com", "role": "owner"})  # has not set a password yet
        for path, form in (("role", {"role": "admin"}), ("remove", {})):
            refused = browser.send(f"/members/{owner.user_id}/{path}", form)
            assert refused.status_code == 400
            assert "last owner" in refused.text
        assert parts.catalog.users.find(owner.user_id).user.role is Role.OWNER
        _, second = signed_in(Role.OWNER, "second@example.com")
        assert "The role is changed" in browser.send(f"/members/{second.user_id}/role", {"role": "admin"}).text
        _, third = signed_in(Role.OWNER, "third@example.com")
        assert browser.send(f"/members/{owner.user_id}/role", {"role": "viewer"}).status_code == 200
        assert parts.catalog.users.find(third.user_id).user.role is Role.OWNER

    def test_members_of_another_organization_cannot_be_changed(self, owner, signed_in, parts):
        _, viewer = signed_in(Role.VIEWER)
        for path, form in (("role", {"role": "admin"}), ("remove", {}), ("link", {})):
            assert owner.send(f"/members/{viewer.user_id}/{path}", form).status_code == 404
        assert parts.catalog.users.find(viewer.user_id).user.role is Role.VIEWER


def test_an_organization_is_renamed(admin, parts, organization):
    assert "Better name" in admin.send("/organization", {"name": " Better  name "}).text
    assert admin.send("/organization", {"name": ""}).status_code == 400
    assert parts.catalog.organizations.find(organization.org_id).name == "Better name"


@pytest.mark.embedded  # only what a form keeps
class TestRefusedForms:
    """A refused form is shown where it came from, with what was typed."""

    def test_an_invitation(self, admin):
        refused = admin.send("/members", {"email": "no address", "role": "viewer"})
        assert refused.status_code == 400
        assert 'value="no address"' in refused.text
        assert 'value="viewer" checked' in refused.text
        assert 'value="developer" checked' not in refused.text

    def test_a_change_of_role_and_a_removal(self, signed_in):
        owner, user = signed_in(Role.OWNER)
        refused = owner.send(f"/members/{user.user_id}/role", {"role": "viewer"})
        assert (refused.status_code, "last owner" in refused.text) == (400, True)
        assert '<option value="viewer" selected>' in refused.text
        assert 'value="developer" checked' in refused.text, "the invitation below is another form"
        refused = owner.send(f"/members/{user.user_id}/remove", {"revoke": "keys"})
        assert (refused.status_code, "last owner" in refused.text) == (400, True)
        assert f"Remove {user.email}?" in refused.text

    def test_a_name_that_was_emptied(self, admin):
        app_id, _ = create_app(admin, "An app")
        for path in (f"/apps/{app_id}/settings", "/organization"):
            refused = admin.send(path, {"name": " ", "type": "library", "ownership": "mine"})
            assert refused.status_code == 400
            assert 'name="name" type="text" value=" "' in refused.text
        refused = admin.send(f"/apps/{app_id}/settings", {"name": " ", "type": "library", "ownership": "mine"})
        assert '<option value="library" selected>' in refused.text

    def test_a_token_without_scopes(self, admin):
        refused = admin.send("/tokens", {"name": "My report"})
        assert (refused.status_code, 'value="My report"' in refused.text) == (400, True)
        assert "Choose at least one scope" in refused.text

    def test_a_cap_that_is_not_a_number(self, owner):
        refused = owner.send("/usage/cap", {"cap": "plenty"})
        assert (refused.status_code, 'value="plenty"' in refused.text) == (400, True)

    def test_a_wrong_password_is_not_shown(self, admin):
        refused = admin.send("/account/password", {"current": "wrong-canary", "password": "new-canary-password"})
        assert (refused.status_code, "The current password is wrong" in refused.text) == (400, True)
        assert "canary" not in refused.text


class TestDocumentation:
    @pytest.fixture(params=["built", "absent"])
    def is_built(self, request, tmp_path, monkeypatch):
        (tmp_path / "built").mkdir()
        monkeypatch.setattr(reference, "SITE", tmp_path / request.param)
        return request.param == "built"

    @pytest.fixture
    def settings(self, is_built, settings):
        return settings

    def test_pages_link_it_if_it_was_built(self, browser, signed_in, is_built):
        admin, _ = signed_in(Role.ADMIN)
        for path, name in {"/apps": "index", "/alerts": "alerts", "/signin": "index"}.items():
            page = (browser if path == "/signin" else admin).open(path)
            assert (f'href="/docs/{name}.html">Documentation</a>' in page.text) == is_built, path


def test_every_guide_that_a_page_links_exists():
    templates = Path(rendering.__file__).parent / "templates"
    named = {name for path in templates.iterdir() for name in re.findall(r"set guide = '([\w-]+)'", path.read_text())}
    assert named
    assert [name for name in sorted(named) if not (ROOT / f"docs/{name}.md").exists()] == []


def test_onboarding_offers_stripe_and_polar(signed_in):
    admin, _ = signed_in(Role.ADMIN)
    created = admin.send("/apps", {"name": "App", "type": "saas", "ownership": "mine"})
    own = re.search(r'href="(/apps/app_[^"/]*)"', created.text)[1]
    for page in (created, admin.open(own)):
        assert f'Billing with Stripe or Polar? <a href="{own}/webhooks">Connect it</a>' in page.text


@pytest.mark.embedded  # only the text of a page
def test_an_address_that_a_shell_would_run_is_in_no_snippet(client, signed_in):
    admin, _ = signed_in(Role.ADMIN)
    created = client.post(
        "/apps",
        data={"name": "App", "type": "saas", "ownership": "mine"},
        headers={
            "host": "evil.example';id;'",
            "origin": "http://evil.example';id;'",
            "cookie": "; ".join(f"{name}={value}" for name, value in admin.cookies.items()),
        },
    )
    assert created.status_code == 200
    assert "evil" not in created.text
    assert "curl http://localhost/v1/events" in created.text


@pytest.mark.embedded  # only the text of a page
class TestAnIngestAddressOfItsOwn:
    @pytest.fixture
    def settings(self, settings):
        addresses = {"public_url": "https://metrics.example.com/", "public_ingest_url": "https://ingest.example.com/"}
        return dataclasses.replace(settings, **addresses)

    def test_snippets_and_webhooks_show_it_and_reads_stay(self, client, browser, setup_path):
        form = {"organization": "Acme", "email": "ann@example.com", "password": PASSWORD}
        browser.ask("POST", setup_path, form, sec_fetch_site="", origin="https://metrics.example.com")
        created = browser.send("/apps", {"name": "App", "type": "saas", "ownership": "mine"})
        app_id = app_id_of(created)
        for page in (created, browser.open(f"/apps/{app_id}")):
            for line in ("curl https://ingest.example.com/v1/events", "https://ingest.example.com/mauve.js"):
                assert line in page.text
            assert "curl https://metrics.example.com/v1/metrics/mau" in page.text
            assert "https://metrics.example.com/v1/events" not in page.text
        assert "https://ingest.example.com/v1/webhooks/" in browser.open(f"/apps/{app_id}/webhooks").text
