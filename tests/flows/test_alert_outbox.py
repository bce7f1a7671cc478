"""The outbox sends each message at least once, to whom it still concerns, and within the limits of an organization."""

import re
import sys
import threading

import pytest

from mauve.alerts import edit
from mauve.alerts.channels import SendFailed
from mauve.alerts.outbox import CLAIM_MS, MESSAGES_PER_HOUR_MAX, TESTS_PER_HOUR_MAX
from mauve.alerts.schedule import Cadence
from mauve.control import people
from mauve.core.user import Role
from support.alerts import DAY_MS, HOUR_MS, WEBHOOK, Machine, add_channel, add_rule, subscribe, text_of
from support.catalog_entries import an_organization
from support.service import PATIENCE_S


@pytest.fixture
def admin(signed_in):
    return signed_in(Role.ADMIN)[0]


@pytest.fixture
def app(api):
    return api.post("/v1/apps", json={"name": "Shop"}).json()


def test_an_organization_has_only_so_many_messages_an_hour_and_the_rest_wait(machine, admin, app, clock):
    for number in range(10):
        add_channel(admin, name=f"Channel {number}")
    assert "there are 10 channels: delete one first" in add_channel(admin).text.lower()
    for _ in range(12):
        add_rule(admin, app, "no_events", hours="1")
    clock.advance(2 * HOUR_MS)
    assert len(machine.work() + machine.work()) == MESSAGES_PER_HOUR_MAX
    channel_id = re.search(r"/alerts/channels/(chan_\w+)/test", admin.open("/alerts").text)[1]
    refused = admin.send(f"/alerts/channels/{channel_id}/test")
    assert refused.status_code == 429
    assert "try again later" in refused.text
    clock.advance(HOUR_MS)
    assert len(machine.work()) == 20


def test_tests_leave_room_for_alerts(machine, admin, app, clock):
    add_channel(admin)
    add_rule(admin, app, "no_events", hours="1")
    clock.advance(2 * HOUR_MS)
    path = re.search(r"/alerts/channels/chan_\w+/test", admin.open("/alerts").text)[0]
    assert {admin.send(path).status_code for _ in range(TESTS_PER_HOUR_MAX)} == {200}
    assert admin.send(path).status_code == 429
    assert "Shop: no events for 1 hour" in [notice.title for _, notice in machine.work()]


def test_an_alert_to_very_many_members_is_sent_to_all_of_them(machine, admin, app, parts, organization, clock):
    for number in range(MESSAGES_PER_HOUR_MAX + 1):
        user, _ = people.create_user(parts, organization.org_id, f"{number}@example.com", Role.VIEWER)
        edit.save_wishes(machine.parts, user, Cadence.NEVER, alerts=True)
    add_rule(admin, app, "no_events", hours="1")
    clock.advance(2 * HOUR_MS)
    assert len({address for address, _ in machine.work() + machine.work()}) == MESSAGES_PER_HOUR_MAX + 1


def test_receivers_that_do_not_answer_hardly_delay_those_of_others(core, client, parts, admin, app, clock):
    arrived = threading.Event()

    class Slow:
        """Does not answer one organization until another's message has arrived."""

        def send(self, target, notice):
            if notice.sent_for == "Other":
                arrived.set()
            elif not arrived.wait(PATIENCE_S):
                raise SendFailed("the other message did not arrive", retry=False)

    machine = Machine(core.dashboard.alerts, Slow())
    for number in range(10):
        add_channel(admin, name=f"Channel {number}")
    for _ in range(3):
        add_rule(admin, app, "no_events", hours="1")
    clock.advance(2 * HOUR_MS)
    machine.runner.run_due()
    other = an_organization(name="Other")
    parts.catalog.organizations.create(other)
    user, _ = people.create_user(parts, other.org_id, "other@example.com", Role.ADMIN)
    channel, _ = edit.create_channel(machine.parts, user, "slack", "Theirs", WEBHOOK)
    edit.send_test_to_channel(machine.parts, other, user, channel.channel_id)
    machine.outbox.send_due()
    assert "did not arrive" not in admin.open("/alerts").text
    assert machine.parts.store.messages.count_waiting() == 0


def test_two_machines_send_each_message_once(core, machine, recorder, admin, app, clock, monkeypatch):
    add_channel(admin)
    add_rule(admin, app, "no_events", hours="1")
    clock.advance(2 * HOUR_MS)
    other = Machine(core.dashboard.alerts, recorder)
    due = other.parts.store.rules.due(clock.now_ms(), 10)
    machine.runner.run_due()
    monkeypatch.setattr(type(other.parts.store.rules), "due", lambda *_: due)  # as if it had looked before
    other.runner.run_due()
    claimed = machine.parts.store.messages.claim(clock.now_ms(), CLAIM_MS, 10, 10)
    assert len(claimed) == 1
    other.outbox.send_due()
    assert recorder.take() == []


def test_a_machine_without_smtp_leaves_mail_to_one_that_has_it(core, machine, recorder, viewer, app, clock):
    without = Machine(core.dashboard.alerts, recorder, kinds=("slack",))
    subscribe(viewer, digest="daily", alerts="")
    clock.advance(DAY_MS)
    machine.runner.run_due()
    without.outbox.send_due()
    assert recorder.take() == []
    assert "Trying again" not in viewer.open("/alerts").text
    machine.outbox.send_due()
    assert len(recorder.take()) == 1


