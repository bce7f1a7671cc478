"""Log, loader and checkpoint on a simulated machine: no schedule breaks a promise.

A failure prints the seed; `PYTHONPATH=tests python -m support.simulation SEED` runs only that schedule again.
"""

import pytest

from support.simulation import first_violation

PARTS = 8
SCHEDULES_AT_ONCE = 500


@pytest.mark.prove
@pytest.mark.parametrize("part", range(PARTS))
def test_no_schedule_loses_duplicates_or_invents_an_event_or_miscounts_one(part, rounds, show_progress):
    schedules = rounds(20_000, 1_000_000) // PARTS
    first_seed = part * schedules
    for done in range(0, schedules, SCHEDULES_AT_ONCE):
        seeds = range(first_seed + done, first_seed + done + SCHEDULES_AT_ONCE)
        assert (found := first_violation(seeds)) is None, (
            f"`PYTHONPATH=tests python -m support.simulation {found[0]}`: {found[1]}"
        )
        if done % 20_000 == 0:
            show_progress(f"part {part + 1} of {PARTS}: {done:,} of {schedules:,} schedules")
