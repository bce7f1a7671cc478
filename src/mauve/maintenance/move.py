"""Move an installation's stores from files to servers: copy, compare, and only then switch.

The service is stopped, so the files do not change. An interrupted move resumes where it stopped; until the last step,
the files are untouched and the service can be restarted on them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mauve.maintenance import Progress
from mauve.maintenance.errors import MaintenanceFailedError


@dataclass(frozen=True, slots=True)
class Store:
    name: str
    source_counts: Callable[[], Mapping[str, int]]  # rows by table
    target_counts: Callable[[], Mapping[str, int]]
    copy: Callable[[Callable[[str, int], None]], None]


@dataclass(frozen=True, slots=True)
class Comparison:
    """A metric of one project, read from both sides."""

    name: str
    before: Callable[[], object]
    after: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Moved:
    rows: int
    metrics_compared: int


def move(
    stores: Sequence[Store],
    comparisons: Callable[[], Sequence[Comparison]],
    finish: Callable[[], None],
    progress: Progress,
) -> Moved:
    rows = 0
    for store in stores:
        counts = store.source_counts()
        progress.begin(f"copying the {store.name}", sum(counts.values()))
        store.copy(lambda _table, count: progress.add(count))
        found = store.target_counts()
        for table, count in counts.items():
            if found[table] != count:
                difference = f"{table} has {count} rows but its copy has {found[table]}"
                raise MaintenanceFailedError(f"{store.name}: {difference}: empty the target and try again")
        rows += sum(counts.values())
    compared = comparisons()
    progress.begin("comparing every metric", len(compared))
    for comparison in compared:
        if comparison.before() != comparison.after():
            raise MaintenanceFailedError(f"{comparison.name} differs after the copy: empty the target and try again")
        progress.add(1)
    finish()
    return Moved(rows, len(compared))
