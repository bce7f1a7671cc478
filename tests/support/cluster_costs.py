"""The CPU time of a run: of the clients, and of every process of a machine, also of those that have ended."""

import os
import resource
from collections.abc import Iterable
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def spent_s(pids: Iterable[int]) -> float:
    """Return what this process, its children that have ended, and the given processes have used by now."""
    own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in own) + sum(map(spent_by, pids))


def spent_by(pid: int) -> float:
    """Return what a process and its children that have ended have used; 0 if it has ended itself."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / _TICKS
