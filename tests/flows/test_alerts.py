"""Rules are evaluated by the pages' numbers, and digests are made."""

from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from mauve.alerts import edit
from mauve.alerts.digest import questions_about
from mauve.alerts.outbox import Wish
from mauve.alerts.rules import STATE
from mauve.alerts.schedule import Cadence, digest_window
from mauve.core.user import Role
from mauve.core.window import today_at
from mauve.ingest.stats import write_stats
from mauve.stores import StoreUnavailableError
from mauve.stores.alerts import AlertStore
from mauve.stores.sql.database import Database, sqlite_url
from support.alerts import DAY_MS, HOUR_MS, WEBHOOK, Machine, add_channel, add_rule, subscribe, text_of
from support.billing import signed_a
from support.service import PATIENCE_S, bearer, eventually


@pytest.fixture
def admin(signed_in):
    return signed_in(Role.ADMIN)[0]


@pytest.fixture
def app(api):
    return api.post("/v1/apps", json={"name": "Shop"}).json()


@pytest.fixture
def send(core, client, load, parts, keyring, clock):
    def accept(app, *events):
        assert client.post("/v1/events", json=list(events), headers=bearer(app["sk_key"])).status_code == 202
        client.portal.call(write_stats, core.ingest)
        load()
        project = keyring.key_for(app["sk_key"]).public_id
        parts.catalog.apps.note_first_event(project, clock.now_ms())  # as the loader's runner does

    return accept


def is_down(*_, **__):
    raise StoreUnavailableError("the store is down")


def views(count):
    return [{"name": "view", "user": f"user {number}"} for number in range(count)]


def test_a_metric_beyond_its_value_is_sent_once_to_channels_and_members(machine, admin, viewer, app, send, clock):
    add_channel(admin)
    subscribe(viewer)
    add_rule(admin, app, "threshold", metric="mau", days="30", side="above", value="2")
    assert machine.work() == []
    send(app, *views(3))
    clock.advance(HOUR_MS)
    assert machine.work() == [], "today is not over"
    clock.advance(DAY_MS)
    sent = dict(machine.work())
    assert sorted(sent) == [WEBHOOK, "viewer@example.com"]
    notice = sent[WEBHOOK]
    assert (notice.kind, notice.title) == ("threshold", "Shop: MAU is above 2")
    assert "It was 3 from 17\N{NO-BREAK SPACE}Dec" in notice.reason
    assert notice.link.endswith(f"/apps/{app['app_id']}?from=2026-12-17&to=2027-01-15")
    assert notice.unsubscribe is None
    assert "/unsubscribe/" in sent["viewer@example.com"].unsubscribe
    assert sent["viewer@example.com"].id != notice.id
    clock.advance(HOUR_MS)
    assert machine.work() == [], "the cooldown has not passed"
    clock.advance(DAY_MS)
    assert len(machine.work()) == 2, "it is still true"
    page = text_of(viewer.open("/alerts"))
    assert "MAU over 30 days is above 2 True 3" in page
    assert "Shop: MAU is above 2 The rule asks to be told when MAU over 30 days is above 2. It was 3 from" in page
    assert "Delete" not in page, "a viewer may not change rules"


def test_steady_traffic_crosses_no_threshold_at_midnight(machine, admin, app, send, clock):
    add_channel(admin)
    add_rule(admin, app, "threshold", metric="revenue", days="7", side="below", value="70", currency="EUR")
    add_rule(admin, app, "threshold", metric="dau", days="7", side="below", value="5")
    for day in range(8):
        send(app, {"name": "payment", "id": f"{day}", "props": {"amount": 1000, "currency": "eur"}}, *views(5))
        clock.advance(DAY_MS)
    to_midnight_ms = DAY_MS - clock.now_ms() % DAY_MS
    send(app, {"name": "payment", "id": "last", "props": {"amount": 1000, "currency": "eur"}}, *views(5))
    assert machine.work() == []
    clock.advance(to_midnight_ms + 60_000)
    assert machine.work() == [], "the day has hardly begun"


