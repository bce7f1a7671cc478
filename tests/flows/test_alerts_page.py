"""The alerts page: who may change what, what is refused, secrets shown once, and links that end e-mails."""

import re
from dataclasses import replace

import pytest

from mauve.alerts.rules import RULES_PER_APP_MAX
from mauve.core.organization import Organization
from mauve.core.user import Role
from support.browser import shown
from support.catalog_entries import a_key, an_app, an_organization, let_pass

SLACK = "https://hooks.slack.com/services/T0/B0/canary"


@pytest.fixture
def admin(signed_in):
    return signed_in(Role.ADMIN)[0]


@pytest.fixture
def app(api):
    return api.post("/v1/apps", json={"name": "Shop"}).json()


@pytest.fixture
def store(core, client):
    return core.dashboard.alerts.store


def rule(app, **fields):
    return {"app": app["app_id"], "cooldown": "24", "hours": "24", **fields}


CHANNEL = {"kind": "slack", "name": "Team chat", "address": SLACK}
TIMES = {"time_zone": "Europe/Berlin", "digest_hour": "8", "quiet_from": "22", "quiet_until": "7"}


@pytest.mark.parametrize("role", [Role.DEVELOPER, Role.VIEWER])
def test_only_owners_and_admins_change_rules_channels_and_times(signed_in, admin, app, store, organization, role):
    member, _ = signed_in(role)
    admin.send("/alerts/channels", CHANNEL)
    admin.send("/alerts/rules/no_events", rule(app))
    (channel,) = store.channels.all_of(organization.org_id)
    (known,) = store.rules.all_of(organization.org_id)
    changes = {
        "/alerts/rules/no_events": rule(app),
        f"/alerts/rules/{known.rule_id}/delete": {},
        "/alerts/channels": CHANNEL,
        f"/alerts/channels/{channel.channel_id}/test": {},
        f"/alerts/channels/{channel.channel_id}/delete": {},
        "/alerts/times": TIMES,
    }
    for path, form in changes.items():
        assert member.ask("POST", path, form).status_code == 403, path
    assert len(store.rules.all_of(organization.org_id)) == len(store.channels.all_of(organization.org_id)) == 1
    page = member.open("/alerts").text
    assert "Team chat" in page
    assert "No events for 24 hours" in page
    assert "Add a rule" not in page
    assert member.ask("POST", "/alerts/wishes", {"digest": "weekly"}).status_code == 303, "e-mail is their own choice"


def test_rules_and_channels_of_another_organization_do_not_exist(admin, app, store, parts, organization):
    other: Organization = an_organization()
    parts.catalog.organizations.create(other)
    admin.send("/alerts/channels", CHANNEL)
    (channel,) = store.channels.all_of(organization.org_id)
    foreign = replace(channel, channel_id=channel.channel_id[:-4] + "0000", org_id=other.org_id)
    store.channels.create(foreign, 10)
    for action in ("test", "delete"):
        assert admin.ask("POST", f"/alerts/channels/{foreign.channel_id}/{action}").status_code == 404
    assert store.channels.all_of(other.org_id) == [foreign]
    assert admin.ask("POST", "/alerts/rules/rule_00000000000000000000/delete").status_code == 404
    refused = admin.send("/alerts/rules/no_events", rule({"app_id": "app_00000000000000000000"}))
    assert (refused.status_code, "Choose an app." in refused.text) == (400, True)
    their_app = parts.catalog.apps.create(an_app(other.org_id, name="Theirs"), a_key(), let_pass)
    refused = admin.send("/alerts/rules/no_events", rule({"app_id": their_app.app_id}))
    assert (refused.status_code, "Choose an app." in refused.text) == (400, True)
    admin.send("/alerts/rules/no_events", rule(app))
    (known,) = store.rules.all_of(organization.org_id)
    their_rule = replace(known, rule_id=known.rule_id[:-4] + "0000", org_id=other.org_id, app_id=their_app.app_id)
    assert store.rules.create(their_rule, 10, 10)
    assert admin.ask("POST", f"/alerts/rules/{their_rule.rule_id}/delete").status_code == 404
    assert store.rules.all_of(other.org_id) == [their_rule]
    assert "Theirs" not in admin.open("/alerts").text


