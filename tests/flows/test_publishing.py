"""What metric reads need reaches the edge, stays there, and is restored when lost."""

import sqlite3
from contextlib import closing

import pytest

from mauve.control import apps, operator, webhook_secrets
from mauve.control.bodies import NewAppBody
from mauve.core.app import Environment
from mauve.core.biller import Provider
from mauve.core.credential import Scope
from mauve.core.secret import Secret
from mauve.wiring.bootstrap import prepare
from mauve.wiring.control import control_parts
from mauve.wiring.ingest import open_keyring
from mauve.wiring.paths import catalog_path, edge_path


@pytest.fixture
def app(parts, organization):
    created, _ = apps.create_app(parts, organization.org_id, NewAppBody(name="An app"))
    return created


@pytest.fixture
def ring(settings):
    with closing(open_keyring(settings)) as opened:
        yield opened


def test_a_minted_token_can_read_and_a_revoked_one_cannot(parts, organization, ring):
    token_id, token = operator.mint_token(parts, organization.org_id, "agent", [Scope.METRICS_READ])
    published = ring.token_for(token.reveal())
    assert (published.org_id, published.scopes) == (organization.org_id, {Scope.METRICS_READ})
    operator.revoke_token(parts, token_id)
    ring.refresh()
    assert ring.token_for(token.reveal()) is None


def test_the_first_test_secret_creates_the_test_project(parts, organization, app, ring):
    live = ring.project(app.public_id)
    assert (live.app_id, live.org_id, live.environment) == (app.app_id, organization.org_id, Environment.LIVE)
    public_id = webhook_secrets.save_secret(parts, app, Environment.TEST, Provider.BILLER_A, Secret("s"))
    test = ring.project(public_id)
    assert (test.app_id, test.org_id, test.environment) == (app.app_id, organization.org_id, Environment.TEST)


@pytest.mark.embedded
def test_tokens_and_projects_are_known_without_the_catalog(settings, parts, organization, app, token):
    catalog_path(settings.data).unlink()
    with closing(open_keyring(settings)) as ring:
        assert ring.token_for(token).org_id == organization.org_id
        assert ring.project(app.public_id).org_id == organization.org_id


def test_a_lost_edge_is_refilled_with_tokens_and_projects(settings, parts, app, token):
    parts.publisher.refill_if_lost()
    for path in settings.data.glob("edge.db*"):
        path.unlink()
    with control_parts(settings) as reopened:
        reopened.publisher.refill_if_lost()
    with closing(open_keyring(settings)) as ring:
        assert ring.token_for(token)
        assert ring.project(app.public_id)


@pytest.mark.embedded
def test_an_upgrade_publishes_what_the_previous_release_did_not(settings, parts, app, token):
    """Start from a catalog of the release that did not publish tokens and projects, and the edge that it filled."""
    parts.publisher.refill_if_lost()
    with closing(sqlite3.connect(catalog_path(settings.data))) as catalog:
        alerts = [f"alert_{name}" for name in ("messages", "subscribers", "channels", "rules", "settings")]
        for table in ("sessions", "reads", "spent", "buckets", *alerts):
            catalog.execute(f"DROP TABLE {table}")
        for index in ("ix_links_user_id", "ix_keys_minted_by", "ix_keys_app_id_revoked"):
            catalog.execute(f"DROP INDEX {index}")
        catalog.execute("CREATE INDEX ix_keys_app_id ON keys (app_id)")
        newer = [("apps", "archived_at"), ("webhook_secrets", "is_placeholder")]
        newer += [("keys", column) for column in ("minted_by", "name", "last_used_at")]
        newer += [("tokens", column) for column in ("minted_by", "last_used_at")]
        for table, column in newer:
            catalog.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        for table in ("projects", "tokens"):
            catalog.execute(f"DROP INDEX ix_{table}_mirrored_at")
            catalog.execute(f"ALTER TABLE {table} DROP COLUMN mirrored_at")
            catalog.execute(f"ALTER TABLE {table} DROP COLUMN version")
        catalog.execute("UPDATE alembic_version SET version_num = '0001'")
        catalog.commit()
    with closing(sqlite3.connect(edge_path(settings.data))) as edge:
        assert edge.execute("DELETE FROM published WHERE kind IN ('token', 'project')").rowcount == 2
        edge.commit()
    prepare(settings)
    with control_parts(settings) as upgraded:
        upgraded.publisher.refill_if_lost()
        assert upgraded.publisher.unpublished() == 0
    with closing(open_keyring(settings)) as ring:
        assert ring.token_for(token)
        assert ring.project(app.public_id)
