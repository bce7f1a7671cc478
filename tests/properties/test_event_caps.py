"""Whatever happens to the processes and the loader, a cap holds within its bound, and blocks no request below it.

Proves: event-cap.
"""

import asyncio
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from mauve.stores.log import MIXED_STREAM
from support.capped import Process, World

STREAMS = (0, 1, 2)
CAP = 60
BATCH_MAX = 9

streams = st.sampled_from(STREAMS)
batches = st.integers(1, BATCH_MAX)
steps = st.one_of(
    st.tuples(st.just("offer"), streams, batches),
    st.tuples(st.just("offer"), streams, batches),
    st.tuples(st.just("mixed"), streams, batches),
    st.tuples(st.just("refresh"), streams, st.none()),
    st.tuples(st.just("kill"), streams, st.none()),
    st.tuples(st.just("load"), st.sampled_from((*STREAMS, MIXED_STREAM)), st.integers(1, 3)),
)


class Run:
    """Run the steps. Track how many events each process accepted since all were last refreshed."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.processes = {stream: Process(world, stream) for stream in STREAMS}
        self.unshared = dict.fromkeys(STREAMS, 0)

    @property
    def events(self) -> int:
        return sum(process.events for process in self.processes.values())

    async def do(self, what: str, stream: int, argument: int | None) -> None:
        process = self.processes.get(stream)
        match what:
            case "offer" | "mixed":
                offer = process.offer if what == "offer" else process.offer_with_payments
                if await offer(argument):
                    self.unshared[stream] += argument
            case "refresh":
                process.refresh()
            case "kill":
                self.processes[stream] = await process.restarted()
            case "load":
                self.world.load(stream, argument)

    def refresh_all(self) -> None:
        for _ in range(3):
            for process in self.processes.values():
                process.refresh()
        self.unshared = dict.fromkeys(STREAMS, 0)

    async def stop(self) -> None:
        for process in self.processes.values():
            await process.stop()


@given(st.lists(st.lists(steps, max_size=12), min_size=1, max_size=5))
@settings(deadline=None, max_examples=50)
def test_a_cap_holds_within_its_bound_and_blocks_no_request_below_it(rounds):
    async def main(folder):
        world = World(Path(folder))
        world.set_cap(CAP)
        run = Run(world)
        for steps_of_round in rounds:
            started_at = run.events
            for step in steps_of_round:
                await run.do(*step)
            # A process may know nothing of the others since the round began; alone it stops at the cap.
            assert all(started_at + events < CAP + BATCH_MAX for events in run.unshared.values() if events)
            run.refresh_all()
            assert [process.known for process in run.processes.values()] == [run.events] * len(STREAMS)
        await run.stop()
        world.close()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(folder))
