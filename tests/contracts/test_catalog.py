"""What every catalog promises."""

from dataclasses import replace
from typing import get_args

import pytest

from mauve.core.app import AppType, Environment, Ownership
from mauve.core.biller import Provider
from mauve.core.credential import ControlToken, KeyKind, Scope
from mauve.core.organization import Limits, Standing
from mauve.stores import StoreUnavailableError
from mauve.stores.catalog import AppChanges, NewToken, SavedSecret, SealedSecret
from mauve.stores.edge import (
    PublishedKey,
    PublishedOrganization,
    PublishedProject,
    PublishedRecord,
    PublishedSecret,
    PublishedToken,
)
from mauve.stores.sql.catalog.live_credentials import SqlLiveCredentials
from support.catalog_entries import EDGE, NOW, a_key, an_app, an_id, an_organization, in_parallel, let_pass, publish_all


@pytest.fixture
def org(catalog):
    organization = an_organization()
    catalog.organizations.create(organization)
    return organization


@pytest.fixture
def app(catalog, org):
    return catalog.apps.create(an_app(org.org_id), a_key(), let_pass)


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
    def test_a_minted_key_is_unpublished(self, catalog, app):
        minted = catalog.keys.mint(app.app_id, a_key(kind=KeyKind.PUBLISHABLE, created_at=NOW + 5), let_pass)
        assert (minted.kind, minted.revoked, minted.mirrored_at) == (KeyKind.PUBLISHABLE, False, None)
        assert minted.public_id == app.public_id
        assert catalog.keys.all_of(app.app_id)[-1] == minted

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

    def test_revoking_is_permanent_and_marks_for_publication_once(self, catalog, app):
        (key,) = catalog.keys.all_of(app.app_id)
        publish_all(catalog)
        assert catalog.keys.revoke(app.app_id, key.key_id) == replace(key, revoked=True, mirrored_at=None)
        publish_all(catalog)
        again = catalog.keys.revoke(app.app_id, key.key_id)
        assert (again.revoked, again.mirrored_at) == (True, NOW)

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

    def test_the_last_use_is_recorded_without_publishing(self, catalog, token):
        catalog.tokens.mint(NewToken(token, "lookup0123456789", b"digest"), let_pass)
        publish_all(catalog)
        catalog.tokens.note_uses({"lookup0123456789": NOW + 5, "lookup9876543210": NOW})
        catalog.tokens.note_uses({})
        assert catalog.tokens.all_of(token.org_id) == [replace(token, last_used_at=NOW + 5)]
        assert catalog.publications.pending(10) == []


class TestArchiving:
    def test_an_archived_app_is_listed_apart_and_found_as_before(self, catalog, org, app):
        archived = catalog.apps.archive(org.org_id, app.app_id, NOW + 5)
        assert archived == replace(app, archived_at=NOW + 5)
        assert catalog.apps.archive(org.org_id, app.app_id, NOW + 6) == archived, "the first time stands"
        assert (catalog.apps.all_of(org.org_id), catalog.apps.archived_of(org.org_id)) == ([], [archived])
        assert catalog.apps.find(org.org_id, app.app_id) == archived
        assert catalog.apps.restore(org.org_id, app.app_id) == app
        assert (catalog.apps.all_of(org.org_id), catalog.apps.archived_of(org.org_id)) == ([app], [])

    def test_archiving_publishes_keys_as_revoked_and_the_rest_as_missing(self, catalog, org, app):
        catalog.webhook_secrets.put(a_secret(app), an_id("proj"))
        revoked = a_key()
        catalog.keys.mint(app.app_id, revoked, let_pass)
        catalog.keys.revoke(app.app_id, revoked.key_id)
        publish_all(catalog)
        catalog.apps.archive(org.org_id, app.app_id, NOW)
        records = publish_all(catalog)
        assert [each.revoked for each in records if isinstance(each, PublishedKey)] == [True, True]
        assert [each.archived for each in records if isinstance(each, PublishedProject)] == [True]
        assert [(each.archived, each.sealed) for each in records if isinstance(each, PublishedSecret)] == [(True, b"")]
        catalog.apps.restore(org.org_id, app.app_id)
        records = publish_all(catalog)
        assert {each.key_id: each.revoked for each in records if isinstance(each, PublishedKey)}[revoked.key_id]
        assert sorted(each.revoked for each in records if isinstance(each, PublishedKey)) == [False, True]
        others = [each for each in records if isinstance(each, PublishedProject | PublishedSecret)]
        assert [each.archived for each in others] == [False, False]

    def test_an_app_is_published_when_its_last_key_project_or_secret_is(self, catalog, org, app):
        catalog.webhook_secrets.put(a_secret(app), an_id("proj"))
        publish_all(catalog)
        catalog.apps.archive(org.org_id, app.app_id, NOW)
        pending = catalog.publications.pending(10)
        assert {type(each) for each in pending} == {PublishedKey, PublishedProject, PublishedSecret}
        for number, record in enumerate(pending):
            assert catalog.apps.published_at(app.app_id) is None
            assert catalog.apps.delete(org.org_id, app.app_id) is False
            assert catalog.publications.mark_published([record], NOW + number, EDGE)
        assert catalog.apps.published_at(app.app_id) == NOW + len(pending) - 1
        assert catalog.apps.published_at(an_id("app")) is None

    def test_only_an_app_whose_archiving_is_published_is_deleted(self, catalog, org, app):
        catalog.webhook_secrets.put(a_secret(app, environment=Environment.TEST), an_id("proj"))
        publish_all(catalog)
        assert catalog.apps.delete(org.org_id, app.app_id) is False, "not archived"
        catalog.apps.archive(org.org_id, app.app_id, NOW)
        assert catalog.apps.delete(org.org_id, app.app_id) is False, "not published"
        publish_all(catalog)
        assert catalog.apps.delete(an_id("org"), app.app_id) is False, "of another organization"
        assert catalog.apps.delete(org.org_id, app.app_id) is True
        assert catalog.apps.find_anywhere(app.app_id) is None
        assert catalog.keys.all_of(app.app_id) == []
        assert catalog.webhook_secrets.saved_for(app.app_id) == []
        assert catalog.publications.pending(10) == []