def test_the_address_of_a_channel_is_sealed_and_never_shown(admin, store, organization, core):
    page = admin.send("/alerts/channels", CHANNEL)
    assert "The channel is added" in page.text
    assert "https://hooks.slack.com/…" in page.text
    assert "canary" not in page.text
    (channel,) = store.channels.all_of(organization.org_id)
    assert b"canary" not in channel.sealed


def test_a_signing_secret_is_shown_once(admin, store, organization):
    page = admin.send("/alerts/channels", {"kind": "webhook", "name": "Own", "address": "https://example.com/hook"})
    secret = shown(page, "signing-secret")
    assert secret.startswith("whsec_")
    assert secret not in admin.open("/alerts").text


@pytest.mark.parametrize(
    ("change", "advice"),
    [
        ({"address": "https://127.0.0.1/x"}, ""),
        ({"address": "https://169.254.169.254/latest"}, ""),
        ({"address": "http://hooks.slack.com/x"}, ""),
        ({"address": "file:///etc/passwd"}, ""),
        ({"address": "https://x/" + "y" * 3000}, "longer than"),
        ({"name": " "}, "give the channel a name"),
        ({"kind": "email"}, "choose one of"),
        ({"kind": "pager"}, "choose one of"),
    ],
)
def test_a_channel_that_may_not_be_used_is_refused(admin, store, organization, change, advice):
    refused = admin.send("/alerts/channels", CHANNEL | change)
    assert refused.status_code == 400
    assert advice in refused.text.lower()
    assert store.channels.all_of(organization.org_id) == []


@pytest.mark.parametrize(
    ("kind", "fields", "advice"),
    [
        ("no_events", {"hours": "0"}, "Choose 1 to 168 hours"),
        ("no_events", {"hours": "x"}, "Hours must be a whole number"),
        ("no_events", {"cooldown": "9999"}, "cooldown of 1 to 720"),
        ("threshold", {"metric": "mau", "days": "30", "side": "over", "value": "1"}, "Side must be one of"),
        ("threshold", {"metric": "mau", "days": "30", "side": "above", "value": "1.5"}, "such as 250"),
        ("threshold", {"metric": "mrr", "days": "30", "side": "above", "value": "1"}, "currency"),
        (
            "threshold",
            {"metric": "mrr", "days": "30", "side": "above", "value": "1234.50", "currency": "EURO"},
            "Name the currency",
        ),
        ("threshold", {"metric": "revenue", "days": "30", "side": "above", "value": "9.99"}, "Name the currency"),
        ("change", {"metric": "users", "days": "7", "direction": "up", "percent": "5"}, "one of these metrics"),
    ],
)
def test_a_rule_out_of_bounds_is_shown_again_with_advice(admin, app, store, organization, kind, fields, advice):
    refused = admin.send(f"/alerts/rules/{kind}", rule(app) | fields)
    assert refused.status_code == 400
    assert advice in refused.text
    assert '<details class="rule" open>' in refused.text
    assert store.rules.all_of(organization.org_id) == []


def test_an_unknown_kind_of_rule_does_not_exist(admin, app):
    assert admin.ask("POST", "/alerts/rules/anything", rule(app)).status_code == 404


def test_an_app_has_only_so_many_rules(admin, app):
    for _ in range(RULES_PER_APP_MAX):
        assert "The rule is added" in admin.send("/alerts/rules/no_events", rule(app)).text
    assert "delete one first" in admin.send("/alerts/rules/no_events", rule(app)).text


def test_a_rule_is_deleted(admin, app, store, organization):
    admin.send("/alerts/rules/no_events", rule(app))
    (known,) = store.rules.all_of(organization.org_id)
    assert "The rule is deleted." in admin.send(f"/alerts/rules/{known.rule_id}/delete").text
    assert store.rules.all_of(organization.org_id) == []


@pytest.mark.parametrize(
    ("change", "advice"),
    [
        ({"time_zone": "Mars/Base"}, "Choose a time zone"),
        ({"time_zone": "../../etc/passwd"}, "Choose a time zone"),
        ({"digest_hour": "24"}, "from 0 to 23"),
        ({"digest_hour": ""}, "Choose the hour"),
        ({"digest_hour": "23"}, "within the quiet hours"),
        ({"quiet_until": ""}, "or neither"),
        ({"quiet_until": "22"}, "another hour"),
    ],
)
def test_times_that_make_no_sense_are_refused(admin, store, organization, change, advice):
    refused = admin.send("/alerts/times", TIMES | change)
    assert (refused.status_code, advice in refused.text) == (400, True)
    assert store.times.find(organization.org_id).time_zone == "UTC"


