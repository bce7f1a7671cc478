"""A change of a credential is published with the change itself: once it has succeeded, every process can know of it."""

import pytest

from mauve.control import apps, operator, people, webhook_secrets
from mauve.control.bodies import NewAppBody
from mauve.core.app import Environment
from mauve.core.biller import Provider
from mauve.core.credential import KeyKind, Scope
from mauve.core.organization import Standing
from mauve.core.secret import Secret
from mauve.core.user import Role
from mauve.stores.catalog import Minted
from mauve.wiring.ingest import open_keyring

WEBHOOK_SECRET = Secret("whsec_" + "a" * 32)


@pytest.fixture
def app(parts, organization):
    created, _ = apps.create_app(parts, organization.org_id, NewAppBody(name="An app"))
    return created


@pytest.fixture
def ring(settings):
    """Return the keyring of another process."""
    with open_keyring(settings, 7) as opened:
        opened.refresh()
        yield opened


def test_a_minted_token_can_read_and_a_revoked_one_cannot(parts, organization, ring):
    token_id, token = operator.mint_token(parts, organization.org_id, "agent", [Scope.METRICS_READ])
    ring.refresh()
    published = ring.token_for(token.reveal())
    assert (published.org_id, published.scopes) == (organization.org_id, {Scope.METRICS_READ})
    operator.revoke_token(parts, token_id)
    ring.refresh()
    assert ring.token_for(token.reveal()) is None


def test_the_first_test_secret_creates_the_test_project(parts, organization, app, ring):
    ring.refresh()
    live = ring.project(app.public_id)
    assert (live.app_id, live.org_id, live.environment) == (app.app_id, organization.org_id, Environment.LIVE)
    public_id = webhook_secrets.save_secret(parts, app, Environment.TEST, Provider.BILLER_A, Secret("s"))
    ring.refresh()
    test = ring.project(public_id)
    assert (test.app_id, test.org_id, test.environment) == (app.app_id, organization.org_id, Environment.TEST)


class TestEndings:
    """Each of these ends a credential for every process that reads after it."""

    @pytest.fixture
    def owner(self, parts, organization):
        return people.create_user(parts, organization.org_id, "owner@example.com", Role.OWNER)[0]

    @pytest.fixture
    def member(self, parts, organization):
        return people.create_user(parts, organization.org_id, "member@example.com", Role.ADMIN)[0]

    @pytest.fixture
    def key(self, parts, app, member):
        """Return the id and the text of a key that the member minted."""
        key_id, key = apps.mint_key(parts, app, KeyKind.SERVER, Environment.LIVE, member.user_id)
        return key_id, key.reveal()

    def test_a_revoked_key(self, parts, app, key, ring):
        key_id, text = key
        ring.refresh()
        assert ring.key_for(text)
        apps.revoke_key(parts, app, key_id)
        ring.refresh()
        assert ring.key_for(text) is None

    def test_a_member_who_loses_the_role_to_mint(self, parts, owner, member, key, ring):
        people.change_role(parts, owner, member.user_id, Role.VIEWER, lambda minted: minted)
        ring.refresh()
        assert ring.key_for(key[1]) is None

    def test_a_change_of_role_that_ends_no_credential(self, parts, owner, member, key, ring):
        people.change_role(parts, owner, member.user_id, Role.VIEWER, lambda _minted: Minted((), ()))
        ring.refresh()
        assert ring.key_for(key[1])
        assert parts.catalog.users.find(member.user_id).user.role is Role.VIEWER

    def test_a_removed_member(self, parts, owner, member, key, ring):
        people.remove_member(parts, owner, member.user_id, lambda minted: minted)
        ring.refresh()
        assert ring.key_for(key[1]) is None

    def test_a_replaced_webhook_secret(self, parts, app, ring):
        live, biller = Environment.LIVE, Provider.BILLER_A
        webhook_secrets.save_secret(parts, app, live, biller, WEBHOOK_SECRET)
        ring.refresh()
        first = ring.secret(f"{app.public_id}/{biller}")
        webhook_secrets.save_secret(parts, app, live, biller, Secret("whsec_" + "b" * 32))
        ring.refresh()
        assert ring.secret(f"{app.public_id}/{biller}").sealed != first.sealed

    def test_an_archived_app(self, parts, app, key, ring):
        webhook_secrets.save_secret(parts, app, Environment.LIVE, Provider.BILLER_A, WEBHOOK_SECRET)
        apps.archive_app(parts, app)
        ring.refresh()
        assert ring.key_for(key[1]) is None
        assert ring.project(app.public_id) is None
        assert ring.secret(f"{app.public_id}/{Provider.BILLER_A}") is None

    def test_a_suspended_organization(self, parts, organization, ring):
        operator.suspend(parts, organization.org_id)
        ring.refresh()
        assert ring.organizations[organization.org_id].standing is Standing.SUSPENDED
