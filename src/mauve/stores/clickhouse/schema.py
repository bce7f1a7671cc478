"""The warehouse's tables."""

from typing import Final

# Without the first two, a power cut takes inserts that were reported as done. Without the third, it takes what was
# merged: the embedded engine deletes what it has merged within half a minute, and would not have synced the result.
_DURABLE: Final = "fsync_after_insert = 1, fsync_part_directory = 1, min_rows_to_fsync_after_merge = 1"
# What one load writes goes into one file for all columns: one sync instead of one for each. Merges split it later.
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

FROZEN_FOLDER: Final = "shadow"  # the engine's own choice
KEPT_TABLES: Final = ("events", "actives", "seen")
"""The tables that outlive the process."""

# The events of each name summed up by day, kept inside every part of the table and made in the same insert: it
# cannot count differently. Parts from before it was there are summed up when they are read.
ADD_EVENT_DAYS: Final = """
    ALTER TABLE mauve.events ADD PROJECTION IF NOT EXISTS event_days
        (SELECT project, name, day, sum(counted) GROUP BY project, name, day)
"""

# Texts take most of the room, and a third less with Zstandard. Parts from before are packed anew when they are merged.
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
    # A sketch may take 100 KB: the days that are not asked for are not even read. A week has the day of its Monday.
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
    # For a warehouse from before weeks were summed up.
    """
    ALTER TABLE mauve.actives MODIFY COLUMN
        kind Enum8('active' = 1, 'signup' = 2, 'active_week' = 3, 'signup_week' = 4)
    """,
    # Which ids were counted, and when. An id is looked up for seven days; a day's partition goes a day later.
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
    # Finds what arrived last without reading whole days. Parts from before it was there have it when they are merged.
    "ALTER TABLE mauve.events ADD INDEX IF NOT EXISTS received_range received_at TYPE minmax GRANULARITY 1",
    # What is being loaded. It lives in memory: after a crash it is simply staged again.
    f"CREATE TABLE IF NOT EXISTS mauve.staged ({_COLUMNS}) ENGINE = Memory",
    "CREATE TABLE IF NOT EXISTS mauve.staged_repeats (seq UInt64) ENGINE = Memory",
    "CREATE TABLE IF NOT EXISTS mauve.staged_stored (seq UInt64) ENGINE = Memory",
    # Ids among them that a filter takes for counted before, each with the days that may hold it.
    """
    CREATE TABLE IF NOT EXISTS mauve.staged_candidates (id_hash FixedString(16), day UInt16)
    ENGINE = Memory
    """,
    # Whom an erasure is about, for as long as it lasts: nowhere else is that written down.
    "CREATE TABLE IF NOT EXISTS mauve.erasing (project String, user String) ENGINE = Memory",
)

# For tables that an earlier release has made; it takes hundredths of a second.
DURABILITY: Final = tuple(f"ALTER TABLE mauve.{table} MODIFY SETTING {_DURABLE}" for table in KEPT_TABLES)
