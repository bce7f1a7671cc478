"""The ledger compared with a naive model.

Proves: money.
"""

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from mauve.stores.ledger import payments as payment_book
from mauve.stores.ledger import writer as ledger_writer
from mauve.stores.sql.database import Database, sqlite_url
from mauve.stores.sql.dialects import escaped, unescaped
from mauve.stores.sql.migrate import LEDGER, migrate
from support.ledger_model import ANY_TEXT, GROUPS, check_that_it_ends_as_in_the_model

BACKSLASHES_AND_NULS = st.text("\\0\0n", max_size=12)


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    opened = Database(sqlite_url(tmp_path_factory.mktemp("ledger") / "ledger.db"), busy_timeout_s=5)
    migrate(opened, LEDGER)
    yield opened
    opened.close()


@settings(max_examples=150, deadline=None)
@given(groups=GROUPS)
def test_any_sequence_of_groups_matches_the_model(database, groups):
    check_that_it_ends_as_in_the_model(database, groups)


def is_found(database):
    """Return whether the check fails on one of sixty sequences."""

    @settings(max_examples=60, deadline=None, database=None, derandomize=True, phases=[Phase.generate])
    @given(groups=GROUPS)
    def check(groups):
        check_that_it_ends_as_in_the_model(database, groups)

    try:
        check()
    except AssertionError:
        return True
    return False


class TestPlantedBugs:
    """Checks of the check: each of these bugs must be found."""

    def test_without_a_bug_nothing_is_found(self, database):
        assert not is_found(database)

    def test_money_summed_twice(self, database, monkeypatch):
        move = ledger_writer.move_day_totals

        def move_twice(tx, accepted):
            move(tx, accepted)
            move(tx, accepted)

        monkeypatch.setattr(ledger_writer, "move_day_totals", move_twice)
        assert is_found(database)

    def test_money_summed_for_another_day(self, database, monkeypatch):
        monkeypatch.setattr(payment_book, "DAY_MS", payment_book.DAY_MS + 1)
        assert is_found(database)

    def test_a_payment_in_conflict_taken_for_a_duplicate(self, database, monkeypatch):
        real = ledger_writer.outcome_of

        def forgiving(payment, recorded):
            return real(payment, recorded and recorded._replace(digest=payment.digest))

        monkeypatch.setattr(ledger_writer, "outcome_of", forgiving)
        assert is_found(database)

    def test_a_payment_that_counts_as_usage_whatever_its_source(self, database, monkeypatch):
        monkeypatch.setattr(ledger_writer, "CLIENT", "biller_a")
        assert is_found(database)


@given(ANY_TEXT | BACKSLASHES_AND_NULS)
def test_an_escaped_text_has_no_nul_and_is_restored(text):
    assert "\0" not in escaped(text)
    assert unescaped(escaped(text)) == text


@given(BACKSLASHES_AND_NULS, BACKSLASHES_AND_NULS)
def test_only_equal_texts_are_escaped_to_equal_texts(one, two):
    assert (escaped(one) == escaped(two)) == (one == two)
