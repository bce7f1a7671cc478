"""Files of the warehouse that are missing, truncated or changed.

Proves: power-cuts.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.service import clean_environment

PROGRAM = Path(__file__).parents[1] / "support" / "warehouse_program.py"
WHOLE = {"from_sums": 160, "from_rows": 160, "ids": 160, "users": 20, "parts_without_sums": 0}


def run(path, order):
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(path), order],
        env=clean_environment(PYTHONPATH=str(PROGRAM.parents[1])),
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()[-1:]


def cut_short(path):
    path.write_bytes(b"")


def fill_with_zeros(path):
    path.write_bytes(bytes(path.stat().st_size))


@pytest.mark.parametrize("damage", [Path.unlink, cut_short, fill_with_zeros])
def test_damaged_sums_of_events_are_rebuilt(tmp_path, damage):
    run(tmp_path, "load")
    sums = [path for path in tmp_path.glob("store/*/*/*/event_days.proj/*") if path.is_file()]
    assert len(sums) > 50
    for path in sums[: len(sums) // 2]:
        damage(path)
    (figures,) = run(tmp_path, "tell")
    assert json.loads(figures) == WHOLE
