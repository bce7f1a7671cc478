"""What every catalog promises."""

import threading
from dataclasses import replace
from typing import get_args

import pytest
import sqlalchemy as sa
from structlog.testing import capture_logs

from mauve.core.app import AppType, Environment, Ownership
from mauve.core.biller import Provider
from mauve.core.credential import ControlToken, KeyKind, Scope
from mauve.core.organization import Limits, Standing
from mauve.stores import StoreUnavailableError
from mauve.stores.catalog import AppChanges, NewToken, SavedSecret, SealedSecret
from mauve.stores.catalog.schema import published
from mauve.stores.published import (
    PublishedKey,
    PublishedOrganization,
    PublishedProject,
    PublishedRecord,
    PublishedSecret,
    PublishedToken,
)
from support.catalog_entries import NOW, Follower, a_key, an_app, an_id, an_organization, in_parallel, let_pass


@pytest.fixture
def org(catalog):
    organization = an_organization()
    catalog.organizations.create(organization)
    return organization


@pytest.fixture
def app(catalog, org):
    return catalog.apps.create(an_app(org.org_id), a_key(), let_pass)


def app_of(record):
    return getattr(record, "app_id", None)


def a_secret(app, **fields):
    known = {
        "app_id": app.app_id,
        "environment": Environment.LIVE,
        "provider": Provider.BILLER_A,
        "sealed": b"sealed",
        "saved_at": NOW,
    }
    return SealedSecret(**(known | fields))


class TestOrganizations:
    def test_created_organizations_are_found_and_listed_oldest_first(self, catalog):
        younger, older = an_organization(created_at=NOW + 1), an_organization(created_at=NOW, name="Ünï\tcode")
        catalog.organizations.create(younger)
        catalog.organizations.create(older)
        assert catalog.organizations.find(older.org_id) == older
        assert catalog.organizations.list_all() == [older, younger]

    def test_a_missing_organization_is_none_and_an_update_does_not_create_it(self, catalog):
        assert catalog.organizations.find("org_x") is None
        assert catalog.organizations.update("org_x", lambda found: found) is None
        assert catalog.organizations.list_all() == []

    def test_standing_and_limits_beyond_32_bits_are_stored(self, catalog, org):
        limits = Limits(event_cap=2**62, reads_per_minute=1, agent_queries=2**40, raw_scans=0)
        wanted = replace(org, limits=limits, standing=Standing.SUSPENDED, grace_ends_at=2**50)
        assert catalog.organizations.update(org.org_id, lambda found: wanted) == wanted
        assert catalog.organizations.find(org.org_id) == wanted

    def test_concurrent_changes_are_all_stored(self, catalog, org):
        def add_one(found):
            return replace(found, limits=replace(found.limits, raw_scans=found.limits.raw_scans + 1))

        in_parallel(lambda: [catalog.organizations.update(org.org_id, add_one) for _ in range(10)])
        assert catalog.organizations.find(org.org_id).limits.raw_scans == org.limits.raw_scans + 40

    def test_a_name_can_be_changed(self, catalog, org):
        assert catalog.organizations.update(org.org_id, lambda found: replace(found, name="New")).name == "New"
        assert catalog.organizations.find(org.org_id) == replace(org, name="New")

    def test_the_same_id_twice_is_refused(self, catalog, org):
        with pytest.raises(StoreUnavailableError):
            catalog.organizations.create(org)


