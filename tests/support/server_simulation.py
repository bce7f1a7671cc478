"""Two loaders on servers: one schedule of turns, pauses, kills, restarts and late statements, drawn from one seed.

Two machines run the real loader on a simulated log, ledger and warehouse. One has the lease. A machine may pause at any
step, lose its turn meanwhile, and continue at any step of the other. At the end everything is loaded, whatever is still
in flight lands, and what is stored is compared with what was sent. To run one again:
`PYTHONPATH=tests python -m support.server_simulation SEED`.
"""

import random
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import cast

import uvloop

from mauve.load.loader import DayCloser, Loader
from mauve.stores import StoreUnavailableError
from mauve.stores.ledger import Turn
from mauve.stores.ledger.closed_days import ClosedDays
from mauve.stores.ledger.loading import LoadLedger
from mauve.stores.warehouse import WarehouseUnavailableError
from mauve.stores.warehouse.warehouse import ClickHouseWarehouse
from support.simulated_disk import AMPLE, MachineDownError
from support.simulated_servers import ServerLedger, ServerLog, WarehouseServer, WarehouseSession
from support.simulated_stores import Faults, SimulatedClosedDays, day_of
from support.simulation import STEPS_MS, InlineExecutor, Schedule, Sent, TickingClock, Violation

STREAMS = (240, 241)
NEVER = -1
PAUSES_S = (0, 0, 0, 1, 9, 9, 61, 3601)
ERRORS = (StoreUnavailableError, WarehouseUnavailableError, MachineDownError)