class TestKeyUses:
    def test_the_last_use_and_the_name_of_a_key_are_kept_without_publishing(self, catalog, app):
        key = a_key(name="Web server")
        catalog.keys.mint(app.app_id, key, let_pass)
        publish_all(catalog)
        catalog.keys.note_uses({key.key_id: NOW + 5, an_id("key"): NOW})
        catalog.keys.note_uses({key.key_id: NOW + 4})
        catalog.keys.note_uses({})
        (stored,) = [each for each in catalog.keys.all_of(app.app_id) if each.key_id == key.key_id]
        assert (stored.name, stored.last_used_at) == ("Web server", NOW + 5)
        assert catalog.publications.pending(10) == []


class TestLiveCredentials:
    @pytest.fixture
    def live(self, catalog):
        return SqlLiveCredentials(catalog.keys._database)  # noqa: SLF001 - of the same engine

    def test_only_keys_that_are_neither_revoked_nor_unknown_are_live(self, catalog, app, live):
        (revoked,) = (key.key_id for key in catalog.keys.all_of(app.app_id))
        kept = catalog.keys.mint(app.app_id, a_key(), let_pass).key_id
        asked = {revoked, kept, "key_unknown"}
        assert live.live_keys(asked) == {revoked, kept}
        catalog.keys.revoke(app.app_id, revoked)
        assert live.live_keys(asked) == {kept}
        assert live.live_keys([revoked]) == live.live_keys([]) == frozenset()

    def test_the_keys_of_an_archived_app_are_not_live_until_it_is_restored(self, catalog, org, app, live):
        (key_id,) = (key.key_id for key in catalog.keys.all_of(app.app_id))
        catalog.apps.archive(org.org_id, app.app_id, 1)
        assert live.live_keys([key_id]) == frozenset()
        catalog.apps.restore(org.org_id, app.app_id)
        assert live.live_keys([key_id]) == {key_id}

    def test_a_webhook_secret_is_live_until_it_is_replaced_or_its_app_archived(self, catalog, org, app, live):
        def put():
            sealed = SealedSecret(app.app_id, Environment.LIVE, Provider.BILLER_A, b"sealed", NOW)
            return catalog.webhook_secrets.put(sealed, "proj_unused")

        project = put()
        assert live.is_live_secret(project, Provider.BILLER_A, 1)
        assert not live.is_live_secret(project, Provider.BILLER_B, 1)
        put()
        assert [live.is_live_secret(project, Provider.BILLER_A, version) for version in (1, 2)] == [False, True]
        catalog.apps.archive(org.org_id, app.app_id, 1)
        assert not live.is_live_secret(project, Provider.BILLER_A, 2)

    def test_a_token_is_live_until_it_is_revoked(self, catalog, org, live):
        token = mint_token(catalog, org)
        assert live.is_live_token("L" * 16)
        assert not live.is_live_token("M" * 16)
        catalog.tokens.revoke(token.token_id)
        assert not live.is_live_token("L" * 16)


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

    def test_a_replaced_secret_is_published_again(self, catalog, app):
        catalog.webhook_secrets.put(a_secret(app, sealed=b"one\x00"), an_id("proj"))
        publish_all(catalog)
        catalog.webhook_secrets.put(a_secret(app, sealed=b"two\x00"), an_id("proj"))
        (record,) = catalog.publications.pending(10)
        assert isinstance(record, PublishedSecret)
        assert (record.sealed, record.version, record.public_id) == (b"two\x00", 2, app.public_id)
        assert list(catalog.webhook_secrets.all_sealed()) == [b"two\x00"]


def mint_token(catalog, org):
    token = ControlToken(
        an_id("tok"), org.org_id, "agent", frozenset({Scope.METRICS_READ}), revoked=False, created_at=NOW
    )
    catalog.tokens.mint(NewToken(token, "L" * 16, bytes(32)), let_pass)
    return token


