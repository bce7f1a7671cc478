"""The promises of the store of alerts, on every engine."""

from contextlib import closing
from dataclasses import replace

import pytest

from mauve.core.ids import SystemRandomness, new_id
from mauve.core.user import Role, User
from mauve.stores.alerts import AlertStore, Channel, OrganizationTimes, StoredRule, Subscriber
from mauve.stores.alerts.outbox import Message, MessageState, Room
from mauve.stores.catalog import OneTimeLink
from mauve.stores.catalog.catalog import Catalog
from mauve.stores.sql.database import Database, machine_time
from mauve.stores.sql.migrate import CATALOG
from support.catalog_entries import a_key, an_app, an_organization, let_pass
from support.service import PATIENCE_S

SQL_ENGINES = ("sqlite", pytest.param("postgresql", marks=pytest.mark.servers))
NOW = 1_800_000_000_000
ROOM = Room(messages_max=10, of_kind_max=10, since=NOW - 3_600_000)
RANDOM = SystemRandomness()


class Stored:
    """The store, and a catalog with two organizations."""

    def __init__(self, database):
        self.catalog = Catalog(database)
        self.alerts = AlertStore(database)
        self.orgs = [self.organization(), self.organization()]

    def organization(self):
        organization = an_organization()
        self.catalog.organizations.create(organization)
        return organization.org_id

    def app(self, org_id):
        return self.catalog.apps.create(an_app(org_id), a_key(), let_pass).app_id

    def user(self, org_id):
        user = User(new_id("usr", RANDOM), org_id, f"{RANDOM.base62(8)}@example.com", Role.VIEWER, NOW)
        link = OneTimeLink(new_id("lnk", RANDOM), RANDOM.base62(32).encode(), user.user_id, NOW + 1, NOW)
        assert self.catalog.users.create(user, link, lambda members: None)
        return user.user_id

    def rule(self, org_id=None, app_id=None, next_at=NOW):
        org_id = org_id or self.orgs[0]
        rule = StoredRule(
            new_id("rule", RANDOM), org_id, app_id or self.app(org_id), "{}", "{}", 0, next_at, NOW, "usr_x"
        )
        assert self.alerts.rules.create(rule, 20, 100)
        return rule

    def message(self, org_id=None, kind="threshold", at=NOW):
        org_id = org_id or self.orgs[0]
        return Message(new_id("msg", RANDOM), org_id, kind, "chan_x", None, "Team chat", "{}", at)

    def claim(self, now_ms, count_max=16, of_organization_max=4, mail_until=None):
        found = self.alerts.messages.claim(now_ms, 60_000, count_max, of_organization_max, mail_until)
        return {message.message_id: message for message in found}


@pytest.fixture(params=SQL_ENGINES)
def stored(request, new_sql_database, tmp_path):
    url = new_sql_database(request.param, CATALOG, tmp_path)
    with closing(Database(url, busy_timeout_s=PATIENCE_S, time_of=machine_time)) as database:
        yield Stored(database)


def test_times_have_defaults_and_are_replaced(stored):
    assert stored.alerts.times.find(stored.orgs[0]) == OrganizationTimes()
    for times in (OrganizationTimes("Europe/Berlin", 22, 7, 9), OrganizationTimes("UTC", None, None, 6)):
        stored.alerts.times.save(stored.orgs[0], times)
        assert stored.alerts.times.find(stored.orgs[0]) == times
    assert stored.alerts.times.find(stored.orgs[1]) == OrganizationTimes()


def test_rules_are_limited_for_each_app_and_organization(stored):
    org_id = stored.orgs[0]
    first, second = stored.app(org_id), stored.app(org_id)

    def create(app_id):
        rule = StoredRule(new_id("rule", RANDOM), org_id, app_id, "{}", "{}", 0, NOW, NOW, "usr_x")
        return stored.alerts.rules.create(rule, 2, 3)

    assert [create(first), create(first), create(first)] == [True, True, False]
    assert [create(second), create(second)] == [True, False]
    assert len(stored.alerts.rules.all_of(org_id)) == 3
    assert stored.alerts.rules.all_of(stored.orgs[1]) == []


