"""What a snapshot promises: it is copied as it was, whatever is written meanwhile."""

import sqlite3
from contextlib import closing

import pytest

from mauve.stores import StoreUnavailableError
from mauve.stores.ledger import Entry
from mauve.stores.ledger.writer import LedgerWriter
from mauve.stores.sql.copy import SqliteSnapshot
from mauve.stores.sql.database import Database, sqlite_url
from support.ledger_entries import a_payment, everything_in

ON_SQLITE = pytest.mark.parametrize("ledger_url", ["sqlite"], indirect=True)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.db"


def everything_at(path):
    with closing(Database(sqlite_url(path), busy_timeout_s=5)) as database:
        return everything_in(database)


@ON_SQLITE
def test_later_writes_are_not_in_the_snapshot(writer, path, tmp_path):
    writer.record([Entry([a_payment(f"p{number}", payload=bytes(10_000)) for number in range(3_000)])])
    before = everything_at(path)
    told = []

    def write_on(byte_count):
        told.append(byte_count)
        writer.record([Entry([a_payment(f"later {len(told)}")])])

    with closing(SqliteSnapshot(path)) as held:
        writer.record([Entry([a_payment("after")])])
        held.copy_to(tmp_path / "copy.db", write_on)
    assert everything_at(tmp_path / "copy.db") == before
    assert len(told) > 1, "it was written to in the middle of the copy"
    assert sum(told) == (tmp_path / "copy.db").stat().st_size
    assert len(everything_at(path)["payments"]) == 3_001 + len(told)


@ON_SQLITE
def test_a_copy_is_writable_like_the_original(writer, path, tmp_path):
    writer.record([Entry([a_payment("p1")])])
    with closing(SqliteSnapshot(path)) as held:
        held.copy_to(tmp_path / "copy.db", int)
    with closing(LedgerWriter(Database(sqlite_url(tmp_path / "copy.db"), busy_timeout_s=5))) as copied:
        copied.record([Entry([a_payment("p2")])])
    assert len(everything_at(tmp_path / "copy.db")["payments"]) == 2
    assert len(everything_at(path)["payments"]) == 1


def test_a_missing_database_is_not_created(tmp_path):
    with pytest.raises(StoreUnavailableError):
        SqliteSnapshot(tmp_path / "none.db")
    assert not (tmp_path / "none.db").exists()


def test_a_file_that_is_not_a_database_is_refused(tmp_path):
    (tmp_path / "other.db").write_bytes(b"something else" * 1000)
    with pytest.raises(StoreUnavailableError):
        SqliteSnapshot(tmp_path / "other.db")
    with pytest.raises(sqlite3.Error), closing(sqlite3.connect(tmp_path / "other.db")) as connection:
        connection.execute("SELECT * FROM sqlite_schema")