class TestApps:
    def test_an_app_comes_with_its_live_project_and_first_key(self, catalog, org):
        new, key = an_app(org.org_id), a_key()
        created = catalog.apps.create(new, key, let_pass)
        assert (created.app_id, created.public_id, created.test_public_id) == (new.app_id, new.public_id, None)
        assert created.first_event_at is None
        assert catalog.apps.find(org.org_id, new.app_id) == created
        assert [stored.key_id for stored in catalog.keys.all_of(new.app_id)] == [key.key_id]

    def test_an_app_whose_first_key_cannot_be_stored_is_not_stored_either(self, catalog, org, app):
        taken = a_key(key_id=catalog.keys.all_of(app.app_id)[0].key_id)
        new = an_app(org.org_id)
        with pytest.raises(StoreUnavailableError):
            catalog.apps.create(new, taken, let_pass)
        assert catalog.apps.find(org.org_id, new.app_id) is None
        assert catalog.apps.all_of(org.org_id) == [app]

    def test_an_app_without_an_organization_is_refused(self, catalog):
        with pytest.raises(StoreUnavailableError):
            catalog.apps.create(an_app("org_missing"), a_key(), let_pass)

    def test_an_app_is_visible_only_to_its_organization_and_the_operator(self, catalog, org, app):
        other = an_organization()
        catalog.organizations.create(other)
        assert catalog.apps.find(other.org_id, app.app_id) is None
        assert catalog.apps.all_of(other.org_id) == []
        assert catalog.apps.change(other.org_id, app.app_id, AppChanges(name="Stolen")) is None
        assert catalog.apps.find_anywhere(app.app_id) == app

    def test_a_change_affects_only_the_given_fields(self, catalog, org, app):
        changed = catalog.apps.change(org.org_id, app.app_id, AppChanges(type=AppType.OTHER))
        assert changed == replace(app, type=AppType.OTHER)
        renamed = catalog.apps.change(org.org_id, app.app_id, AppChanges("New", Ownership.CLIENT_OPERATED))
        assert renamed == replace(changed, name="New", ownership=Ownership.CLIENT_OPERATED)
        assert catalog.apps.find(org.org_id, app.app_id) == renamed

    def test_concurrent_apps_are_all_stored(self, catalog, org):
        def create_some():
            for _ in range(10):
                catalog.apps.create(an_app(org.org_id), a_key(), let_pass)

        in_parallel(create_some)
        assert len(catalog.apps.all_of(org.org_id)) == 40


class TestKeys:
    def test_a_minted_key_is_published_with_its_commit(self, catalog, app, follower):
        follower.news()
        minted = catalog.keys.mint(app.app_id, a_key(kind=KeyKind.PUBLISHABLE, created_at=NOW + 5), let_pass)
        assert (minted.kind, minted.revoked) == (KeyKind.PUBLISHABLE, False)
        assert minted.mirrored_at is not None
        assert minted.public_id == app.public_id
        assert catalog.keys.all_of(app.app_id)[-1] == minted
        assert [record.key_id for record in follower.news()] == [minted.key_id]

    def test_a_test_key_needs_a_test_project(self, catalog, app):
        assert catalog.keys.mint(app.app_id, a_key(environment=Environment.TEST), let_pass) is None
        public_id = catalog.webhook_secrets.put(a_secret(app, environment=Environment.TEST), an_id("proj"))
        minted = catalog.keys.mint(app.app_id, a_key(environment=Environment.TEST), let_pass)
        assert (minted.environment, minted.public_id) == (Environment.TEST, public_id)

    def test_a_second_key_with_the_same_digest_is_refused(self, catalog, app):
        key = a_key()
        catalog.keys.mint(app.app_id, key, let_pass)
        with pytest.raises(StoreUnavailableError):
            catalog.keys.mint(app.app_id, a_key(digest=key.digest), let_pass)

    def test_revoking_is_permanent_and_published_once(self, catalog, app, follower):
        (key,) = catalog.keys.all_of(app.app_id)
        follower.news()
        revoked = catalog.keys.revoke(app.app_id, key.key_id)
        assert replace(revoked, mirrored_at=None) == replace(key, revoked=True, mirrored_at=None)
        assert [(record.key_id, record.revoked) for record in follower.news()] == [(key.key_id, True)]
        assert catalog.keys.revoke(app.app_id, key.key_id) == revoked
        assert follower.news() == []

    def test_a_key_of_another_app_is_not_revoked(self, catalog, org, app):
        sibling = catalog.apps.create(an_app(org.org_id), a_key(), let_pass)
        (key,) = catalog.keys.all_of(sibling.app_id)
        assert catalog.keys.revoke(app.app_id, key.key_id) is None
        assert catalog.keys.all_of(sibling.app_id)[0].revoked is False


class TestTokens:
    @pytest.fixture
    def token(self, org):
        scopes = frozenset({Scope.APPS_READ, Scope.KEYS_WRITE})
        return ControlToken(an_id("tok"), org.org_id, "deploy", scopes, revoked=False, created_at=NOW)

    def test_a_token_is_found_by_its_lookup_id(self, catalog, token):
        catalog.tokens.mint(NewToken(token, "lookup0123456789", b"digest"), let_pass)
        stored = catalog.tokens.find("lookup0123456789")
        assert (stored.token, stored.digest) == (token, b"digest")
        assert catalog.tokens.find("lookup9876543210") is None
        assert catalog.tokens.all_of(token.org_id) == [token]

    def test_a_revoked_token_stays_listed(self, catalog, token):
        catalog.tokens.mint(NewToken(token, "lookup0123456789", b"digest"), let_pass)
        assert catalog.tokens.revoke(token.token_id) == replace(token, revoked=True)
        assert catalog.tokens.find("lookup0123456789").token.revoked is True
        assert catalog.tokens.revoke("tok_missing") is None

    def test_the_last_use_is_recorded_without_publishing(self, catalog, token, follower):
        catalog.tokens.mint(NewToken(token, "lookup0123456789", b"digest"), let_pass)
        follower.news()
        catalog.tokens.note_uses({"lookup0123456789": NOW + 5, "lookup9876543210": NOW})
        catalog.tokens.note_uses({})
        assert catalog.tokens.all_of(token.org_id) == [replace(token, last_used_at=NOW + 5)]
        assert follower.news() == []