def test_rules_are_due_in_order_and_not_for_archived_apps(stored):
    late, early, future = (stored.rule(next_at=at) for at in (NOW, NOW - 5, NOW + 1))
    archived = stored.rule()
    stored.catalog.apps.archive(archived.org_id, archived.app_id, NOW)
    assert [each.rule_id for each in stored.alerts.rules.due(NOW, 10)] == [early.rule_id, late.rule_id]
    assert [each.rule_id for each in stored.alerts.rules.due(NOW, 1)] == [early.rule_id]
    stored.alerts.rules.postpone(early, NOW + 10)
    assert [each.rule_id for each in stored.alerts.rules.due(NOW + 1, 10)] == [late.rule_id, future.rule_id]


def test_an_evaluation_and_its_messages_are_stored_together_and_only_by_the_first(stored):
    rule = stored.rule()
    assert stored.alerts.rules.record(rule, '{"is": "true"}', NOW + 9, [stored.message()], ROOM)
    assert not stored.alerts.rules.record(rule, "{}", NOW + 99, [stored.message()], ROOM)
    (kept,) = stored.alerts.rules.all_of(rule.org_id)
    assert (kept.state, kept.next_at, kept.version) == ('{"is": "true"}', NOW + 9, 1)
    assert len(stored.alerts.messages.recent(rule.org_id, 10)) == 1
    assert stored.alerts.rules.delete(rule.org_id, rule.rule_id)
    assert not stored.alerts.rules.record(kept, "{}", NOW, [stored.message()], ROOM)
    assert len(stored.alerts.messages.recent(rule.org_id, 10)) == 1


def test_without_room_neither_evaluation_nor_messages_are_stored(stored):
    rule = stored.rule()
    assert stored.alerts.messages.add([stored.message() for _ in range(9)], ROOM)
    assert not stored.alerts.rules.record(rule, '{"x": 1}', NOW + 9, [stored.message(), stored.message()], ROOM)
    assert stored.alerts.rules.all_of(rule.org_id) == [rule]
    assert stored.alerts.rules.record(rule, '{"x": 1}', NOW + 9, [stored.message()], ROOM)
    assert not stored.alerts.messages.add([stored.message()], ROOM)
    assert stored.alerts.messages.add([stored.message(stored.orgs[1])], ROOM)
    assert stored.alerts.messages.add([stored.message()], Room(10, 10, NOW)), "an hour later there is room again"


def test_one_kind_of_message_leaves_room_for_others(stored):
    few = replace(ROOM, of_kind_max=2)
    assert stored.alerts.messages.add([stored.message(kind="test") for _ in range(2)], few)
    assert not stored.alerts.messages.add([stored.message(kind="test")], few)
    assert stored.alerts.messages.add([stored.message()], few)


def test_messages_wait_until_they_are_sent_or_given_up(stored):
    assert stored.alerts.messages.count_waiting() == 0
    assert stored.alerts.messages.add([stored.message() for _ in range(3)], ROOM)
    sent, failed, again = stored.claim(NOW).values()
    assert stored.alerts.messages.count_waiting() == 3
    stored.alerts.messages.finish(sent, MessageState.SENT, NOW, None, "{}")
    stored.alerts.messages.finish(failed, MessageState.FAILED, NOW, "refused", "{}")
    stored.alerts.messages.retry(again, NOW + 100, "busy")
    assert stored.alerts.messages.count_waiting() == 1


