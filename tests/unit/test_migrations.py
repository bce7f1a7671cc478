from hashlib import sha256

import msgspec
import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from msgspec.structs import replace

from mauve.core.app import Environment
from mauve.core.biller import Provider
from mauve.core.credential import OPERATOR, Scope
from mauve.stores import NewerSchemaError
from mauve.stores.catalog import schema
from mauve.stores.catalog.catalog import sql_catalog
from mauve.stores.ledger import Entry, Outcome
from mauve.stores.ledger import schema as ledger_schema
from mauve.stores.ledger.payments import insert_payments, move_day_totals
from mauve.stores.ledger.writer import SqlLedgerWriter
from mauve.stores.published import PublishedProject, PublishedToken
from mauve.stores.sql.database import Database, sqlite_url
from mauve.stores.sql.migrate import CATALOG, LEDGER, current_revision, migrate, newest_revision
from support.billing import mapped_for

CHAINS = {"catalog": (CATALOG, schema.metadata), "ledger": (LEDGER, ledger_schema.metadata)}


@pytest.fixture
def database(tmp_path):
    opened = Database(sqlite_url(tmp_path / "a % folder" / "some.db"), busy_timeout_s=5)
    (tmp_path / "a % folder").mkdir()
    yield opened
    opened.close()


@pytest.mark.parametrize(("chain", "metadata"), CHAINS.values(), ids=CHAINS)
class TestEveryChain:
    def test_the_migrations_create_the_tables_that_the_queries_use(self, database, chain, metadata):
        assert current_revision(database, chain) is None
        migrate(database, chain)
        assert current_revision(database, chain) == newest_revision(chain)
        with database.reading() as connection:
            context = MigrationContext.configure(connection, opts={"version_table": chain.version_table})
            assert compare_metadata(context, metadata) == []

    def test_migrating_again_changes_nothing(self, database, chain, metadata):
        migrate(database, chain)
        migrate(database, chain)
        assert current_revision(database, chain) == newest_revision(chain)

    def test_tables_of_a_newer_release_are_not_touched(self, database, chain, metadata):
        migrate(database, chain)
        version = sa.table(chain.version_table, sa.column("version_num"))
        with database.writing() as connection:
            connection.execute(sa.update(version).values(version_num="9999"))
        with pytest.raises(NewerSchemaError, match="9999"):
            migrate(database, chain)


def test_both_chains_may_share_a_database(database):
    migrate(database, CATALOG)
    assert current_revision(database, LEDGER) is None
    migrate(database, LEDGER)
    assert current_revision(database, CATALOG) == newest_revision(CATALOG)
    assert current_revision(database, LEDGER) == newest_revision(LEDGER)
    with database.reading() as connection:
        tables = set(sa.inspect(connection).get_table_names())
    assert set(schema.metadata.tables) | set(ledger_schema.metadata.tables) < tables
    assert set(schema.metadata.tables).isdisjoint(ledger_schema.metadata.tables)


def test_sqlite_is_set_up_to_lose_nothing(database):
    with database.reading() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2  # FULL
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1


def migrate_to(database, chain, revision):
    """Create the tables of an earlier release."""
    config = Config()
    config.set_main_option("script_location", str(chain.folder))
    config.attributes["version_table"] = chain.version_table
    with database.writing() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)


BEFORE_TOKENS_WERE_PUBLISHED = """
INSERT INTO organizations VALUES ('org_1', 'Acme', 'live', NULL, NULL, 600, 100000, 10000, 1, 1, 5);
INSERT INTO apps VALUES ('app_1', 'org_1', 'An app', 'mine', 'saas', NULL, 1);
INSERT INTO projects VALUES ('proj_live', 'app_1', 'live', 1), ('proj_test', 'app_1', 'test', 2);
INSERT INTO tokens VALUES
    ('tok_1', 'org_1', 'agent', 'lookup0123456789', x'00ff', 'apps:read,metrics:read', 0, 1),
    ('tok_2', 'org_1', 'gone', 'lookup9876543210', x'ff00', 'apps:read', 1, 1);
"""


BEFORE_MINTERS_WERE_NOTED = """
INSERT INTO organizations VALUES ('org_1', 'Acme', 'live', NULL, NULL, 600, 100000, 10000, 1, 1, 5);
INSERT INTO apps VALUES ('app_1', 'org_1', 'An app', 'mine', 'saas', NULL, 1);
INSERT INTO projects (public_id, app_id, plane, created_at, version, mirrored_at)
    VALUES ('proj_1', 'app_1', 'live', 1, 1, 5);
INSERT INTO keys (key_id, app_id, public_id, plane, kind, digest, masked, revoked, created_at, version, mirrored_at)
    VALUES ('key_1', 'app_1', 'proj_1', 'live', 'sk', x'00', 'sk_live_…', 0, 1, 1, 5);
INSERT INTO tokens (token_id, org_id, name, lookup_id, digest, scopes, revoked, created_at, version, mirrored_at,
    minted_by) VALUES
    ('tok_1', 'org_1', 'by hand', 'lookup0123456789', x'00', 'apps:read', 0, 1, 1, 5, NULL),
    ('tok_2', 'org_1', 'hers', 'lookup9876543210', x'01', 'apps:read', 0, 2, 1, 5, 'usr_ann');
"""