def test_mail_that_no_machine_can_send_is_given_up(core, machine, recorder, viewer, app, organization, clock):
    without = Machine(core.dashboard.alerts, recorder, kinds=("slack",))
    subscribe(viewer, digest="daily", alerts="")
    clock.advance(DAY_MS)
    machine.runner.run_due()
    for _ in range(60):
        clock.advance(HOUR_MS)
        without.outbox.send_due()
    assert machine.parts.store.messages.count_waiting() == 0
    (message,) = machine.parts.store.messages.recent(organization.org_id, 10)
    assert "MAUVE_SMTP_URL" in message.failure
    assert recorder.take() == []


def test_a_sender_that_dies_leaves_a_message_that_is_sent_again_with_the_same_id(
    machine, recorder, admin, app, clock, monkeypatch
):
    add_channel(admin)
    add_rule(admin, app, "no_events", hours="1")
    clock.advance(2 * HOUR_MS)
    machine.runner.run_due()
    monkeypatch.setattr(type(machine.parts.store.messages), "finish", lambda *_: sys.exit("killed"))
    with pytest.raises(SystemExit):
        machine.outbox.send_due()
    monkeypatch.undo()
    ((_, first),) = recorder.take()
    clock.advance(CLAIM_MS - 1)
    assert machine.work() == []
    clock.advance(1)
    machine.outbox.send_due()
    ((_, second),) = recorder.take()
    assert second == first
    clock.advance(CLAIM_MS)
    machine.outbox.send_due()
    assert recorder.take() == []


def test_a_failed_message_is_tried_again_and_given_up_at_last(machine, recorder, admin, app, clock):
    add_channel(admin)
    add_rule(admin, app, "no_events", hours="1", cooldown="720")
    clock.advance(2 * HOUR_MS)
    recorder.failure = SendFailed("the receiver answered 500\x00", retry=True)
    machine.work()
    assert "Trying again" in admin.open("/alerts").text
    for _ in range(60):
        clock.advance(HOUR_MS)
        machine.outbox.send_due()
    page = text_of(admin.open("/alerts"))
    assert "Failed The receiver answered 500." in page
    recorder.failure = None
    clock.advance(DAY_MS)
    machine.outbox.send_due()
    assert recorder.take() == []


def test_prometheus_learns_what_was_sent_what_failed_and_what_waits(machine, recorder, admin, viewer, app, clock):
    def figures():
        names = {"sent": "mauve_alerts_sent_total", "failed": "mauve_alerts_failed_total"}
        by_channel = {
            (result, channel): machine.registry.get_sample_value(name, {"channel": channel})
            for result, name in names.items()
            for channel in ("email", "webhook")
        }
        return by_channel | {"waiting": machine.registry.get_sample_value("mauve_alerts_waiting")}

    nothing = dict.fromkeys([("sent", "email"), ("sent", "webhook"), ("failed", "email"), ("failed", "webhook")], 0)
    machine.work()
    assert figures() == nothing | {"waiting": 0}
    add_channel(admin)
    subscribe(viewer)
    add_rule(admin, app, "no_events", hours="1", cooldown="720")
    clock.advance(2 * HOUR_MS)
    recorder.failure = SendFailed("the receiver answered 500", retry=True)
    machine.work()
    assert figures() == nothing | {("failed", "email"): 1, ("failed", "webhook"): 1, "waiting": 2}
    recorder.failure = None
    clock.advance(HOUR_MS)
    machine.work()
    assert figures() == dict.fromkeys(nothing, 1) | {"waiting": 0}


def test_a_refused_message_is_not_tried_again_and_an_unexpected_error_is(machine, recorder, admin, app, clock):
    add_channel(admin)
    add_rule(admin, app, "no_events", hours="1")
    clock.advance(2 * HOUR_MS)
    recorder.failure = ValueError("canary")
    machine.work()
    page = text_of(admin.open("/alerts"))
    assert "Trying again An unexpected error" in page
    assert "canary" not in page
    recorder.failure = SendFailed("the receiver answered 410", retry=False)
    clock.advance(HOUR_MS)
    machine.outbox.send_due()
    assert "Failed The receiver answered 410." in text_of(admin.open("/alerts"))


def test_a_member_who_left_or_unsubscribed_gets_nothing_that_still_waits(
    machine, signed_in, admin, app, clock, parts, organization
):
    leaving, left = signed_in(Role.DEVELOPER, "left@example.com")
    staying, _ = signed_in(Role.DEVELOPER, "stays@example.com")
    subscribe(leaving)
    subscribe(staying)
    add_rule(admin, app, "no_events", hours="1")
    clock.advance(2 * HOUR_MS)
    machine.runner.run_due()
    parts.catalog.users.remove(organization.org_id, left.user_id, lambda members: None, lambda minted: type(minted)())
    staying.send("/alerts/wishes", {"digest": "never"})
    assert machine.work() == []
    page = text_of(admin.open("/alerts"))
    assert "No longer a member." in page
    assert "The member has unsubscribed" in page