class TestPublications:
    def test_new_rows_are_pending_with_everything_the_edge_needs(self, catalog, org, app):
        catalog.webhook_secrets.put(a_secret(app), an_id("proj"))
        (key,) = catalog.keys.all_of(app.app_id)
        organization, project, published_key, secret = catalog.publications.pending(10)
        assert organization == PublishedOrganization(
            org.org_id,
            1,
            Standing.LIVE,
            None,
            None,
            org.limits.reads_per_minute,
            org.limits.agent_queries,
            org.limits.raw_scans,
        )
        assert project == PublishedProject(app.public_id, 1, app.app_id, org.org_id, Environment.LIVE)
        assert isinstance(published_key, PublishedKey)
        assert (published_key.key_id, published_key.org_id, published_key.app_id, published_key.public_id) == (
            key.key_id,
            org.org_id,
            app.app_id,
            app.public_id,
        )
        assert (secret.sealed, secret.environment, secret.provider) == (b"sealed", Environment.LIVE, Provider.BILLER_A)

    def test_a_new_token_is_pending_with_everything_the_edge_needs(self, catalog, org):
        publish_all(catalog)
        token = mint_token(catalog, org)
        assert catalog.publications.pending(10) == [
            PublishedToken("L" * 16, 1, bytes(32), org.org_id, Environment.LIVE, token.scopes, revoked=False)
        ]

    def test_a_revoked_token_is_published_again_once(self, catalog, org):
        token = mint_token(catalog, org)
        publish_all(catalog)
        catalog.tokens.revoke(token.token_id)
        (record,) = publish_all(catalog)
        assert (record.lookup_id, record.revoked, record.version) == ("L" * 16, True, 2)
        assert catalog.tokens.revoke(token.token_id).revoked
        assert catalog.publications.pending(10) == []

    def test_the_first_test_secret_publishes_the_test_project(self, catalog, org, app):
        publish_all(catalog)
        public_id = catalog.webhook_secrets.put(a_secret(app, environment=Environment.TEST), an_id("proj"))
        project, secret = publish_all(catalog)
        assert project == PublishedProject(public_id, 1, app.app_id, org.org_id, Environment.TEST)
        assert (secret.public_id, secret.environment) == (public_id, Environment.TEST)
        catalog.webhook_secrets.put(
            a_secret(app, environment=Environment.TEST, provider=Provider.BILLER_B), an_id("proj")
        )
        assert [type(record) for record in catalog.publications.pending(10)] == [PublishedSecret]

    def test_published_rows_are_no_longer_pending(self, catalog, app):
        publish_all(catalog)
        assert catalog.publications.pending(10) == []
        assert catalog.keys.all_of(app.app_id)[0].mirrored_at == NOW

    def test_a_change_during_publication_stays_pending(self, catalog, app):
        catalog.publications.use_edge(EDGE)
        stale = catalog.publications.pending(10)
        (key,) = catalog.keys.all_of(app.app_id)
        catalog.keys.revoke(app.app_id, key.key_id)
        assert catalog.publications.mark_published(stale, NOW, EDGE)
        (record,) = catalog.publications.pending(10)
        assert (record.key_id, record.revoked, record.version) == (key.key_id, True, 2)

    def test_changed_standing_and_limits_are_published_again(self, catalog, org):
        publish_all(catalog)
        catalog.organizations.update(org.org_id, lambda found: replace(found, standing=Standing.SUSPENDED))
        catalog.organizations.update(org.org_id, lambda found: replace(found, limits=Limits(event_cap=7)))
        (record,) = catalog.publications.pending(10)
        assert (record.standing, record.event_cap, record.version) == (Standing.SUSPENDED, 7, 3)

    def test_at_most_the_requested_number_is_returned(self, catalog, org, app):
        assert len(catalog.publications.pending(1)) == 1
        assert len(catalog.publications.pending(2)) == 2

    def test_a_lost_edge_is_filled_again(self, catalog, org, app):
        catalog.webhook_secrets.put(a_secret(app), an_id("proj"))
        mint_token(catalog, org)
        before = publish_all(catalog)
        assert {type(record) for record in before} == set(get_args(PublishedRecord))
        catalog.publications.use_edge("another edge")
        assert catalog.publications.pending(10) == before
        assert catalog.publications.edge_id() == "another edge"

    def test_a_publication_to_a_lost_edge_marks_nothing(self, catalog, app):
        catalog.publications.use_edge(EDGE)
        records = catalog.publications.pending(10)
        catalog.publications.use_edge("another edge")
        assert catalog.publications.mark_published(records, NOW, EDGE) is False
        assert catalog.publications.pending(10) == records
        assert catalog.keys.all_of(app.app_id)[0].mirrored_at is None


class TestInstallation:
    def test_a_value_is_stored_and_replaced(self, catalog):
        assert catalog.installation.get("colour") is None
        catalog.installation.put("colour", "lilac")
        catalog.installation.put("colour", "mauve")
        assert catalog.installation.get("colour") == "mauve"

    def test_it_answers_a_ping(self, catalog):
        catalog.installation.ping()