class TestArchiving:
    def test_an_archived_app_is_listed_apart_and_found_as_before(self, catalog, org, app):
        archived = catalog.apps.archive(org.org_id, app.app_id, NOW + 5)
        assert archived == replace(app, archived_at=NOW + 5)
        assert catalog.apps.archive(org.org_id, app.app_id, NOW + 6) == archived, "the first time stands"
        assert (catalog.apps.all_of(org.org_id), catalog.apps.archived_of(org.org_id)) == ([], [archived])
        assert catalog.apps.find(org.org_id, app.app_id) == archived
        assert catalog.apps.restore(org.org_id, app.app_id) == app
        assert (catalog.apps.all_of(org.org_id), catalog.apps.archived_of(org.org_id)) == ([app], [])

    def test_archiving_publishes_keys_as_revoked_and_the_rest_as_missing(self, catalog, org, app, follower):
        catalog.webhook_secrets.put(a_secret(app), an_id("proj"))
        revoked = a_key()
        catalog.keys.mint(app.app_id, revoked, let_pass)
        catalog.keys.revoke(app.app_id, revoked.key_id)
        follower.news()
        catalog.apps.archive(org.org_id, app.app_id, NOW)
        records = follower.news()
        assert [each.revoked for each in records if isinstance(each, PublishedKey)] == [True, True]
        assert [each.archived for each in records if isinstance(each, PublishedProject)] == [True]
        assert [(each.archived, each.sealed) for each in records if isinstance(each, PublishedSecret)] == [(True, b"")]
        catalog.apps.restore(org.org_id, app.app_id)
        records = follower.news()
        assert {each.key_id: each.revoked for each in records if isinstance(each, PublishedKey)}[revoked.key_id]
        assert sorted(each.revoked for each in records if isinstance(each, PublishedKey)) == [False, True]
        others = [each for each in records if isinstance(each, PublishedProject | PublishedSecret)]
        assert [each.archived for each in others] == [False, False]

    def test_only_an_archived_app_is_deleted_and_stays_refused(self, catalog, org, app, follower):
        catalog.webhook_secrets.put(a_secret(app, environment=Environment.TEST), an_id("proj"))
        assert catalog.apps.delete(org.org_id, app.app_id) is False, "not archived"
        catalog.apps.archive(org.org_id, app.app_id, NOW)
        assert catalog.apps.delete(an_id("org"), app.app_id) is False, "of another organization"
        assert catalog.apps.delete(org.org_id, app.app_id) is True
        assert catalog.apps.find_anywhere(app.app_id) is None
        assert catalog.keys.all_of(app.app_id) == []
        assert catalog.webhook_secrets.saved_for(app.app_id) == []
        records = follower.news()
        assert {each.revoked for each in records if isinstance(each, PublishedKey)} == {True}
        assert {each.archived for each in records if isinstance(each, PublishedProject | PublishedSecret)} == {True}

    def test_records_of_deleted_apps_are_pruned_after_a_week(self, catalog, org, app, monkeypatch):
        """Each deletion prunes what earlier ones left. What was published last stays, and so does what exists."""
        catalog.webhook_secrets.put(a_secret(app), an_id("proj"))
        other = catalog.apps.create(an_app(org.org_id), a_key(), let_pass)
        for each in (app, other):
            catalog.apps.archive(org.org_id, each.app_id, NOW)
        assert catalog.apps.delete(org.org_id, app.app_id)
        before = {type(record).__name__: record for record in Follower(catalog).news() if app_of(record) == app.app_id}
        assert before.keys() == {"PublishedKey", "PublishedProject", "PublishedSecret"}
        kept = catalog.apps.create(an_app(org.org_id), a_key(), let_pass)
        monkeypatch.setattr("mauve.stores.catalog.published.KEPT_MS", -60_000)
        assert catalog.apps.delete(org.org_id, other.app_id)
        records = Follower(catalog).news()
        assert {app_of(record) for record in records if record.org_id == org.org_id} == {None, kept.app_id}


