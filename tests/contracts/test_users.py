"""What every catalog promises about users, their links and their sessions."""

import threading
from contextlib import suppress
from dataclasses import replace

import pytest

from mauve.core.ids import SystemRandomness, new_id
from mauve.core.organization import Limits, Organization, Standing
from mauve.core.user import Role, Session, User
from mauve.stores.catalog import Account, Member, Minted, OneTimeLink

NOW = 1_800_000_000_000
RANDOM = SystemRandomness()


def an_id(prefix):
    return new_id(prefix, RANDOM)


def a_digest():
    return RANDOM.base62(32).encode()


def an_organization():
    return Organization(an_id("org"), "Acme", Standing.LIVE, None, Limits(), NOW)


def a_user(org, email="ann@example.com", role=Role.OWNER, created_at=NOW):
    return User(an_id("usr"), org.org_id, email, role, created_at)


def a_link(user=None, **fields):
    known = {
        "link_id": an_id("lnk"),
        "digest": a_digest(),
        "user_id": user and user.user_id,
        "expires_at": NOW + 1,
        "created_at": NOW,
    }
    return OneTimeLink(**(known | fields))


def a_session(user, **fields):
    known = {
        "session_id": an_id("ses"),
        "user_id": user.user_id,
        "agent": "Browser/1",
        "created_at": NOW,
        "seen_at": NOW,
        "expires_at": NOW + 1000,
    }
    return Session(**(known | fields))


def let_pass(members):
    """A check that allows every change."""


def keep_all(minted):
    """A withdrawal that revokes nothing."""
    return Minted()


@pytest.fixture
def org(catalog):
    organization = an_organization()
    catalog.organizations.create(organization)
    return organization


@pytest.fixture
def ann(catalog, org):
    user = a_user(org)
    assert catalog.users.create(user, a_link(user), let_pass)
    return user


