import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from mauve.stores import NewerSchemaError
from mauve.stores.catalog import schema
from mauve.stores.ledger import schema as ledger_schema
from mauve.stores.sql.database import Database, sqlite_url
from mauve.stores.sql.migrate import CATALOG, LEDGER, current_revision, migrate, newest_revision

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


def test_the_latest_payments_are_found_by_an_index(database):
    migrate(database, LEDGER)
    query = "SELECT id FROM payments WHERE project = 'p' AND received_at >= 0 ORDER BY received_at DESC LIMIT 5"
    with database.reading() as tx:
        steps = tx.exec_driver_sql(f"EXPLAIN QUERY PLAN {query}").all()
    assert len(steps) == 1, "nothing is sorted"
    assert "ix_payments_received" in str(steps)