class TestKeyUses:
    def test_the_last_use_and_the_name_of_a_key_are_kept_without_publishing(self, catalog, app, follower):
        key = a_key(name="Web server")
        catalog.keys.mint(app.app_id, key, let_pass)
        follower.news()
        catalog.keys.note_uses({key.key_id: NOW + 5, an_id("key"): NOW})
        catalog.keys.note_uses({key.key_id: NOW + 4})
        catalog.keys.note_uses({})
        (stored,) = [each for each in catalog.keys.all_of(app.app_id) if each.key_id == key.key_id]
        assert (stored.name, stored.last_used_at) == ("Web server", NOW + 5)
        assert follower.news() == []


class TestWebhookSecrets:
    def test_the_saved_secrets_of_each_app_are_listed(self, catalog, org, app):
        other = catalog.apps.create(an_app(org.org_id), a_key(), let_pass)
        catalog.webhook_secrets.put(a_secret(app, provider=Provider.BILLER_B), an_id("proj"))
        catalog.webhook_secrets.put(a_secret(app, environment=Environment.TEST, saved_at=NOW + 1), an_id("proj"))
        assert catalog.webhook_secrets.saved_for(app.app_id) == [
            SavedSecret(Environment.LIVE, Provider.BILLER_B, NOW),
            SavedSecret(Environment.TEST, Provider.BILLER_A, NOW + 1),
        ]
        assert catalog.webhook_secrets.saved_for(other.app_id) == []

    def test_a_placeholder_replaces_nothing_and_does_not_show_on_the_app(self, catalog, org, app):
        catalog.webhook_secrets.put(a_secret(app, is_placeholder=True), an_id("proj"))
        assert catalog.webhook_secrets.saved_for(app.app_id)[0].is_placeholder
        assert not catalog.apps.find(org.org_id, app.app_id).has_biller_a_webhook
        catalog.webhook_secrets.put(a_secret(app, saved_at=NOW + 1), an_id("proj"))
        catalog.webhook_secrets.put(a_secret(app, is_placeholder=True, saved_at=NOW + 2), an_id("proj"))
        saved = [SavedSecret(Environment.LIVE, Provider.BILLER_A, NOW + 1)]
        assert catalog.webhook_secrets.saved_for(app.app_id) == saved

    def test_a_live_secret_belongs_to_the_live_project_and_shows_on_the_app(self, catalog, org, app):
        assert catalog.webhook_secrets.put(a_secret(app), an_id("proj")) == app.public_id
        read = catalog.apps.find(org.org_id, app.app_id)
        assert (read.has_biller_a_webhook, read.has_biller_b_webhook, read.test_public_id) == (True, False, None)

    def test_the_first_test_secret_creates_the_test_project_and_the_second_reuses_it(self, catalog, org, app):
        first_id = an_id("proj")
        assert catalog.webhook_secrets.put(a_secret(app, environment=Environment.TEST), first_id) == first_id
        second = a_secret(app, environment=Environment.TEST, provider=Provider.BILLER_B)
        assert catalog.webhook_secrets.put(second, an_id("proj")) == first_id
        read = catalog.apps.find(org.org_id, app.app_id)
        assert (read.test_public_id, read.has_biller_a_webhook, read.has_biller_b_webhook) == (
            first_id,
            False,
            False,
        )

    def test_a_replaced_secret_is_published_again(self, catalog, app, follower):
        catalog.webhook_secrets.put(a_secret(app, sealed=b"one\x00"), an_id("proj"))
        follower.news()
        catalog.webhook_secrets.put(a_secret(app, sealed=b"two\x00"), an_id("proj"))
        (record,) = follower.news()
        assert isinstance(record, PublishedSecret)
        assert (record.sealed, record.public_id) == (b"two\x00", app.public_id)
        assert list(catalog.webhook_secrets.all_sealed()) == [b"two\x00"]


def mint_token(catalog, org):
    token = ControlToken(
        an_id("tok"), org.org_id, "agent", frozenset({Scope.METRICS_READ}), revoked=False, created_at=NOW
    )
    catalog.tokens.mint(NewToken(token, "L" * 16, bytes(32)), let_pass)
    return token