def test_channels_are_limited_and_belong_to_their_organization(stored):
    mine, theirs = stored.orgs

    def channel(org_id):
        return Channel(new_id("chan", RANDOM), org_id, "slack", "Team", "https://x/…", b"\x01\x00", NOW, "usr_x")

    first = channel(mine)
    assert [stored.alerts.channels.create(each, 2) for each in (first, channel(mine), channel(mine))] == [
        True,
        True,
        False,
    ]
    assert stored.alerts.channels.find(mine, first.channel_id) == first
    assert stored.alerts.channels.find(theirs, first.channel_id) is None
    assert not stored.alerts.channels.delete(theirs, first.channel_id)
    assert stored.alerts.channels.delete(mine, first.channel_id)
    assert len(stored.alerts.channels.all_of(mine)) == 1


def test_sealed_channels_count_for_the_master_key(stored):
    channel = Channel(new_id("chan", RANDOM), stored.orgs[0], "slack", "Team", "…", b"\x01sealed", NOW, "usr_x")
    stored.alerts.channels.create(channel, 10)
    assert list(stored.catalog.webhook_secrets.all_sealed()) == [b"\x01sealed"]


def test_a_digest_is_recorded_once_and_the_token_stays(stored):
    user_id = stored.user(stored.orgs[0])
    wants = Subscriber(user_id, stored.orgs[0], "daily", alerts=False, token="first", next_at=NOW)
    stored.alerts.subscribers.add(wants)
    stored.alerts.subscribers.add(replace(wants, token="second", next_at=NOW + 1))
    stored.alerts.subscribers.change(user_id, digest="weekly", alerts=True)
    saved = stored.alerts.subscribers.find(user_id)
    assert (saved.token, saved.digest, saved.alerts) == ("first", "weekly", True)
    assert stored.alerts.subscribers.find_token("first") == saved
    assert stored.alerts.subscribers.find_token("second") is None
    assert stored.alerts.subscribers.wanting_alerts(stored.orgs[0]) == [saved]
    assert stored.alerts.subscribers.due(NOW - 1, 10) == []
    (due,) = stored.alerts.subscribers.due(NOW, 10)
    assert stored.alerts.subscribers.record(due, NOW + 7, stored.message(kind="digest"))
    assert not stored.alerts.subscribers.record(due, NOW + 7, stored.message(kind="digest"))
    assert stored.alerts.subscribers.find(user_id).next_at == NOW + 7
    assert len(stored.alerts.messages.recent(stored.orgs[0], 10)) == 1


def test_a_wish_that_ends_leaves_the_others_as_they_are(stored):
    user_id = stored.user(stored.orgs[0])
    wants = Subscriber(user_id, stored.orgs[0], "daily", alerts=True, token="token", next_at=NOW)
    subscribers = stored.alerts.subscribers
    subscribers.add(wants)
    assert subscribers.find(user_id) == wants
    subscribers.add(replace(wants, token="other", alerts=False, next_at=NOW + 1))
    assert subscribers.find(user_id) == wants
    subscribers.change(user_id, alerts=False)
    assert subscribers.find(user_id) == replace(wants, alerts=False)
    subscribers.change(user_id, digest="never", next_at=None)
    assert subscribers.find(user_id) == replace(wants, alerts=False, digest="never", next_at=None)


def test_only_a_wanted_digest_is_rescheduled(stored):
    user_id = stored.user(stored.orgs[0])
    stored.alerts.subscribers.add(
        Subscriber(user_id, stored.orgs[0], "never", alerts=True, token="token", next_at=None)
    )
    stored.alerts.subscribers.reschedule(user_id, NOW)
    assert stored.alerts.subscribers.find(user_id).next_at is None
    assert stored.alerts.subscribers.wanting_digests(stored.orgs[0]) == []


def test_rows_go_with_the_app_or_the_member_they_belong_to(stored):
    org_id = stored.orgs[0]
    rule, user_id = stored.rule(), stored.user(org_id)
    stored.alerts.subscribers.add(Subscriber(user_id, org_id, "daily", alerts=True, token="token", next_at=NOW))
    stored.catalog.users.remove(org_id, user_id, lambda members: None, lambda minted: type(minted)())
    assert stored.alerts.subscribers.find(user_id) is None
    stored.catalog.apps.archive(org_id, rule.app_id, NOW)
    assert stored.catalog.apps.delete(org_id, rule.app_id)
    assert stored.alerts.rules.all_of(org_id) == []