class TestUsers:
    def test_a_new_user_has_a_link_and_no_password(self, catalog, org):
        assert catalog.users.any_exist() is False
        user = a_user(org)
        link = a_link(user)
        assert catalog.users.create(user, link, let_pass) is True
        assert catalog.users.any_exist() is True
        assert catalog.links.find(link.digest) == link
        assert catalog.users.find(user.user_id) == Member(user, has_password=False, link_expires_at=NOW + 1)
        assert catalog.users.find("usr_missing") is None

    def test_an_address_has_one_account(self, catalog, org, ann):
        twin = replace(ann, user_id=an_id("usr"))
        link = a_link(twin)
        assert catalog.users.create(twin, link, let_pass) is False
        assert catalog.links.find(link.digest) is None

    def test_members_of_the_organization_are_listed_oldest_first(self, catalog, org, ann):
        other = an_organization()
        catalog.organizations.create(other)
        for user in (a_user(org, "b@example.com", Role.VIEWER, NOW - 1), a_user(other, "c@example.com")):
            catalog.users.create(user, a_link(user), let_pass)
        emails = [member.user.email for member in catalog.users.all_of(org.org_id)]
        assert emails == ["b@example.com", "ann@example.com"]

    def test_a_role_is_changed_after_all_members_were_checked(self, catalog, org, ann):
        looked_at = []
        assert catalog.users.change_role(org.org_id, ann.user_id, Role.VIEWER, looked_at.extend, keep_all) is True
        assert [member.user for member in looked_at] == [ann]
        assert catalog.users.find(ann.user_id).user == replace(ann, role=Role.VIEWER)

    def test_a_check_that_raises_prevents_the_change(self, catalog, org, ann):
        def refuse(members):
            raise LookupError

        with pytest.raises(LookupError):
            catalog.users.change_role(org.org_id, ann.user_id, Role.VIEWER, refuse, keep_all)
        with pytest.raises(LookupError):
            catalog.users.remove(org.org_id, ann.user_id, refuse, keep_all)
        assert catalog.users.find(ann.user_id).user == ann

    def test_members_of_another_organization_are_neither_changed_nor_removed(self, catalog, org, ann):
        other = an_organization()
        catalog.organizations.create(other)
        assert catalog.users.change_role(other.org_id, ann.user_id, Role.VIEWER, let_pass, keep_all) is False
        assert catalog.users.remove(other.org_id, ann.user_id, let_pass, keep_all) is False
        assert catalog.users.find(ann.user_id).user == ann

    def test_a_removed_user_loses_sessions_and_links(self, catalog, org, ann):
        digest, link = a_digest(), a_link(ann)
        catalog.links.replace(link)
        catalog.sessions.begin(a_session(ann), digest)
        assert catalog.users.remove(org.org_id, ann.user_id, let_pass, keep_all) is True
        assert catalog.users.find(ann.user_id) is None
        assert catalog.passwords.find(ann.email) is None
        assert catalog.links.find(link.digest) is None
        assert catalog.sessions.find(digest, NOW) is None
        assert catalog.users.create(ann, a_link(ann), let_pass) is True, "the address can be invited again"

    def test_of_two_owners_who_remove_each_other_at_once_one_remains(self, catalog, org, ann):
        bob = a_user(org, "bob@example.com")
        catalog.users.create(bob, a_link(bob), let_pass)

        def one_must_stay(members):
            if len(members) == 1:
                raise LookupError

        def remove(user):
            with suppress(LookupError):
                catalog.users.remove(org.org_id, user.user_id, one_must_stay, keep_all)

        threads = [threading.Thread(target=remove, args=(user,)) for user in (ann, bob)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(catalog.users.all_of(org.org_id)) == 1


class TestPasswords:
    def test_an_account_is_found_by_its_address(self, catalog, ann):
        assert catalog.passwords.find(ann.email) == Account(ann, None)
        assert catalog.passwords.find("missing@example.com") is None

    def test_a_new_password_ends_sessions_and_deletes_unused_links(self, catalog, ann):
        digest, link = a_digest(), a_link(ann)
        catalog.links.replace(link)
        catalog.sessions.begin(a_session(ann), digest)
        catalog.passwords.replace(ann.user_id, "$hash")
        assert catalog.passwords.find(ann.email) == Account(ann, "$hash")
        assert catalog.sessions.find(digest, NOW) is None
        assert catalog.links.find(link.digest) is None
        assert catalog.users.find(ann.user_id) == Member(ann, has_password=True, link_expires_at=None)


class TestLinks:
    def test_a_new_setup_link_replaces_the_previous_one(self, catalog):
        first, second = a_link(), a_link()
        catalog.links.replace_setup(first)
        catalog.links.replace_setup(second)
        assert catalog.links.find(first.digest) is None
        assert catalog.links.find(second.digest) == second

    def test_a_new_link_replaces_only_those_of_the_same_user(self, catalog, org, ann):
        bob = a_user(org, "bob@example.com")
        bobs, setup, anns, newer = a_link(bob), a_link(), a_link(ann), a_link(ann)
        catalog.users.create(bob, bobs, let_pass)
        catalog.links.replace_setup(setup)
        catalog.links.replace(anns)
        catalog.links.replace(newer)
        assert [catalog.links.find(link.digest) for link in (bobs, setup, anns, newer)] == [bobs, setup, None, newer]

    def test_a_link_sets_the_password_once(self, catalog, ann):
        link, digest = a_link(ann), a_digest()
        catalog.links.replace(link)
        catalog.sessions.begin(a_session(ann), digest)
        assert catalog.links.use(link.digest, "$hash", NOW) == ann.user_id
        assert catalog.passwords.find(ann.email).password_hash == "$hash"
        assert catalog.sessions.find(digest, NOW) is None
        assert catalog.links.find(link.digest) is None
        assert catalog.links.use(link.digest, "$other", NOW) is None
        assert catalog.passwords.find(ann.email).password_hash == "$hash"

    def test_the_setup_link_creates_the_first_owner_once(self, catalog, follower):
        link, organization = a_link(), an_organization()
        owner = a_user(organization)
        catalog.links.replace_setup(link)
        assert catalog.links.use_setup(link.digest, organization, owner, "$hash", NOW) is True
        assert catalog.organizations.find(organization.org_id) == organization
        assert catalog.passwords.find(owner.email) == Account(owner, "$hash")
        assert [record.org_id for record in follower.news()] == [organization.org_id]
        again = an_organization()
        assert catalog.links.use_setup(link.digest, again, a_user(again, "b@example.com"), "$hash", NOW) is False
        assert catalog.organizations.list_all() == [organization]

    def test_the_setup_link_is_void_once_an_account_exists(self, catalog, org, ann):
        link, organization = a_link(), an_organization()
        catalog.links.replace_setup(link)
        owner = a_user(organization, "b@example.com")
        assert catalog.links.use_setup(link.digest, organization, owner, "$hash", NOW) is False
        assert catalog.organizations.list_all() == [org]

    def test_neither_kind_of_link_works_as_the_other(self, catalog, org, ann):
        setup, anns = a_link(), a_link(ann)
        catalog.links.replace_setup(setup)
        catalog.links.replace(anns)
        assert catalog.links.use(setup.digest, "$hash", NOW) is None
        organization = an_organization()
        assert catalog.links.use_setup(anns.digest, organization, a_user(organization, "b@e.com"), "$h", NOW) is False
        assert catalog.links.find(anns.digest) == anns


class TestSessions:
    def test_a_session_returns_its_user_and_organization(self, catalog, org, ann):
        session, digest = a_session(ann), a_digest()
        catalog.sessions.begin(session, digest)
        found = catalog.sessions.find(digest, NOW)
        assert (found.session, found.user, found.organization) == (session, ann, org)
        assert catalog.sessions.find(a_digest(), NOW) is None

    def test_a_session_shows_the_current_role(self, catalog, org, ann):
        digest = a_digest()
        catalog.sessions.begin(a_session(ann), digest)
        catalog.users.change_role(org.org_id, ann.user_id, Role.VIEWER, let_pass, keep_all)
        assert catalog.sessions.find(digest, NOW).user.role is Role.VIEWER

    def test_the_time_a_session_was_last_seen_is_recorded(self, catalog, ann):
        session, digest = a_session(ann), a_digest()
        catalog.sessions.begin(session, digest)
        catalog.sessions.note_seen(session.session_id, NOW + 7)
        assert catalog.sessions.find(digest, NOW).session == replace(session, seen_at=NOW + 7)

    def test_sessions_are_listed_last_seen_first_and_ended_one_by_one_or_all(self, catalog, org, ann):
        bob = a_user(org, "bob@example.com")
        catalog.users.create(bob, a_link(bob), let_pass)
        older, newer, bobs = a_session(ann), a_session(ann, seen_at=NOW + 1), a_session(bob)
        for session in (older, newer, bobs):
            catalog.sessions.begin(session, a_digest())
        assert catalog.sessions.all_of(ann.user_id) == [newer, older]
        catalog.sessions.end(bob.user_id, newer.session_id)
        assert catalog.sessions.all_of(ann.user_id) == [newer, older], "users cannot end sessions of others"
        catalog.sessions.end(ann.user_id, newer.session_id)
        assert catalog.sessions.all_of(ann.user_id) == [older]
        catalog.sessions.end_all(ann.user_id)
        assert catalog.sessions.all_of(ann.user_id) == []
        assert catalog.sessions.all_of(bob.user_id) == [bobs]

    def test_a_new_session_deletes_expired_ones(self, catalog, ann):
        catalog.sessions.begin(a_session(ann, expires_at=NOW + 10), a_digest())
        later = a_session(ann, created_at=NOW + 10)
        catalog.sessions.begin(later, a_digest())
        assert catalog.sessions.all_of(ann.user_id) == [later]

    def test_a_user_has_at_most_fifty_sessions(self, catalog, ann):
        sessions = [a_session(ann, seen_at=NOW + number) for number in range(52)]
        for session in sessions:
            catalog.sessions.begin(session, a_digest())
        assert catalog.sessions.all_of(ann.user_id) == sessions[:1:-1]
