"""Kill every process repeatedly under load; every acknowledged event is stored exactly once.

Proves: kills, distinct-counts.
"""

import os
import random
import signal
import time

import pytest

from support.service import Service, eventually, fixed_ports, start
from support.traffic import Traffic, started_again

WORKERS = ("--workers", "2")
BATCHES_MIN = 50  # acknowledged, to prove that there was real load


def kill_a_child(service: Service, chance: random.Random) -> None:
    victims = eventually(service.child_pids)
    os.kill(chance.choice(sorted(victims.values())), signal.SIGKILL)


def kill_the_supervisor(service: Service) -> Service:
    """Kill the supervisor, and its children with it; return the service started in its place."""
    service.process.kill()
    service.process.wait()
    service.process.stdout.close()
    return started_again(service, *WORKERS)


@pytest.mark.prove
@pytest.mark.timeout(3_600)
def test_after_kills_of_every_process_each_acknowledged_event_is_counted_exactly_once(tmp_path, rounds, show_progress):
    chance = random.Random(20261115)
    kills = rounds(30, 1000)
    service = start(tmp_path / "data", *WORKERS, *fixed_ports())
    try:
        with Traffic(service) as traffic:
            for number in range(kills):
                time.sleep(chance.uniform(0.1, 1.0))
                if number % 10 == 9:
                    service = kill_the_supervisor(service)
                else:
                    kill_a_child(service, chance)
                if number % 50 == 0:
                    show_progress(f"{number:,} of {kills:,} kills, {len(traffic.acked):,} batches acknowledged")
            eventually(lambda: len(traffic.acked) > BATCHES_MIN)
        figures = traffic.figures_when_loaded(service)
        assert service.stop() == 0
    finally:
        if service.process.poll() is None:
            service.stop()
        service.process.stdout.close()
    traffic.check(service, figures)