def test_rows_unpublished_by_an_earlier_release_are_pending_after_the_upgrade(database):
    migrate_to(database, CATALOG, "0001")
    with database.writing() as connection:
        for statement in BEFORE_TOKENS_WERE_PUBLISHED.strip().split(";\n"):
            connection.exec_driver_sql(statement.rstrip(";"))
    migrate(database, CATALOG)
    pending = sql_catalog(database).publications.pending(100)
    both = frozenset({Scope.APPS_READ, Scope.METRICS_READ})
    assert pending == [
        PublishedProject("proj_live", 1, "app_1", "org_1", Environment.LIVE),
        PublishedProject("proj_test", 1, "app_1", "org_1", Environment.TEST),
        PublishedToken("lookup0123456789", 1, b"\x00\xff", "org_1", Environment.LIVE, both, revoked=False),
        PublishedToken(
            "lookup9876543210", 1, b"\xff\x00", "org_1", Environment.LIVE, frozenset({Scope.APPS_READ}), revoked=True
        ),
    ]


def test_after_the_upgrade_old_tokens_are_the_operators_and_old_keys_have_no_minter(database):
    migrate_to(database, CATALOG, "0003")
    with database.writing() as connection:
        for statement in BEFORE_MINTERS_WERE_NOTED.strip().split(";\n"):
            connection.exec_driver_sql(statement.rstrip(";"))
    migrate(database, CATALOG)
    catalog = sql_catalog(database)
    assert [token.minted_by for token in catalog.tokens.all_of("org_1")] == [OPERATOR, "usr_ann"]
    assert [key.minted_by for key in catalog.keys.all_of("app_1")] == [None]
    assert catalog.publications.pending(10) == [], "nothing has changed for authentication"


def test_a_ledger_of_the_first_revision_keeps_its_subscriptions(database):
    migrate_to(database, LEDGER, "0001")
    columns = "project, key, id, at, received_at, status, mrr, currency, payload"
    values = "'proj_1', x'00', 'sub_1', 5, 5, 'active', 100, 'eur', x''"
    tables = (ledger_schema.subscriptions, ledger_schema.subscription_versions)
    with database.writing() as tx:
        for table in tables:
            tx.exec_driver_sql(f"INSERT INTO {table.name} ({columns}) VALUES ({values})")
    migrate(database, LEDGER)
    with database.reading() as tx:
        for table in tables:
            assert [(row.id, row.mrr, row.rank) for row in tx.execute(sa.select(table))] == [("sub_1", 100, b"")]


IN_BILLERS_UNITS = """
INSERT INTO subscriptions (project, key, id, at, received_at, status, mrr, currency, payload, rank)
    VALUES ('p', x'01', 'stripe:sub_1', 1, 1, 'active', 41671, 'isk', '{"mrr_exact":"500050/12"}', x'01'),
           ('p', x'02', 'polar:2', 1, 1, 'active', 5, 'mga', '{}', x'01'),
           ('p', x'03', 'own', 1, 1, 'active', 417, 'isk', '{}', x'');
INSERT INTO subscription_versions (project, key, id, at, received_at, status, mrr, currency, payload, rank)
    SELECT project, key, id, at, received_at, status, mrr, currency, payload, rank FROM subscriptions;
"""


def test_amounts_of_the_billers_are_converted_to_iso_minor_units(database):
    migrate_to(database, LEDGER, "0004")
    writer = SqlLedgerWriter(database)
    event = {"type": "invoice.paid", "data": {"object": {"id": "in_1", "amount_paid": 500_000, "currency": "isk"}}}
    (new,) = mapped_for(Provider.BILLER_A, event, project="p").entry.payments
    stated = [new.id, 500_000, True, "isk", new.user]
    old = replace(new, amount=500_000, digest=sha256(msgspec.json.encode(stated)).digest())
    own = replace(new, id="own", amount=5000, source="api")
    with database.writing() as tx:  # not with the writer, whose tables are newer
        insert_payments(tx, {(each.project, each.id): each for each in (old, own)})
        move_day_totals(tx, [old, own])
        day = tx.execute(sa.select(ledger_schema.payments.c.day).limit(1)).scalar_one()
        for statement in filter(str.strip, IN_BILLERS_UNITS.split(";")):
            tx.exec_driver_sql(statement)
    migrate(database, LEDGER)
    with database.reading() as tx:
        amounts = tx.execute(sa.select(ledger_schema.payments.c.id, ledger_schema.payments.c.amount)).all()
        totals = ledger_schema.day_totals.c
        assert sorted(amounts) == [("own", 5000), ("stripe:in_1", 5000)]
        assert tx.execute(sa.select(totals.total).where(totals.day == day)).scalar_one() == 10_000
        for table in (ledger_schema.subscriptions, ledger_schema.subscription_versions):
            rows = tx.execute(sa.select(table.c.id, table.c.mrr).order_by(table.c.id)).all()
            assert rows == [("own", 417), ("polar:2", 500), ("stripe:sub_1", 417)]
    assert writer.record([Entry(payments=[new])]) == [[Outcome.DUPLICATE]]


def test_the_latest_payments_are_found_by_an_index(database):
    migrate(database, LEDGER)
    query = "SELECT id FROM payments WHERE project = 'p' AND received_at >= 0 ORDER BY received_at DESC LIMIT 5"
    with database.reading() as tx:
        steps = tx.exec_driver_sql(f"EXPLAIN QUERY PLAN {query}").all()
    assert len(steps) == 1, "nothing is sorted"
    assert "ix_payments_received" in str(steps)
