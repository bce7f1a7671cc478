"""Log, loader and checkpoint on a simulated machine, or two loaders on servers: no schedule breaks a promise.

A failure prints the seed and the command that runs only that schedule again.

Proves: durable, two-loaders, arrival-order, closed-days.
"""

import pytest

from support.server_simulation import ServerSchedule
from support.simulation import Schedule, first_violation

PARTS = 8
SCHEDULES_AT_ONCE = 500


@pytest.mark.prove
@pytest.mark.parametrize("part", range(PARTS))
def test_no_schedule_loses_duplicates_or_invents_an_event_or_miscounts_one(part, rounds, show_progress):
    run_part(part, rounds(20_000, 1_000_000) // PARTS, show_progress, Schedule, "simulation")


@pytest.mark.prove
@pytest.mark.parametrize("part", range(PARTS))
def test_no_schedule_of_two_loaders_on_servers_does(part, rounds, show_progress):
    run_part(part, rounds(8_000, 400_000) // PARTS, show_progress, ServerSchedule, "server_simulation")


def run_part(part, schedules, show_progress, schedule_class, module):
    first_seed = part * schedules
    for done in range(0, schedules, SCHEDULES_AT_ONCE):
        seeds = range(first_seed + done, first_seed + done + SCHEDULES_AT_ONCE)
        assert (found := first_violation(seeds, schedule_class=schedule_class)) is None, (
            f"`PYTHONPATH=tests python -m support.{module} {found[0]}`: {found[1]}"
        )
        if done % 20_000 == 0:
            show_progress(f"part {part + 1} of {PARTS}: {done:,} of {schedules:,} schedules")
