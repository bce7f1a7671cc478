"""Checks of the simulation with two loaders: each bug planted here must be found, or it proves nothing."""

import dataclasses
from itertools import count

import pytest

from mauve.load.loader import Loader
from mauve.load.rows import LogRange
from mauve.stores.ledger import Intent
from mauve.stores.warehouse import last_numbers
from support.server_simulation import ServerSchedule
from support.simulated_servers import ServerLedger, WarehouseServer, WarehouseSession
from support.simulated_stores import SimulatedLedger
from support.simulation import first_violation

SCHEDULES_TO_FIND_A_BUG = range(10_000)


def is_found():
    return first_violation(SCHEDULES_TO_FIND_A_BUG, schedule_class=ServerSchedule) is not None


def test_without_a_bug_nothing_is_found():
    assert not first_violation(range(300), schedule_class=ServerSchedule)


@pytest.fixture
def without_tokens(monkeypatch):
    monkeypatch.setattr(WarehouseServer, "remembers", lambda *_: False)


@pytest.fixture
def without_turns(monkeypatch):
    monkeypatch.setattr(SimulatedLedger, "check_turn", lambda *_: None)


class TestIntent:
    def test_a_loader_that_writes_no_intent(self, monkeypatch):
        monkeypatch.setattr(ServerLedger, "intend", lambda self, _intent, turn: self.check_turn(turn))
        assert is_found()

    def test_a_loader_that_ignores_the_intent_of_the_one_before(self, monkeypatch):
        monkeypatch.setattr(ServerLedger, "intent", lambda _: None)
        assert is_found()

    def test_a_loader_that_gives_the_same_range_another_name(self, monkeypatch):
        numbers = count()
        name = Intent.name.fget
        monkeypatch.setattr(Intent, "name", property(lambda self: f"{name(self)}#{next(numbers)}"))
        assert is_found()

    def test_a_loader_that_repeats_only_the_streams_of_which_rows_are_stored(self, monkeypatch):
        unfinished_range = Loader.unfinished_range

        def of_some_streams(self, positions, unfinished):
            intent, streams = unfinished.intent, last_numbers(unfinished.stored)
            if intent is not None:
                last = {stream: number for stream, number in intent.positions.items() if stream in streams}
                intent = Intent({stream: intent.before[stream] for stream in last}, last)
            return unfinished_range(self, positions, unfinished._replace(intent=intent))

        monkeypatch.setattr(Loader, "unfinished_range", of_some_streams)
        assert is_found()

    def test_a_loader_that_asks_what_is_stored_only_before_it_stages(self, monkeypatch):
        store = Loader.store_range
        monkeypatch.setattr(
            Loader,
            "store_range",
            lambda self, log_range, known: store(
                self, LogRange(log_range.records, log_range.rows, log_range.batches), known
            ),
        )
        assert is_found()


class TestIds:
    def test_a_loader_that_does_not_know_the_ids_that_another_has_counted(self, monkeypatch):
        monkeypatch.setattr(WarehouseSession, "forget_ids", lambda _: None)
        assert is_found()

    def test_a_loader_that_does_not_know_the_ids_of_an_unfinished_step(self, monkeypatch):
        monkeypatch.setattr(WarehouseSession, "recover_ids", lambda *_: None)
        assert is_found()


class TestLedger:
    def test_a_finish_with_neither_the_turn_nor_the_old_positions(self, monkeypatch):
        """Each of them suffices here; the contract tests show that both are checked."""
        finish = ServerLedger.finish
        monkeypatch.setattr(
            ServerLedger,
            "finish",
            lambda self, step: finish(self, dataclasses.replace(step, turn=None, positions_before={})),
        )
        assert is_found()

    def test_a_finish_without_the_old_positions(self, monkeypatch):
        finish = ServerLedger.finish
        monkeypatch.setattr(
            ServerLedger, "finish", lambda self, step: finish(self, dataclasses.replace(step, positions_before={}))
        )
        assert is_found()

    def test_an_intent_without_the_old_positions(self, monkeypatch):
        intend = ServerLedger.intend

        def intend_anyway(self, intent, turn):
            check, self.check_positions = self.check_positions, lambda _: None
            try:
                intend(self, intent, turn)
            finally:
                self.check_positions = check

        monkeypatch.setattr(ServerLedger, "intend", intend_anyway)
        assert is_found()

    def test_an_intent_without_the_turn(self, monkeypatch):
        intend = ServerLedger.intend
        monkeypatch.setattr(ServerLedger, "intend", lambda self, intent, _: intend(self, intent, None))
        assert is_found()

    @pytest.mark.usefixtures("without_turns", "without_tokens")
    def test_a_lease_that_is_never_checked_on_a_server_without_tokens(self):
        assert is_found()


class TestServer:
    def test_a_commit_that_succeeds_although_the_staged_rows_are_lost(self, monkeypatch):
        execute = WarehouseServer.execute

        def succeed(self, statement):
            if statement.staging.server_start == self.server_start:
                execute(self, statement)

        monkeypatch.setattr(WarehouseServer, "execute", succeed)
        assert is_found()

    @pytest.mark.usefixtures("without_tokens")
    def test_a_server_that_stores_a_range_twice(self):
        assert is_found()

    def test_a_server_that_commits_rows_staged_before_it_forgot_the_range(self, monkeypatch):
        execute = WarehouseServer.execute

        def execute_at_any_age(self, statement):
            execute(
                self, dataclasses.replace(statement, staging=dataclasses.replace(statement.staging, at_s=self.now_s))
            )

        monkeypatch.setattr(WarehouseServer, "execute", execute_at_any_age)
        assert is_found()