def test_a_claimed_message_is_not_claimed_again_until_the_claim_ends(stored):
    assert stored.alerts.messages.add([stored.message()], ROOM)
    (claimed,) = stored.claim(NOW).values()
    assert claimed.attempts == 1
    assert stored.claim(NOW + 59_999) == {}
    (again,) = stored.claim(NOW + 60_000).values()
    assert (again.message_id, again.attempts) == (claimed.message_id, 2)


def test_the_end_of_an_earlier_claim_changes_nothing(stored):
    assert stored.alerts.messages.add([stored.message()], ROOM)
    (first,) = stored.claim(NOW).values()
    (second,) = stored.claim(NOW + 60_000).values()
    stored.alerts.messages.finish(first, MessageState.FAILED, NOW, "too late", "{}")
    stored.alerts.messages.finish(second, MessageState.SENT, NOW + 60_001, None, '{"kept": 1}')
    (kept,) = stored.alerts.messages.recent(stored.orgs[0], 10)
    assert (kept.state, kept.done_at, kept.failure) == (MessageState.SENT, NOW + 60_001, None)
    assert kept.notice == '{"kept": 1}'
    assert stored.claim(NOW + 10**9) == {}


def test_a_message_is_tried_again_when_it_is_due(stored):
    assert stored.alerts.messages.add([stored.message()], ROOM)
    (claimed,) = stored.claim(NOW).values()
    stored.alerts.messages.retry(claimed, NOW + 100, "the receiver did not answer")
    assert stored.claim(NOW + 99) == {}
    (again,) = stored.claim(NOW + 100).values()
    assert (again.attempts, again.failure) == (2, "the receiver did not answer")


def test_one_organization_gets_only_a_part_of_a_claim(stored):
    assert stored.alerts.messages.add([stored.message(at=NOW - 9) for _ in range(9)], ROOM)
    assert stored.alerts.messages.add([stored.message(stored.orgs[1])], ROOM)
    claimed = list(stored.claim(NOW, count_max=5, of_organization_max=3).values())
    assert [message.org_id for message in claimed] == [stored.orgs[0]] * 3 + [stored.orgs[1]]


def test_the_first_of_every_organization_is_claimed_before_the_second_of_any(stored):
    assert stored.alerts.messages.add([stored.message(at=NOW - 9) for _ in range(9)], ROOM)
    assert stored.alerts.messages.add([stored.message(stored.orgs[1])], ROOM)
    claimed = stored.claim(NOW, count_max=2).values()
    assert [message.org_id for message in claimed] == stored.orgs


def test_messages_to_members_are_left_to_others_until_they_are_old(stored):
    to_channel = stored.message()
    to_members = [replace(stored.message(at=at), channel_id=None, user_id="usr_x") for at in (NOW - 9, NOW)]
    assert stored.alerts.messages.add([to_channel, *to_members], ROOM)
    assert stored.claim(NOW, mail_until=NOW - 10).keys() == {to_channel.message_id}
    assert stored.claim(NOW, mail_until=NOW - 9).keys() == {to_members[0].message_id}
    assert stored.claim(NOW).keys() == {to_members[1].message_id}


def test_old_and_surplus_history_is_deleted_but_nothing_that_is_due(stored):
    for at in (NOW - 100, NOW - 50, NOW - 40, NOW - 30):
        assert stored.alerts.messages.add([stored.message(at=at)], ROOM)
    for message in stored.claim(NOW, of_organization_max=9).values():
        stored.alerts.messages.finish(message, MessageState.SENT, NOW, None, "{}")
    assert stored.alerts.messages.add([stored.message(at=NOW - 200)], ROOM)
    stored.alerts.messages.prune(NOW - 60, 2)
    kept = [message.created_at for message in stored.alerts.messages.recent(stored.orgs[0], 10)]
    assert kept == [NOW - 30, NOW - 40, NOW - 200]
