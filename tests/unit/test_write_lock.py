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


def test_a_lock_that_is_not_let_go_is_given_up_and_the_connection_is_as_before(open_database):
    first, second = open_database(5), open_database(0.05)
    with first.writing():
        for _ in range(2):
            with pytest.raises(StoreUnavailableError, match="locked"), second.writing():
                pass
    with second.writing() as tx:
        assert tx.execute(sa.text("PRAGMA busy_timeout")).scalar_one() == 50


def test_who_waits_for_the_lock_gets_it_when_it_is_let_go(open_database):
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
