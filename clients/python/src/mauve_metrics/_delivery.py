"""Deliver queued items from one background thread: wait, send a batch, handle the answer.

The lock is held only for work in memory and on disk, never for the network, a callback or a log line. The lock and the
queue that wakes the thread are implemented in C, so a signal handler that raises cannot leave them inconsistent. If a
signal handler interrupts a call that holds the lock, the items it adds are deferred until that call returns.
"""

from __future__ import annotations

import logging
import queue
import random
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress

from mauve_metrics import _lifetime
from mauve_metrics._advice import hold_line
from mauve_metrics._answers import BACKOFF_S, Answer, Held, backoff_s, classify
from mauve_metrics._counts import FULL, Counts, Stats
from mauve_metrics._folders import lines_about_other_keys
from mauve_metrics._http import Connection, Origin
from mauve_metrics._items import Item, batch_body
from mauve_metrics._options import EVENTS, Options, new_outboxes
from mauve_metrics._outbox import NEVER, Outbox
from mauve_metrics._reports import Reports
from mauve_metrics._segment import Entry
from mauve_metrics._spool import Spool
from mauve_metrics._waiting import Clock, Signal, Steps, Waiters, is_owned

_ADOPT_EVERY_S = 60.0
_CLOSED = "the client was closed before the service answered"

log = logging.getLogger("mauve_metrics")


