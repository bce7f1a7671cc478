"""How long a process that could run had to wait for a processor: a busy machine delays every promise by so much."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

SLEEP_S = 0.01
NOTICED_S = 0.005  # A shorter delay is the timer's own.
# A process of its own: in a thread of the tests, it would also wait for Python's lock.
_PROGRAM = f"""
import sys, time
while True:
    asked_for = time.monotonic() + {SLEEP_S}
    time.sleep({SLEEP_S})
    woken_at = time.monotonic()
    if woken_at > asked_for + {NOTICED_S}:
        sys.stdout.write(f"[{{asked_for}}, {{woken_at}}]\\n")
        sys.stdout.flush()
"""


@dataclass(frozen=True)
class Delays:
    """The times in which a process waited for a processor, from and to."""

    waits: Sequence[tuple[float, float]] = ()

    def within(self, from_: float, to: float) -> float:
        """Return how long it waited in an interval."""
        return sum(max(0.0, min(to, ended_at) - max(from_, began_at)) for began_at, ended_at in self.waits)


@contextmanager
def measuring() -> Iterator[Delays]:
    """Measure until the block ends: only then is what it yields filled."""
    found: list[tuple[float, float]] = []
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen([sys.executable, "-S", "-c", _PROGRAM], stdout=output)
        try:
            yield Delays(found)
            time.sleep(5 * SLEEP_S)  # so that it has written the last one
        finally:
            process.terminate()
            process.wait()
        output.seek(0)
        lines = output.read().splitlines(keepends=True)
    found += [tuple(json.loads(line)) for line in lines if line.endswith("]\n")]