def test_evaluating_reads_what_pages_have_cached_and_uses_up_no_allowance(
    core, client, machine, admin, app, send, organization, clock
):
    add_channel(admin)
    send(app, *views(1))
    clock.advance(DAY_MS)
    period = {"date_from": "2026-12-17", "date_to": "2027-01-15"}
    admin.open(f"/apps/{app['app_id']}?from={period['date_from']}&to={period['date_to']}")
    send(app, *({**view, "at": clock.now_ms() - DAY_MS} for view in views(9)))
    add_rule(admin, app, "threshold", metric="mau", days="30", side="above", value="5")
    assert machine.work() == [], "the page's answer is still cached"
    clock.advance(6 * 60_000)
    assert len(machine.work()) == 1
    read = client.get("/v1/metrics/mau", params=period, headers=bearer(app["sk_key"]))
    assert (read.json()["data"], read.headers["x-cache"]) == ([{"mau": 9}], "hit"), "evaluating has read it for all"
    usage = core.dashboard.meter.usage(organization.org_id, clock.now_ms())
    assert (usage.queries, usage.raw_scans) == (0, 0)
    assert usage.reads == 0


def test_no_early_number_of_a_new_app_is_left_in_the_cache(client, machine, admin, app):
    add_rule(admin, app, "threshold", metric="mau", days="30", side="above", value="5")
    machine.work()
    assert client.get("/v1/metrics/mau", headers=bearer(app["sk_key"])).headers["x-cache"] == "miss"


def test_silence_is_noticed_and_ends_with_the_next_event(machine, admin, app, send, clock):
    add_channel(admin)
    add_rule(admin, app, "no_events", hours="2", cooldown="1")
    send(app, *views(1))
    clock.advance(2 * HOUR_MS - 1)
    assert machine.work() == []
    clock.advance(6 * 60_000)
    ((_, notice),) = machine.work()
    assert notice.title == "Shop: no events for 2 hours"
    send(app, *views(1))
    clock.advance(6 * 60_000)
    assert machine.work() == []
    assert "Not true" in text_of(admin.open("/alerts"))


def test_only_events_end_silence(core, client, machine, admin, app, send, clock):
    add_channel(admin)
    add_rule(admin, app, "no_events", hours="2", cooldown="1")
    send(app, *views(1))
    clock.advance(2 * HOUR_MS)
    upsert = {"type": "subscription", "id": "sub_1", "status": "active", "mrr": 900, "currency": "eur"}
    assert client.post("/v1/objects", json=[upsert], headers=bearer(app["sk_key"])).status_code == 202
    client.portal.call(write_stats, core.ingest)
    ((_, notice),) = machine.work()
    assert notice.title == "Shop: no events for 2 hours"
    assert "Accepted 2 items" in text_of(admin.open(f"/apps/{app['app_id']}/events"))
    send(app, {"name": "payment", "id": "1", "props": {"amount": 1000, "currency": "eur"}})
    clock.advance(HOUR_MS)
    assert machine.work() == [], "a payment that is sent as an event is one"


def test_a_repeat_that_is_loaded_late_does_not_end_silence(core, client, machine, admin, app, send, load, clock):
    add_channel(admin)
    add_rule(admin, app, "no_events", hours="2", cooldown="1")
    send(app, {"name": "view", "id": "1"})
    assert client.post("/v1/events", json=[{"name": "view", "id": "1"}], headers=bearer(app["sk_key"])).is_success
    client.portal.call(write_stats, core.ingest)
    clock.advance(2 * HOUR_MS)
    load()
    assert len(machine.work()) == 1