class Delivery:
    """The queues of a client and the thread that empties them."""

    def __init__(
        self, origin: Origin, headers: Mapping[str, str], options: Options, reports: Reports, clock: Clock
    ) -> None:
        self._origin = origin
        self._headers = headers
        self._options = options
        self._reports = reports
        self._clock = clock
        self._is_closing = self._is_closed = self._is_abandoned = False
        self._connection = Connection(origin, headers)
        self.waiters = Waiters(clock)
        self._deferred: deque[tuple[str, Entry]] = deque()
        self._start_empty()
        _lifetime.register(self)
        if options.spool is not None:
            with self._lock:
                self._ensure_thread()  # It sends what earlier processes left.

    @property
    def _lock(self) -> threading.RLock:
        """Created on first use in a process: gevent may replace all locks after a fork."""
        lock: threading.RLock | None = self.__dict__.get("lock")
        return lock or self.__dict__.setdefault("lock", threading.RLock())

    @property
    def _wake(self) -> Signal[None]:
        """Wakes the thread; also created on first use."""
        signal: Signal[None] | None = self.__dict__.get("signal")
        return signal or self.__dict__.setdefault("signal", queue.SimpleQueue())

    def _start_empty(self) -> None:
        self.__dict__.pop("lock", None)
        self.__dict__.pop("signal", None)
        self.waiters.clear()
        self._deferred.clear()
        self._thread: threading.Thread | None = None
        self._generation = object()  # identifies the thread: an earlier one must not settle items
        self._has_given_up = False
        self._close_deadline = -NEVER if self._is_closing else NEVER
        self._left_files = 0
        self._given_up_before = 0  # the count at the end of the last flush
        self._outboxes = new_outboxes(self._options)
        self._counts = Counts(list(self._outboxes.values()), self._deferred)

    def add(self, path: str, entry: Entry) -> None:
        """Queue an entry. Never waits for the network, never raises."""
        if is_owned(self._lock):  # A signal handler has interrupted a call of this thread.
            self._defer(path, entry)
        else:
            self._add(path, entry)
            self._add_deferred()

    def _add(self, path: str, entry: Entry) -> None:
        lock = self._lock
        dropped, reason, changes_schedule = [entry], "the client is closed", False
        try:
            with lock:
                if self._is_closing:
                    self._counts.unsent += 1
                else:
                    outbox = self._outboxes[path]
                    dropped, reason = outbox.add(entry), FULL
                    changes_schedule = outbox.changes_schedule(self._clock.monotonic() + self._options.flush_interval)
                    self._ensure_thread()
        except BaseException:  # of a signal handler
            if is_owned(lock):  # Python 3.9 may leave `with` without its end.
                lock.release()
            self._wake.put(None)
            raise
        if changes_schedule:
            self._wake.put(None)
        if dropped:
            self._counts.last_reason = reason
            self.waiters.notify()
            self._log_counts()
            self._reports.drop_for_call([(each, reason) for each in dropped])
        self._report_problem()

    def refuse(self, item: Item, reason: str) -> None:
        """Count and report an item that can never be sent."""
        if is_owned(self._lock):
            self._counts.by_handlers += 1
        else:
            with self._lock:
                self._counts.unsent += 1
        self._counts.last_reason = reason
        self._log_counts()
        self._reports.drop_for_call([(item, reason)])

    def _defer(self, path: str, entry: Entry) -> None:
        """Leave an entry to the interrupted call or to the thread: the queues are in an inconsistent state."""
        self._deferred.append((path, entry))
        if len(self._deferred) > self._options.max_queue:
            _, oldest = self._deferred.popleft()
            self._counts.by_handlers += 1
            self._counts.last_reason = FULL
            self._reports.drop_for_call([(oldest, FULL)])
        self._wake.put(None)

    def _add_deferred(self) -> None:
        while self._deferred and not is_owned(self._lock):
            try:
                path, entry = self._deferred.popleft()
            except IndexError:  # Another thread took it first.
                return
            self._add(path, entry)

    def flush(self, timeout_s: float) -> Steps:
        """Send without delay; return whether all items were answered in time, and none dropped since the last flush."""
        if is_owned(self._lock):  # by a call that a signal handler has interrupted: nothing is sent until it ends
            return False
        self._add_deferred()
        deadline = self._clock.monotonic() + timeout_s
        with self._lock:
            given_up_before = self._given_up_before
            marks = [(outbox, outbox.mark()) for outbox in self._outboxes.values()]
            if any(map(len, self._outboxes.values())) and not self._is_closing:
                self._ensure_thread()
        self._wake.put(None)
        while True:
            with self._lock:
                is_answered = all(outbox.is_answered(mark) for outbox, mark in marks)
                left_s = deadline - self._clock.monotonic()
                if is_answered or left_s <= 0:
                    self._given_up_before = given_up = self._counts.given_up
                    break
            yield left_s
        self._log_counts(is_prompt=True)
        return is_answered and given_up == given_up_before and not self._has_given_up

    def wait(self, timeout_s: float) -> Steps:
        """Wait for room in both queues; return whether there was room before the timeout."""
        deadline = self._clock.monotonic() + timeout_s
        while not is_owned(self._lock):
            with self._lock:
                has_room = all(outbox.has_room for outbox in self._outboxes.values())
            left_s = deadline - self._clock.monotonic()
            if has_room or self._is_closing or left_s <= 0:
                return has_room and not self._is_closing
            yield left_s
        return False

    def abandon(self) -> None:
        """Close an unreferenced client in the background. The garbage collector calls this, so take no lock."""
        self._is_abandoned = True
        self._wake.put(None)

    def begin_close(self, timeout_s: float | None = None) -> None:
        """Stop accepting items, and deliver until the deadline."""
        if is_owned(self._lock):  # as in `flush`
            return
        self._add_deferred()
        with self._lock:
            if not self._is_closing:
                self._is_closing = True
                timeout_s = self._options.timeout if timeout_s is None else timeout_s
                self._close_deadline = self._clock.monotonic() + timeout_s
                for outbox in self._outboxes.values():
                    outbox.search_again()
        self._wake.put(None)

    def close(self) -> Steps:
        """Deliver until the deadline, then drop the rest or leave it in the spool. Return whether nothing was left."""
        if is_owned(self._lock):  # as in `flush`: the client stays open, and is closed at exit
            return False
        with self._lock:
            if not self._is_closed and self._ready_in(self._clock.monotonic()) is not None:
                self._ensure_thread()
            thread = None if self._thread is threading.current_thread() else self._thread
        if thread is None:
            self._deliver(self._generation)  # No thread can be started while the interpreter exits.
        while True:
            with self._lock:
                left_s = self._close_deadline - self._clock.monotonic()
                if self._is_closed or self._thread is None or thread is None or left_s <= 0:
                    left = self._end()
                    break
            yield left_s
        self.waiters.notify()
        self._wake.put(None)
        self._reports.leave(self._counts.left_spooled, self._left_files, self._options.spool)
        self._log_counts(is_last=True)
        self._reports.drop([(entry, _CLOSED) for entry in left])
        return not self._has_given_up

    def finish_close(self) -> bool:
        return self.waiters.wait_for(self.close())

    @property
    def stats(self) -> Stats:
        with self._lock:
            return self._counts.stats

    def start_again_in_child(self) -> None:
        """Start with empty queues after a fork: the queued items and their files belong to the parent."""
        spools = [outbox.spool for outbox in self._outboxes.values() if outbox.spool is not None]
        self._start_empty()
        self._connection.forget()
        for spool in spools:
            spool.forget()

    def _ensure_thread(self) -> None:
        """Start the thread if there is none. Avoid `is_alive`: a signal handler that raises in it breaks a thread."""
        if self._thread is not None:
            return
        _lifetime.close_at_exit_of_child()
        self._generation = object()
        thread = threading.Thread(target=self._run, args=(self._generation,), name="mauve-delivery", daemon=True)
        with suppress(RuntimeError):  # The interpreter is exiting: `close` delivers.
            thread.start()
            self._thread = thread

    def _run(self, generation: object) -> None:
        try:
            self._deliver(generation)
        finally:  # also if something ends the thread: the next call starts another
            with self._lock:
                if self._generation is generation:
                    self._thread = None
            self.waiters.notify()
        if self._is_abandoned:
            self.finish_close()

    def _deliver(self, generation: object) -> None:
        """Deliver until the client is closed."""
        with closing(Connection(self._origin, self._headers)) as connection:
            self._connection = connection
            while True:
                outbox = self._next_outbox(generation)
                if outbox is None:
                    return
                try:
                    self._work_on(generation, outbox, connection)
                except Exception:
                    log.exception("mauve: delivery of %s failed; retrying", outbox.path)
                    self._hold_after_failure(outbox)
                self.waiters.notify()
                self._report_problem()

    def _hold_after_failure(self, outbox: Outbox) -> None:
        with self._lock:
            outbox.attempts += 1
            now = self._clock.monotonic()
            outbox.hold(now + backoff_s(outbox.attempts, BACKOFF_S, random.uniform))
            outbox.adopt_at = max(outbox.adopt_at, now + _ADOPT_EVERY_S)

    def _next_outbox(self, generation: object) -> Outbox | None:
        """Wait until something is due; return None if nothing more is due before the client closes."""
        while True:
            self._add_deferred()
            self._log_counts()
            if self._is_abandoned:
                self.begin_close()
            with self._lock:
                if self._generation is not generation or self._is_closed:
                    return None
                now = self._clock.monotonic()
                wait_s = self._ready_in(now)
                if wait_s is None:
                    self._thread = None
                    return None
                if wait_s <= 0:
                    return min(self._outboxes.values(), key=lambda each: each.due_at(now, is_closing=self._is_closing))
                log_in_s = self._counts.due_at - now
            self._clock.wait(self._wake, min(wait_s, log_in_s))

    def _ready_in(self, now: float) -> float | None:
        """Return the seconds until the next task, or None if the client closes before then."""
        due_at = min(outbox.due_at(now, is_closing=self._is_closing) for outbox in self._outboxes.values())
        return None if self._is_closing and max(due_at, now) >= self._close_deadline else due_at - now

    def _work_on(self, generation: object, outbox: Outbox, connection: Connection) -> None:
        """Adopt files of dead processes if that is due; otherwise send a batch."""
        now = self._clock.monotonic()
        if outbox.spool is not None and outbox.wants_more and outbox.adopt_at <= now:
            self._adopt(generation, outbox, outbox.spool)
            return
        with self._lock:
            batch, expired = outbox.take_batch(int(self._clock.now_s() * 1000), now)
            self._counts.expired += len(expired)
            self._counts.retries += bool(batch) and outbox.attempts > 0
        if expired:
            self.waiters.notify()
        if batch:
            self._act(generation, outbox, batch, self._send(outbox, batch, connection))

    def _send(self, outbox: Outbox, batch: Sequence[Entry], connection: Connection) -> Answer:
        sent_at_ms = int(self._clock.now_s() * 1000) if outbox.path == EVENTS else None
        body = batch_body([entry.body for entry in batch], sent_at_ms)
        left_s = self._close_deadline - self._clock.monotonic()
        timeout_s = max(min(self._options.timeout, left_s), 0.1)
        return connection.post(outbox.path, body, timeout_s, does_compress=self._options.compress)

    def _act(self, generation: object, outbox: Outbox, batch: list[Entry], answer: Answer) -> None:
        outcome = classify(answer, outbox.attempts + 1, self._clock.now_s(), random.uniform)
        with self._lock:
            if self._generation is not generation or self._is_closed:
                return
            outbox.attempts += 1
            rejected, dropped = self._counts.settle(outbox, batch, outcome, self._clock.monotonic())
            count = len(outbox)
        if isinstance(outcome, Held):
            line = hold_line(outbox.path, count, self._origin.url, answer, outcome.reason, self._options.key_name)
            self._reports.warn_once(f"{outbox.path} {answer.status}", line)
        else:
            self._reports.end_episode(outbox.path)
        self._reports.reject(rejected)
        self._reports.drop(dropped)

    def _adopt(self, generation: object, outbox: Outbox, spool: Spool) -> None:
        """Adopt a file that a dead process left in the spool."""
        has_found = spool.find_abandoned()
        segment = spool.load_abandoned()
        with self._lock:
            if self._generation is not generation:
                return
            if self._is_closed:
                spool.close()  # unlocks what was found
                return
            spool.attach(segment)
            outbox.adopt_at = self._clock.monotonic() + (0.0 if has_found else _ADOPT_EVERY_S)
        name, root = self._options.spool_name, self._options.spool
        for line in lines_about_other_keys(root, name) if root and not has_found else ():
            self._reports.warn_once(line, line)

    def _end(self) -> list[Entry]:
        """Stop permanently; return the lost entries."""
        if self._is_closed:
            return []
        self._is_closed = True
        left: list[Entry] = []
        for outbox in self._outboxes.values():
            self._left_files += outbox.spool.files_waiting if outbox.spool else 0
            lost, spooled = outbox.end()
            self._counts.left_spooled += spooled
            left += lost
        self._counts.unsent += len(left)
        self._counts.last_reason = _CLOSED if left else self._counts.last_reason
        is_left = bool(left or self._counts.left_spooled or self._left_files)
        self._has_given_up = is_left or self._counts.given_up > self._given_up_before
        return left

    def _log_counts(self, *, is_prompt: bool = False, is_last: bool = False) -> None:
        with self._lock:
            was_due_at, now = self._counts.due_at, self._clock.monotonic()
            lines = self._counts.lines(now, is_prompt=is_prompt or self._thread is None, is_last=is_last)
            if self._counts.due_at < was_due_at:
                self._wake.put(None)
        for line in lines:
            log.warning("mauve: %s", line)

    def _report_problem(self) -> None:
        for spool in self._counts.spools:
            if spool.problem:
                with self._lock:
                    message, lost = spool.take_problem()
                self._counts.last_reason = lost[-1][1] if lost else self._counts.last_reason
                self._reports.warn(message.partition(":")[0], message)
                self._reports.drop_for_call(lost)
