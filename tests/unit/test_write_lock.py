"""Two writers of one SQLite file."""

import threading

import pytest
import sqlalchemy as sa

from mauve.stores import StoreUnavailableError
from mauve.stores.sql.database import Database, sqlite_url
from support.service import PATIENCE_S


@pytest.fixture
def open_database(tmp_path):
    opened = []

    def open_(busy_timeout_s):
        opened.append(Database(sqlite_url(tmp_path / "some.db"), busy_timeout_s))
        return opened[-1]

    yield open_
    for database in opened:
        database.close()


def test_waiting_for_a_lock_times_out_and_leaves_the_connection_unchanged(open_database):
    first, second = open_database(5), open_database(0.05)
    with first.writing():
        for _ in range(2):
            with pytest.raises(StoreUnavailableError, match="locked"), second.writing():
                pass
    with second.writing() as tx:
        assert tx.execute(sa.text("PRAGMA busy_timeout")).scalar_one() == 50


def test_a_waiting_writer_gets_the_lock_when_it_is_released(open_database):
    first, second = open_database(5), open_database(PATIENCE_S)
    began, written = threading.Event(), threading.Event()

    def write():
        began.set()
        with second.writing():
            written.set()

    thread = threading.Thread(target=write)
    with first.writing():
        thread.start()
        assert began.wait(PATIENCE_S)
        assert not written.wait(0.05)
    thread.join()
    assert written.is_set()