def test_deliveries_that_fail_verification_are_noticed(client, machine, admin, app, parts, clock):
    add_channel(admin)
    admin.send(f"/apps/{app['app_id']}/webhooks/live/biller_a", {"secret": "whsec_of_some_length_at_all"})
    add_rule(admin, app, "deliveries_failing", hours="24")
    assert machine.work() == []
    project = parts.catalog.apps.find_anywhere(app["app_id"]).public_id
    now_s = clock.now_ms() // 1000
    forged = [{}, {"stripe-signature": "t=1,v1=00"}, signed_a(b"{}", at=now_s - 301)]

    def deliver(signature):
        headers = {"content-type": "application/json", **signature}
        assert client.post(f"/v1/webhooks/biller_a/{project}", content=b"{}", headers=headers).status_code == 401

    def refusals():
        return sum(each.count for each in machine.parts.deliveries.tallies(project))

    for signature in forged:
        deliver(signature)
    eventually(lambda: refusals() == len(forged))
    clock.advance(6 * 60_000)
    assert machine.work() == [], "anyone can send these"
    deliver(signed_a(b"{}", secret="whsec_of_another_endpoint", at=clock.now_ms() // 1000))
    eventually(lambda: refusals() == len(forged) + 1)
    clock.advance(6 * 60_000)
    ((_, notice),) = machine.work()
    assert notice.title == "Shop: deliveries of Stripe fail verification"
    assert notice.link.endswith("/webhooks")


def test_a_change_against_the_period_before_is_noticed(machine, admin, app, send, clock):
    add_channel(admin)
    add_rule(admin, app, "change", metric="revenue", days="7", direction="down", percent="50", currency="EUR")
    send(app, {"name": "payment", "id": "1", "props": {"amount": 1000, "currency": "eur"}})
    clock.advance(7 * DAY_MS)
    send(app, {"name": "payment", "id": "2", "props": {"amount": 400, "currency": "eur"}})
    clock.advance(DAY_MS)
    ((_, notice),) = machine.work()
    assert notice.title == "Shop: gross revenue fell by 60\N{NO-BREAK SPACE}%"
    (fact,) = notice.facts
    assert (fact.value, fact.before) == ("4.00\N{NO-BREAK SPACE}EUR", "10.00\N{NO-BREAK SPACE}EUR")


def test_nothing_is_sent_in_quiet_hours_and_what_is_still_true_is_sent_after(machine, admin, app, send, clock):
    hour = datetime.fromtimestamp(clock.now_ms() / 1000, UTC).hour
    times = {"time_zone": "UTC", "digest_hour": str((hour + 12) % 24)}
    quiet = {"quiet_from": str(hour), "quiet_until": str((hour + 2) % 24)}
    assert "Saved." in admin.send("/alerts/times", times | quiet).text
    add_channel(admin)
    send(app, *views(3))
    clock.advance(DAY_MS)
    add_rule(admin, app, "threshold", metric="mau", days="30", side="above", value="2")
    assert machine.work() == []
    assert "True" in text_of(admin.open("/alerts"))
    clock.advance(2 * HOUR_MS)
    assert len(machine.work()) == 1


def test_numbers_that_cannot_be_read_neither_start_nor_end_an_alert(machine, admin, app, send, clock, monkeypatch):
    add_channel(admin)
    add_rule(admin, app, "no_events", hours="1")
    clock.advance(2 * HOUR_MS)
    monkeypatch.setattr(type(machine.parts.ingest_stats), "counts", is_down)
    assert machine.work() == []
    assert "metric unavailable" in text_of(admin.open("/alerts"))
    monkeypatch.undo()
    clock.advance(6 * 60_000)
    assert len(machine.work()) == 1


def test_a_stale_answer_neither_starts_nor_ends_an_alert(core, machine, admin, app, send, clock, monkeypatch):
    add_channel(admin)
    send(app, *views(1))
    add_rule(admin, app, "threshold", metric="mrr", days="30", side="below", value="1", currency="EUR", cooldown="1")
    assert len(machine.work()) == 1
    monkeypatch.setattr(type(core.query.stores.ledger), "current_mrr", is_down)
    clock.advance(2 * HOUR_MS)
    assert machine.work() == []
    assert "metric unavailable" in text_of(admin.open("/alerts"))
    monkeypatch.undo()
    clock.advance(6 * 60_000)
    assert len(machine.work()) == 1, "it is still true"


def test_a_digest_waits_for_current_answers_and_then_leaves_out_stale_ones(
    core, machine, viewer, admin, app, send, clock, parts, monkeypatch
):
    send(app, {"name": "payment", "id": "1", "props": {"amount": 1250, "currency": "eur"}})
    admin.send("/alerts/times", {"time_zone": "UTC", "digest_hour": "20"})
    clock.advance(DAY_MS)
    subscribe(viewer, digest="daily", alerts="")
    known = parts.catalog.apps.find_anywhere(app["app_id"])
    window = digest_window(Cadence.DAILY, today_at(clock.now_ms()))
    machine.parts.numbers.cached(questions_about([known], window)[known])
    clock.advance(12 * HOUR_MS)
    monkeypatch.setattr(type(core.query.stores.ledger), "day_totals", is_down)
    assert machine.work() == []
    clock.advance(2 * HOUR_MS)
    ((_, notice),) = machine.work()
    assert {fact.label: fact.value for fact in notice.facts}["Gross revenue"] == "not readable now"


def test_rules_about_users_wait_while_loading_is_behind_and_those_about_money_do_not(
    core, machine, admin, app, send, organization, clock
):
    add_channel(admin)
    send(app, *views(3))
    add_rule(admin, app, "threshold", metric="dau", days="7", side="below", value="1")
    add_rule(admin, app, "change", metric="mau", days="7", direction="down", percent="50")
    add_rule(admin, app, "threshold", metric="mrr", days="30", side="below", value="1", currency="EUR")
    core.is_loading_behind = True
    clock.advance(8 * DAY_MS)
    assert [notice.title for _, notice in machine.work()] == ["Shop: MRR is below 1.00\N{NO-BREAK SPACE}EUR"]
    rules = machine.parts.store.rules.all_of(organization.org_id)
    assert sum(STATE.decode(rule.state).is_unknown for rule in rules) == 2
    core.is_loading_behind = False
    clock.advance(6 * 60_000)
    assert sorted(notice.title for _, notice in machine.work()) == [
        "Shop: DAU is below 1.0",
        "Shop: MAU fell by 100\N{NO-BREAK SPACE}%",
    ]


def test_a_digest_waits_two_hours_for_loading_and_then_says_that_events_are_missing(core, machine, viewer, app, clock):
    subscribe(viewer, digest="daily", alerts="")
    core.is_loading_behind = True
    clock.advance(DAY_MS)
    assert machine.work() == []
    clock.advance(2 * HOUR_MS - 1)
    assert machine.work() == []
    clock.advance(1)
    ((_, notice),) = machine.work()
    assert "the numbers of users may be too low" in notice.reason
    clock.advance(DAY_MS)
    assert machine.work() == []
    core.is_loading_behind = False
    ((_, notice),) = machine.work()
    assert "too low" not in notice.reason


def test_the_digest_lists_every_app_beside_the_days_before(machine, viewer, admin, api, app, send, clock):
    quiet = api.post("/v1/apps", json={"name": "Quiet"}).json()
    send(app, *views(4), {"name": "payment", "id": "1", "props": {"amount": 1250, "currency": "eur"}})
    subscribe(viewer, digest="daily", alerts="")
    subscribe(admin, digest="weekly", alerts="")
    sent, hours = [], 0
    while len(sent) < 2:
        clock.advance(HOUR_MS)
        hours += 1
        found = machine.work()
        sent += (
            found
            if not any(address == "viewer@example.com" for address, _ in sent)
            else [each for each in found if each[0] != "viewer@example.com"]
        )
        assert hours < 9 * 24
    notices = dict(sent)
    daily, weekly = notices["viewer@example.com"], notices["admin@example.com"]
    assert daily.kind == weekly.kind == "digest"
    assert daily.title.startswith("Daily digest of Acme: ")
    assert weekly.title.startswith("Weekly digest of Acme: ")
    facts = [(fact.app, fact.label, fact.value, fact.before) for fact in daily.facts]
    assert facts == [
        ("Shop", "Active users", "4", "0"),
        ("Shop", "Signups", "0", "0"),
        ("Shop", "Gross revenue", "12.50\N{NO-BREAK SPACE}EUR", "0.00\N{NO-BREAK SPACE}EUR"),
        ("Quiet", "Active users", "0", "0"),
        ("Quiet", "Signups", "0", "0"),
    ]
    assert f"/apps/{quiet['app_id']}?from=" in daily.facts[-1].link
    assert "/unsubscribe/" in daily.unsubscribe
    assert daily.unsubscribe.endswith("/digest")
    assert "You chose a daily digest" in text_of(viewer.open("/alerts"))


def test_a_digest_missed_while_the_service_was_down_is_sent_once(machine, viewer, app, clock):
    subscribe(viewer, digest="daily", alerts="")
    clock.advance(5 * DAY_MS)
    assert len(machine.work()) == 1
    assert machine.work() == []
    clock.advance(DAY_MS)
    assert len(machine.work()) == 1


@pytest.mark.parametrize("change", ["unsubscribe", "test mail"])
def test_a_digest_recorded_while_its_receiver_is_changed_is_not_sent_again(
    machine, signed_in, app, organization, clock, monkeypatch, change
):
    browser, user = signed_in(Role.VIEWER)
    subscribe(browser, digest="daily")
    subscribers = machine.parts.store.subscribers
    token = subscribers.find(user.user_id).token
    clock.advance(DAY_MS)
    found, method = [], "find_token" if change == "unsubscribe" else "find"
    find = getattr(subscribers, method)

    def find_then_record(_, key):
        found.append(find(key))
        if len(found) == 1:
            machine.runner.run_due()
        return found[-1]

    monkeypatch.setattr(type(subscribers), method, find_then_record)
    if change == "unsubscribe":
        assert edit.unsubscribe(machine.parts, token, Wish.ALERTS)
    else:
        edit.send_test_mail(machine.parts, organization, user)
    monkeypatch.undo()
    assert [notice.kind for _, notice in machine.work() + machine.work()].count("digest") == 1


@pytest.mark.embedded
def test_a_digest_that_is_due_by_the_stores_clock_is_sent_once(machine, recorder, viewer, app, clock, settings):
    subscribe(viewer, digest="daily", alerts="")
    (subscriber,) = machine.parts.store.subscribers.due(clock.now_ms() + 2 * DAY_MS, 10)
    clock.advance(subscriber.next_at - clock.now_ms() - 30_000)
    url = sqlite_url(settings.data / "catalog.db")
    with closing(Database(url, PATIENCE_S, time_of=lambda _tx, now_ms: now_ms + 60_000)) as ahead:
        behind = Machine(replace(machine.parts, store=AlertStore(ahead)), recorder)
        assert len(behind.work()) == 1
        assert behind.work() == []
        clock.advance(HOUR_MS)
        assert behind.work() == []
        clock.advance(DAY_MS)
        assert len(behind.work()) == 1


def test_without_smtp_no_mail_is_made_and_the_page_says_what_to_set(core, client, recorder, viewer, admin, app, clock):
    machine = Machine(core.dashboard.alerts, recorder, kinds=("slack",))
    subscribe(viewer, digest="daily")
    add_rule(admin, app, "no_events", hours="1")
    clock.advance(2 * DAY_MS)
    assert machine.work() == []
    page = viewer.open("/alerts").text
    assert "MAUVE_SMTP_URL" in page
    assert "Nothing has been sent yet." in page
    assert viewer.send("/alerts/wishes/test").status_code == 400
