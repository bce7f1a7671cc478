"""The warehouse's tables: in one embedded engine, on a server, or on every server of a cluster."""

from dataclasses import dataclass
from datetime import date
from typing import Final

from mauve.stores.imports import IMPORTS_MAX, ROWS_MAX, seq_of

# Without the first two, a power cut loses acknowledged inserts. Without the third, it loses merged parts: the embedded
# engine deletes their sources within seconds without syncing the result.
_DURABLE: Final = "fsync_after_insert = 1, fsync_part_directory = 1, min_rows_to_fsync_after_merge = 1"
# A load writes all columns to one file: one sync instead of one per column. Merges split it later.
_ONE_FILE: Final = "min_bytes_for_wide_part = 268435456"
# The number of inserts whose repetition a server recognizes: hours of loading, while a commit is refused minutes after
# its rows were staged.
_REMEMBERED_INSERTS: Final = 20_000
_REMEMBERED_S: Final = 24 * 3600
_SEEN_DAYS_MAX: Final = 90  # how long ids are kept if nothing is loaded

_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
DAY_NUMBER_MAX: Final = 2**16 - 1


def day_number(day: date) -> int:
    """Return the engine's number for a day, or for the nearest supported day."""
    return min(max(0, day.toordinal() - _EPOCH_ORDINAL), DAY_NUMBER_MAX)


def day_from(number: int) -> date:
    return date.fromordinal(_EPOCH_ORDINAL + number)


@dataclass(frozen=True, slots=True)
class Layout:
    """How the tables are created."""

    on_cluster: str = ""
    replicated: str = ""  # prefix of an engine's name
    settings: str = ""


# Merged parts leave thousands of small files. Deleting all of them together twice a minute would keep a file system
# with online discard busy for seconds and delay every load.
EMBEDDED: Final = Layout(
    settings=", cleanup_delay_period = 1, max_cleanup_delay_period = 2, cleanup_delay_period_random_add = 0"
)
SERVER: Final = Layout(settings=f", non_replicated_deduplication_window = {_REMEMBERED_INSERTS}")


def clustered(cluster: str) -> Layout:
    """Return the layout of replicated tables. A replica syncs to disk before it confirms an insert."""
    return Layout(
        on_cluster=f" ON CLUSTER `{cluster}`",
        replicated="Replicated",
        settings=(
            f", min_compressed_bytes_to_fsync_after_fetch = 1"
            f", replicated_deduplication_window = {_REMEMBERED_INSERTS}"
            f", replicated_deduplication_window_seconds = {_REMEMBERED_S}"
        ),
    )


# Texts take most of the space; Zstandard saves a third.
_COLUMNS: Final = """
    project LowCardinality(String),
    name LowCardinality(String),
    received_at Int64,
    occurred_at Int64,
    claimed_at String{codec},
    user String{codec},
    id String{codec},
    props String{codec},
    seq UInt64
"""

IS_IMPORTED: Final = f"seq BETWEEN {seq_of(0, 0)} AND {seq_of(IMPORTS_MAX, ROWS_MAX - 1)}"

FROZEN_FOLDER: Final = "shadow"  # the engine's own name
KEPT_TABLES: Final = ("events", "actives", "seen")
"""The tables that survive the process."""

# The events of each name summed by day, stored inside every part of the table and written by the same insert, so it
# cannot differ.
_EVENT_DAYS: Final = "event_days (SELECT project, name, day, sum(counted) GROUP BY project, name, day)"
ADD_EVENT_DAYS: Final = f"ALTER TABLE events ADD PROJECTION IF NOT EXISTS {_EVENT_DAYS}"


def kept_tables(layout: Layout) -> tuple[str, ...]:
    """Return the statements that create the tables."""
    cluster, durable = layout.on_cluster, f"{_DURABLE}{layout.settings}"
    return (
        f"""
        CREATE TABLE IF NOT EXISTS events{cluster} (
            {_COLUMNS.format(codec=" CODEC(ZSTD(1))")}, day Date, counted UInt8,
            INDEX seq_range seq TYPE minmax GRANULARITY 1,
            INDEX received_range received_at TYPE minmax GRANULARITY 1,
            PROJECTION {_EVENT_DAYS}
        )
        ENGINE = {layout.replicated}MergeTree
        PARTITION BY toYYYYMM(day)
        ORDER BY (project, name, day)
        SETTINGS {_ONE_FILE}, {durable}
        """,
        # A sketch may take 100 KB, so unneeded days are not even read. A week is stored under its Monday.
        f"""
        CREATE TABLE IF NOT EXISTS actives{cluster} (
            project LowCardinality(String),
            kind Enum8('active' = 1, 'signup' = 2, 'active_week' = 3, 'signup_week' = 4),
            day Date,
            users AggregateFunction(uniqCombined64(17), String)
        )
        ENGINE = {layout.replicated}AggregatingMergeTree
        ORDER BY (project, kind, day)
        SETTINGS index_granularity = 1, {durable}
        """,
        # Which ids were counted, and when. The loader drops days that can no longer be repeated, see `seen_ids`.
        f"""
        CREATE TABLE IF NOT EXISTS seen{cluster} (
            id_hash FixedString(16),
            received_at Int64,
            received_day Date
        )
        ENGINE = {layout.replicated}MergeTree
        PARTITION BY received_day
        ORDER BY id_hash
        TTL received_day + INTERVAL {_SEEN_DAYS_MAX} DAY
        SETTINGS ttl_only_drop_parts = 1, {_ONE_FILE}, {durable}
        """,
    )


TABLES: Final = kept_tables(EMBEDDED)
"""The statements for the embedded engine."""

# The rows being loaded, in memory and private to this session: two loaders never share them, and after a crash or a
# lost session they are staged again.
STAGING: Final = (
    f"CREATE TEMPORARY TABLE IF NOT EXISTS staged ({_COLUMNS.format(codec='')}) ENGINE = Memory",
    "CREATE TEMPORARY TABLE IF NOT EXISTS staged_repeats (seq UInt64) ENGINE = Memory",
    "CREATE TEMPORARY TABLE IF NOT EXISTS staged_stored (seq UInt64) ENGINE = Memory",
)
# Staged ids that a filter reports as counted before, each with the days that may hold it.
STAGED_CANDIDATES: Final = """
    CREATE TEMPORARY TABLE IF NOT EXISTS staged_candidates (id_hash FixedString(16), day UInt16) ENGINE = Memory
"""