class TestPublished:
    def test_everything_that_a_process_needs_is_published(self, catalog, org, app, follower):
        catalog.webhook_secrets.put(a_secret(app), an_id("proj"))
        token = mint_token(catalog, org)
        (key,) = catalog.keys.all_of(app.app_id)
        records = {type(record): record for record in follower.news()}
        assert records.keys() == set(get_args(PublishedRecord))
        limits = (org.limits.reads_per_minute, org.limits.agent_queries, org.limits.raw_scans)
        expected = PublishedOrganization(org.org_id, Standing.LIVE, None, None, *limits)
        assert records[PublishedOrganization] == expected
        project = PublishedProject(app.public_id, app.app_id, org.org_id, Environment.LIVE)
        assert records[PublishedProject] == project
        published = records[PublishedKey]
        assert (published.key_id, published.org_id, published.app_id) == (key.key_id, org.org_id, app.app_id)
        assert (published.public_id, published.revoked) == (app.public_id, False)
        secret = records[PublishedSecret]
        assert (secret.sealed, secret.environment, secret.provider) == (b"sealed", Environment.LIVE, Provider.BILLER_A)
        assert records[PublishedToken] == PublishedToken(
            "L" * 16, bytes(32), org.org_id, Environment.LIVE, token.scopes, revoked=False
        )

    def test_a_revoked_token_is_published_again_once(self, catalog, org, follower):
        token = mint_token(catalog, org)
        follower.news()
        catalog.tokens.revoke(token.token_id)
        (record,) = follower.news()
        assert (record.lookup_id, record.revoked) == ("L" * 16, True)
        assert catalog.tokens.revoke(token.token_id).revoked
        assert follower.news() == []

    def test_the_first_test_secret_publishes_the_test_project(self, catalog, org, app, follower):
        follower.news()
        public_id = catalog.webhook_secrets.put(a_secret(app, environment=Environment.TEST), an_id("proj"))
        project, secret = follower.news()
        assert project == PublishedProject(public_id, app.app_id, org.org_id, Environment.TEST)
        assert (secret.public_id, secret.environment) == (public_id, Environment.TEST)
        catalog.webhook_secrets.put(
            a_secret(app, environment=Environment.TEST, provider=Provider.BILLER_B), an_id("proj")
        )
        assert [type(record) for record in follower.news()] == [PublishedSecret]

    def test_changed_standing_and_limits_are_published_again(self, catalog, org, follower):
        follower.news()
        catalog.organizations.update(org.org_id, lambda found: replace(found, standing=Standing.SUSPENDED))
        catalog.organizations.update(org.org_id, lambda found: replace(found, limits=Limits(event_cap=7)))
        (record,) = follower.news()
        assert (record.standing, record.event_cap) == (Standing.SUSPENDED, 7)

    def test_a_change_that_fails_publishes_nothing(self, catalog, app, follower):
        key = a_key()
        catalog.keys.mint(app.app_id, key, let_pass)
        follower.news()
        with pytest.raises(StoreUnavailableError):
            catalog.keys.mint(app.app_id, a_key(digest=key.digest), let_pass)
        assert follower.news() == []

    def test_a_follower_misses_no_commit_of_several_writers(self, catalog, app, follower):
        """Revisions become visible in the order of commits: none appears below one that was seen."""
        minted, seen, is_over = [], [], threading.Event()

        def follow():
            while not is_over.is_set():
                seen.extend(follower.news())
            seen.extend(follower.news())

        def mint_some():
            for _ in range(20):
                key = a_key()
                catalog.keys.mint(app.app_id, key, let_pass)
                minted.append(key.key_id)

        following = threading.Thread(target=follow)
        following.start()
        in_parallel(mint_some)
        is_over.set()
        following.join()
        assert {record.key_id for record in seen if isinstance(record, PublishedKey)} >= set(minted)
        assert len(minted) == 80


def test_more_records_than_one_statement_reads_are_all_read(catalog, org, monkeypatch):
    monkeypatch.setattr("mauve.stores.catalog.published.ROWS_MAX", 3)
    created = [catalog.apps.create(an_app(org.org_id), a_key(), let_pass).app_id for _ in range(5)]
    records = Follower(catalog).news()
    assert [app_of(record) for record in records if isinstance(record, PublishedProject)][-5:] == created


def test_a_record_that_only_a_newer_release_knows_is_skipped(catalog, catalog_database, org):
    """A machine of the release before follows the others during an upgrade."""
    app = catalog.apps.create(an_app(org.org_id), a_key(), let_pass)
    unknown = {"kind": "token", "id": an_id("tok"), "record": b'{"type":"token","scopes":["later"]}', "committed_at": 1}
    with catalog_database.writing() as tx:
        newest = tx.execute(sa.select(sa.func.max(published.c.revision))).scalar_one()
        tx.execute(sa.insert(published).values(**unknown, revision=newest + 1))
    with capture_logs() as logs:
        records = Follower(catalog).news()
    assert app.app_id in {app_of(record) for record in records}
    assert [line["event"] for line in logs] == ["published_record_unknown"]