def test_saved_times_are_shown_and_move_the_digests(admin, viewer, store, organization, signed_in):
    viewer.send("/alerts/wishes", {"digest": "daily"})
    (before,) = store.subscribers.wanting_digests(organization.org_id)
    page = admin.send("/alerts/times", TIMES | {"digest_hour": "15"})
    assert '<option value="Europe/Berlin" selected>' in page.text
    assert '<option value="22" selected>22:00</option>' in page.text
    (after,) = store.subscribers.wanting_digests(organization.org_id)
    assert after.next_at != before.next_at
    assert "22:00 to 07:00" in viewer.open("/alerts").text


@pytest.fixture
def links(viewer, store, organization):
    viewer.send("/alerts/wishes", {"digest": "weekly", "alerts": "yes"})
    (subscriber,) = store.subscribers.wanting_digests(organization.org_id)
    return subscriber.user_id, f"/unsubscribe/{subscriber.token}"


def test_opening_the_link_asks_and_the_button_ends_one_kind_of_mail(browser, store, links):
    user_id, link = links
    asked = browser.open(f"{link}/digest")
    assert "You will not get the digest by e-mail anymore." in asked.text
    assert store.subscribers.find(user_id).digest == "weekly", "mail programs open links to check them"
    assert "You are unsubscribed" in browser.send(f"{link}/digest").text
    found = store.subscribers.find(user_id)
    assert (found.digest, found.next_at, found.alerts) == ("never", None, True)
    browser.send(f"{link}/alerts")
    assert not store.subscribers.find(user_id).alerts


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/x-www-form-urlencoded", b"List-Unsubscribe=One-Click"),
        ("multipart/form-data; boundary=x", b'--x\r\ncontent-disposition: form-data; name="List-Unsubscribe"\r\n'),
        ("application/octet-stream", b"\xff" * 1000),
    ],
)
def test_a_mail_program_unsubscribes_by_one_click_without_a_session(client, store, links, content_type, body):
    user_id, link = links
    headers = {"content-type": content_type}
    assert client.post(f"{link}/alerts", content=body, headers=headers).status_code == 200
    assert not store.subscribers.find(user_id).alerts


def test_a_link_of_no_member_ends_nothing(browser, client, store, links):
    user_id, link = links
    for path in ("/unsubscribe/" + "0" * 32 + "/digest", f"{link}x/digest", "/unsubscribe/%00/digest"):
        assert browser.open(path).status_code == 404
        assert client.post(path).status_code == 404
    assert client.post(f"{link}/everything").status_code == 404
    assert store.subscribers.find(user_id).digest == "weekly"


def test_other_forms_are_still_refused_from_elsewhere(viewer, client):
    reply = viewer.ask("POST", "/alerts/wishes", {"digest": "daily"}, sec_fetch_site="cross-site")
    assert reply.status_code == 403
    assert client.post("/unsubscribe", content=b"x").status_code in {403, 404, 405}


def test_a_test_is_put_into_the_outbox_and_shown_as_waiting(admin, store, organization):
    admin.send("/alerts/channels", CHANNEL)
    (channel,) = store.channels.all_of(organization.org_id)
    page = admin.send(f"/alerts/channels/{channel.channel_id}/test")
    assert "The test is sent within seconds" in page.text
    assert "data-waiting" in page.text
    (message,) = store.messages.recent(organization.org_id, 10)
    assert (message.kind, message.receiver) == ("test", "Team chat")
    assert re.search(r"asked for a test", admin.open("/alerts/history").text)


def test_names_are_escaped_on_the_page(admin, api):
    app = api.post("/v1/apps", json={"name": "<script>x</script>"}).json()
    admin.send("/alerts/rules/no_events", rule(app))
    admin.send("/alerts/channels", CHANNEL | {"name": "<b>chat</b>"})
    page = admin.open("/alerts").text
    assert "<script>x" not in page
    assert "<b>chat</b>" not in page
