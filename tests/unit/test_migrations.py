import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from mauve.stores.sql.database import Database, sqlite_url
from mauve.stores.sql.migrate import NEWEST_REVISION, current_revision, migrate
from mauve.stores.sql.schema import metadata
from mauve.stores.unavailable import NewerSchemaError


@pytest.fixture
def database(tmp_path):
    opened = Database(sqlite_url(tmp_path / "a % folder" / "catalog.db"), busy_timeout_s=5)
    (tmp_path / "a % folder").mkdir()
    yield opened
    opened.close()


def test_the_migrations_make_the_tables_that_the_queries_see(database):
    assert current_revision(database) is None
    migrate(database)
    assert current_revision(database) == NEWEST_REVISION
    with database.reading() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def test_migrating_again_changes_nothing(database):
    migrate(database)
    migrate(database)
    assert current_revision(database) == NEWEST_REVISION


def test_tables_of_a_newer_release_are_left_alone(database):
    migrate(database)
    with database.writing() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(NewerSchemaError, match="9999"):
        migrate(database)


def test_sqlite_is_set_up_to_lose_nothing(database):
    with database.reading() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2  # FULL
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
