"""Transactions on PostgreSQL that change the same published rows wait for each other, and never in a circle."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
import sqlalchemy as sa

from mauve.core.app import Environment
from mauve.core.biller import Provider
from mauve.core.credential import ControlToken, Scope
from mauve.core.user import Role, User
from mauve.stores import StoreUnavailableError
from mauve.stores.alerts import AlertStore, Subscriber
from mauve.stores.alerts.outbox import Message
from mauve.stores.catalog import NewToken, OneTimeLink, SealedSecret
from mauve.stores.catalog.catalog import Catalog
from mauve.stores.catalog.schema import keys, organizations, projects, tokens, webhook_secrets
from mauve.stores.sql.database import Database
from mauve.stores.sql.migrate import CATALOG, migrate
from support.catalog_entries import NOW, RANDOM, a_key, an_app, an_id, an_organization, let_pass
from support.postgres import Postgres
from support.service import PATIENCE_S, eventually

pytestmark = pytest.mark.servers

TABLES = {table.name: table for table in (organizations, projects, keys, tokens, webhook_secrets)}
CHANGES = (
    "archive",
    "remove a member",
    "note uses of keys and tokens",
    "record a digest",
    "want a digest",
)


@pytest.fixture(scope="module")
def database():
    with Postgres() as server, closing(Database(sa.make_url(server.create("locks")), PATIENCE_S)) as opened:
        migrate(opened, CATALOG)
        yield opened


class Tenant:
    """An organization with several rows of most kinds. Later ones have lower ids: order of age is not order of id."""

    def __init__(self, catalog, database):
        self.catalog, self.database = catalog, database
        self.subscribers = AlertStore(database).subscribers
        self.organization = an_organization()
        catalog.organizations.create(self.organization)
        org_id = self.organization.org_id
        self.member = User(an_id("usr"), org_id, f"{an_id('usr')}@example.com", Role.ADMIN, NOW)
        link = OneTimeLink(an_id("lnk"), RANDOM.base62(32).encode(), self.member.user_id, NOW, NOW)
        assert catalog.users.create(self.member, link, let_pass)
        minted_by = self.member.user_id
        self.wish = Subscriber(minted_by, org_id, "daily", alerts=True, token=RANDOM.base62(32), next_at=NOW)
        ids = sorted((an_id("key") for _ in range(3)), reverse=True)
        self.app = catalog.apps.create(an_app(org_id), a_key(key_id=ids[0], minted_by=minted_by), let_pass)
        for key_id in ids[1:]:
            catalog.keys.mint(self.app.app_id, a_key(key_id=key_id, minted_by=minted_by), let_pass)
        lookup_ids = sorted((RANDOM.base62(16) for _ in range(3)), reverse=True)
        for lookup_id in lookup_ids:
            scopes = frozenset({Scope.APPS_READ})
            token = ControlToken(an_id("tok"), org_id, "a token", scopes, False, NOW, minted_by)  # noqa: FBT003
            catalog.tokens.mint(NewToken(token, lookup_id, b"digest"), let_pass)
        for environment, provider in itertools.product(Environment, reversed(Provider)):
            sealed = SealedSecret(self.app.app_id, environment, provider, b"sealed", NOW)
            catalog.webhook_secrets.put(sealed, an_id("proj"))
        self._key_uses, self._token_uses = dict.fromkeys(ids, NOW), dict.fromkeys(lookup_ids, NOW)

    def change(self, name):
        catalog, app = self.catalog, self.app
        match name:
            case "archive":
                catalog.apps.archive(app.org_id, app.app_id, NOW)
            case "remove a member":
                catalog.users.remove(app.org_id, self.member.user_id, let_pass, lambda minted: minted)
            case "note uses of keys and tokens":
                catalog.keys.note_uses(self._key_uses)
                catalog.tokens.note_uses(self._token_uses)
            case "record a digest":
                message_id, receiver = an_id("msg"), self.member.user_id
                message = Message(message_id, app.org_id, "digest", None, receiver, "a member", "{}", NOW)
                self.subscribers.record(self.wish, NOW + 1, message)
            case "want a digest":
                self.want_digest()

    def want_digest(self):
        try:
            self.subscribers.add(self.wish)
        except StoreUnavailableError as error:
            if "foreign key" not in str(error):  # The member was removed first.
                raise

    def middle_row(self, name):
        """Return the condition of the row in the middle of the tenant's rows of a table, by id."""
        table = TABLES[name]
        project = projects.c.app_id == self.app.app_id
        of_tenant = {
            organizations: organizations.c.org_id == self.app.org_id,
            projects: project,
            keys: keys.c.app_id == self.app.app_id,
            tokens: tokens.c.org_id == self.app.org_id,
            webhook_secrets: webhook_secrets.c.public_id.in_(sa.select(projects.c.public_id).where(project)),
        }[table]
        key = [tokens.c.lookup_id] if table is tokens else list(table.primary_key)
        with self.database.reading() as tx:
            rows = sorted(tuple(row) for row in tx.execute(sa.select(*key).where(of_tenant)))
        return sa.and_(*(column == value for column, value in zip(key, rows[len(rows) // 2], strict=True)))


def waiting(database):
    """Return how many transactions wait for a lock."""
    with database.reading() as tx:
        return tx.execute(sa.text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")).scalar_one()


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize(("first", "second"), list(itertools.combinations(CHANGES, 2)))
def test_two_changes_do_not_wait_for_each_other(database, first, second, table):
    """Hold up both at a row, one after the other, and let them go: each ends."""
    catalog = Catalog(database)
    tenant = Tenant(catalog, database)
    if second != "want a digest":
        tenant.change("want a digest")
    row = sa.select(TABLES[table]).where(tenant.middle_row(table)).with_for_update()
    with ThreadPoolExecutor(2) as pool:
        changing = []
        with database.writing() as tx:
            tx.execute(row)
            for count, name in enumerate((first, second), start=1):
                changing.append(pool.submit(tenant.change, name))
                eventually(lambda count=count: waiting(database) + sum(each.done() for each in changing) == count)
        for each in changing:
            each.result(PATIENCE_S)
