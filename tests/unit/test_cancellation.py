"""A change is committed or cancelled, never both.

Proves: catalog-down.
"""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from mauve.control.plane import run_with_deadline
from mauve.stores.cancellation import Cancellation, CancelledError, current_cancellation


def commits(cancellation):
    try:
        with cancellation.committing():
            return True
    except CancelledError:
        return False


def test_a_cancelled_change_is_not_committed():
    cancellation = Cancellation()
    assert cancellation.cancel()
    assert not commits(cancellation)
    assert not cancellation.has_committed


def test_a_committing_change_can_no_longer_be_cancelled():
    cancellation = Cancellation()
    with cancellation.committing():
        assert not cancellation.cancel()
        assert not cancellation.has_committed
    assert cancellation.has_committed
    assert not cancellation.cancel()
    assert commits(cancellation), "what belongs to it may still be committed"


def test_a_failed_commit_does_not_count_as_committed():
    cancellation = Cancellation()
    with pytest.raises(ZeroDivisionError), cancellation.committing():
        raise ZeroDivisionError
    assert not cancellation.has_committed


def test_of_two_concurrent_decisions_one_wins():
    with ThreadPoolExecutor(2) as threads:
        for _ in range(500):
            cancellation, start = Cancellation(), threading.Barrier(2)
            cancelled = threads.submit(lambda c=cancellation, s=start: (s.wait(), c.cancel())[1])
            committed = threads.submit(lambda c=cancellation, s=start: (s.wait(), commits(c))[1])
            assert cancelled.result() is not committed.result()


def test_a_cancellation_guards_only_its_own_thread_and_block():
    cancellation = Cancellation()
    with cancellation.guarding(), ThreadPoolExecutor(1) as threads:
        assert current_cancellation() is cancellation
        assert threads.submit(current_cancellation).result() is not cancellation
    assert current_cancellation() is not cancellation


class TestDoneInTime:
    def test_work_that_commits_too_late_changes_nothing(self):
        given_up = threading.Event()
        cancellation, threads = Cancellation(), ThreadPoolExecutor(1)

        def work():
            given_up.wait(30)
            return commits(cancellation)

        with pytest.raises(TimeoutError):
            asyncio.run(run_with_deadline(threads, work, 0.01, cancellation))
        given_up.set()
        threads.shutdown()
        assert not cancellation.has_committed

    def test_work_that_is_committing_when_time_runs_out_is_waited_for(self):
        may_end, cancellation = threading.Event(), Cancellation()

        async def ask(threads):
            asked = asyncio.create_task(run_with_deadline(threads, lambda: may_end.wait(30), 0.01, cancellation))
            await asyncio.wait({asked}, timeout=0.2)
            was_waiting = not asked.done()
            may_end.set()
            return was_waiting, await asked

        with cancellation.committing(), ThreadPoolExecutor(1) as threads:
            assert asyncio.run(ask(threads)) == (True, True)

    def test_work_that_has_not_begun_in_time_never_begins(self):
        free, began = threading.Event(), []
        with ThreadPoolExecutor(1) as threads:
            threads.submit(free.wait, 30)
            with pytest.raises(TimeoutError):
                asyncio.run(run_with_deadline(threads, lambda: began.append(1), 0.01, Cancellation()))
            free.set()
        assert began == []