class PausableStep:
    """Work in a thread of its own that can stop in the middle. Only one thread runs at a time."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self._go, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self._was_killed = False
        self.error: BaseException | None = None
        self.has_ended = False
        threading.Thread(target=self._run, daemon=True).start()

    def resume(self) -> None:
        """Let the work go on until it pauses or ends."""
        self._go.release()
        self._stopped.acquire()
        if self.error is not None:
            raise self.error

    def pause(self) -> None:
        """Stop here, in the thread of the work, until it is resumed."""
        self._stopped.release()
        self._go.acquire()
        if self._was_killed:
            raise MachineDownError

    def kill(self) -> None:
        self._was_killed = True
        with suppress(MachineDownError):
            self.resume()

    def _run(self) -> None:
        self._go.acquire()
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - it is raised where the work was resumed
            self.error = error
        self.has_ended = True
        self._stopped.release()


class Machine:
    """One process with a loader, and perhaps a step that has paused."""

    def __init__(self, schedule: "ServerSchedule") -> None:
        self._schedule = schedule
        self.pause_in = self.die_in = NEVER
        self.start()

    def start(self) -> None:
        schedule = self._schedule
        self.is_down = False
        self.step: PausableStep | None = None
        self._days = DayCloser(cast("ClosedDays", schedule.closed), cast("ClickHouseWarehouse", schedule.warehouse))
        self.loader = Loader(
            schedule.reader,
            cast("LoadLedger", schedule.ledger),
            cast("ClickHouseWarehouse", WarehouseSession(schedule.warehouse, schedule.faults)),
            schedule.clock,
            self._days,
            range_bytes_max=schedule.rng.choice((1, 400, AMPLE, AMPLE)),
            new_thread=InlineExecutor,
        )
        self.loader.begin_turn(Turn("a machine", 0))  # which was over before the first

    def load(self) -> int:
        loaded = self.loader.load_next_range()
        if not loaded:
            self._days.close_next_days(day_of(self._schedule.clock.now_ms()))
        return loaded

    def happen(self) -> None:
        """Count the calls of a step down to its pause, and to the end of the process."""
        self.pause_in -= 1
        self.die_in -= 1
        self.is_down |= self.die_in == 0
        if self.is_down:
            raise MachineDownError
        if self.pause_in == 0 and self.step is not None:
            self.step.pause()


class ServerSchedule(Schedule):
    UNREADABLE = 0.05
    warehouse: WarehouseServer
    ledger: ServerLedger
    reader: ServerLog

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.faults = Faults(self.rng, self.happen)
        self.warehouse = WarehouseServer(self.faults)
        self.ledger = ServerLedger(self.faults)
        self.closed = SimulatedClosedDays(self.faults)
        self.reader = ServerLog(self.faults, STREAMS)
        self.clock = TickingClock()
        self.delayed: list[list[Sent]] = []
        self.appended = 0
        self.is_quiet = False
        self.running: Machine | None = None
        self.active, self.other = Machine(self), Machine(self)
        self.active.loader.begin_turn(self.ledger.begin_turn())

    async def run(self) -> None:
        self.faults.failure = self.rng.choice((0, 0.03, 0.08))
        for _ in range(self.rng.randint(4, 14)):
            self.act_once()
        self.faults.failure = 0
        self.is_quiet = True
        self.finish_everything()
        self.check()

    def act_once(self) -> None:
        luck = self.rng.random()
        if luck < 0.35:
            self.append_some()
        elif luck < 0.42:
            self.record_beside_a_payment()
        elif luck < 0.52:
            self.take_over()
        elif luck < 0.57:
            self.step(self.other)  # It does not know that its turn is over.
        else:
            self.step(self.active)
        self.warehouse.now_s += self.rng.choice(PAUSES_S)
        if self.rng.random() < 0.15:
            self.clock.advance(self.rng.choice(STEPS_MS))

    def append_some(self) -> None:
        """Append a group to a stream, now or later: the clocks and the ways of machines differ."""
        group = [self.draw(self.rng.choice(STREAMS)) for _ in range(self.rng.choice((1, 2, 3)))]
        if self.rng.random() < 0.15:
            for each in group:
                each.was_overtaken = True
            self.delayed.append(group)
        else:
            self.append(group)
        if self.delayed and self.rng.random() < 0.3:
            self.append(self.delayed.pop(0))

    def append(self, group: list[Sent]) -> None:
        for each in group:
            if self.faults.draws_a_failure():
                continue
            self.appended += 1
            each.issued = self.appended
            self.reader.append(each.stream, each.payload)
            if not self.faults.draws_a_failure():
                each.outcome = "acknowledged"

    def happen(self) -> None:
        """Before and after every call to a server: pause or kill the caller, or let something else happen meanwhile."""
        caller = self.running
        if caller is None or self.is_quiet:
            return
        caller.happen()
        luck = self.rng.random()
        if luck < 0.1:
            self.warehouse.land()
        elif luck < 0.12:
            self.ledger.land()
        elif luck < 0.125:
            self.warehouse.restart()
        elif luck < 0.25:
            other = self.other if caller is self.active else self.active
            if other.step is not None and caller.step is None:
                self.resume(other)

    def step(self, machine: Machine) -> None:
        """Begin a step of this machine, or continue the one that has paused."""
        if machine.step is None:
            machine.die_in = self.rng.choice((NEVER, NEVER, self.rng.randint(1, 60)))
            if self.rng.random() < 0.3:
                machine.step = PausableStep(machine.load)
        if machine.step is not None:
            self.resume(machine)
        else:
            self.call(machine, machine.load)

    def resume(self, machine: Machine) -> None:
        assert machine.step is not None
        machine.pause_in = self.rng.randint(1, 25)
        self.call(machine, machine.step.resume)
        if machine.step is not None and machine.step.has_ended:
            machine.step = None

    def call(self, machine: Machine, work: Callable[[], object]) -> None:
        before, self.running = self.running, machine
        with suppress(*ERRORS):
            work()
        self.running = before
        if machine.is_down:
            machine.start()
            if machine is self.active:  # It gets its own lease again at once.
                machine.loader.begin_turn(self.ledger.begin_turn())

    def take_over(self) -> None:
        """Let the lease expire, and the other machine acquire it."""
        self.warehouse.now_s += 9
        self.active, self.other = self.other, self.active
        if self.active.step is not None:  # It waits until its own step is over.
            self.end(self.active)
        self.active.loader.begin_turn(self.ledger.begin_turn())

    def end(self, machine: Machine) -> None:
        while machine.step is not None:
            self.resume(machine)

    def finish_everything(self) -> None:
        for group in self.delayed:
            self.append(group)
        self.append([self.draw(STREAMS[0])])
        if self.rng.random() < 0.5:
            self.settle()
        if self.active.step is not None:
            self.take_over()
        self.load_all()
        self.warehouse.now_s += self.rng.choice(PAUSES_S)
        self.settle()
        self.load_all()

    def load_all(self) -> None:
        for _ in range(3 * len(self.sent) + 9):
            with suppress(StoreUnavailableError):  # The last step may have landed after its answer was lost.
                if not self.active.loader.load_next_range():
                    return
        raise Violation("loading does not come to an end")

    def settle(self) -> None:
        """Let everything land that is still in flight."""
        for machine in (self.active, self.other):
            self.end(machine)
        self.ledger.land()
        for _ in self.sent:
            self.warehouse.land()

    def may_lose(self, each: Sent) -> bool:
        return False


if __name__ == "__main__":
    uvloop.run(ServerSchedule(int(sys.argv[1])).run())
    print(f"seed {sys.argv[1]} holds")  # noqa: T201 - a program for people
