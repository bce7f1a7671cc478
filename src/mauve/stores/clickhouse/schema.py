"""The warehouse's tables."""

from typing import Final

# Without the first two, a power cut loses acknowledged inserts. Without the third, it loses merged parts: the embedded
# engine deletes their sources within half a minute, and would not have synced the result.
_DURABLE: Final = "fsync_after_insert = 1, fsync_part_directory = 1, min_rows_to_fsync_after_merge = 1"
# A load writes all columns to one file: one sync instead of one for each. Merges split it later.
_ONE_FILE: Final = "min_bytes_for_wide_part = 268435456"

_COLUMNS: Final = """
    project LowCardinality(String),
    name LowCardinality(String),
    received_at Int64,
    occurred_at Int64,
    claimed_at String,
    user String,
    id String,
    props String,
    seq UInt64
"""

FROZEN_FOLDER: Final = "shadow"  # the engine's own name
KEPT_TABLES: Final = ("events", "actives", "seen")
"""The tables that survive the process."""

# The events of each name summed by day, stored inside every part of the table and written by the same insert, so it
# cannot differ. Older parts without it are summed when they are read.
ADD_EVENT_DAYS: Final = """
    ALTER TABLE mauve.events ADD PROJECTION IF NOT EXISTS event_days
        (SELECT project, name, day, sum(counted) GROUP BY project, name, day)
"""

# Texts take most of the space, and a third less with Zstandard. Older parts are recompressed when they are merged.
_COMPRESS_TEXTS: Final = "ALTER TABLE mauve.events " + ", ".join(
    f"MODIFY COLUMN {column} String CODEC(ZSTD(1))" for column in ("claimed_at", "user", "id", "props")
)

TABLES: Final = (
    "CREATE DATABASE IF NOT EXISTS mauve",
    f"""
    CREATE TABLE IF NOT EXISTS mauve.events (
        {_COLUMNS},
        day Date,
        counted UInt8,
        INDEX seq_range seq TYPE minmax GRANULARITY 1
    )
    ENGINE = MergeTree
    PARTITION BY toYYYYMM(day)
    ORDER BY (project, name, day)
    SETTINGS {_ONE_FILE}, {_DURABLE}
    """,
    # A sketch may take 100 KB, so days that are not needed are not even read. A week is stored under its Monday.
    f"""
    CREATE TABLE IF NOT EXISTS mauve.actives (
        project LowCardinality(String),
        kind Enum8('active' = 1, 'signup' = 2, 'active_week' = 3, 'signup_week' = 4),
        day Date,
        users AggregateFunction(uniqCombined64(17), String)
    )
    ENGINE = AggregatingMergeTree
    ORDER BY (project, kind, day)
    SETTINGS index_granularity = 1, {_DURABLE}
    """,
    # For a warehouse from before weeks were merged.
    """
    ALTER TABLE mauve.actives MODIFY COLUMN
        kind Enum8('active' = 1, 'signup' = 2, 'active_week' = 3, 'signup_week' = 4)
    """,
    # Which ids were counted, and when. An id is looked up for seven days; a day's partition is dropped a day later.
    f"""
    CREATE TABLE IF NOT EXISTS mauve.seen (
        id_hash FixedString(16),
        received_at Int64,
        received_day Date
    )
    ENGINE = MergeTree
    PARTITION BY received_day
    ORDER BY id_hash
    TTL received_day + INTERVAL 9 DAY
    SETTINGS ttl_only_drop_parts = 1, {_ONE_FILE}, {_DURABLE}
    """,
    ADD_EVENT_DAYS,
    _COMPRESS_TEXTS,
    # Finds the latest arrivals without reading whole days. Older parts get it when they are merged.
    "ALTER TABLE mauve.events ADD INDEX IF NOT EXISTS received_range received_at TYPE minmax GRANULARITY 1",
    # The rows being loaded. In memory: after a crash they are staged again.
    f"CREATE TABLE IF NOT EXISTS mauve.staged ({_COLUMNS}) ENGINE = Memory",
    "CREATE TABLE IF NOT EXISTS mauve.staged_repeats (seq UInt64) ENGINE = Memory",
    "CREATE TABLE IF NOT EXISTS mauve.staged_stored (seq UInt64) ENGINE = Memory",
    # Staged ids that a filter reports as counted before, each with the days that may hold it.
    """
    CREATE TABLE IF NOT EXISTS mauve.staged_candidates (id_hash FixedString(16), day UInt16)
    ENGINE = Memory
    """,
    # The person being erased, for the duration of the erasure; stored nowhere else.
    "CREATE TABLE IF NOT EXISTS mauve.erasing (project String, user String) ENGINE = Memory",
)

# For tables created by an earlier release; takes hundredths of a second.
DURABILITY: Final = tuple(f"ALTER TABLE mauve.{table} MODIFY SETTING {_DURABLE}" for table in KEPT_TABLES)
