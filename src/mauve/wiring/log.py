"""Wires the log to files in the data directory or to NATS servers."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from mauve.access.event_caps import OwnStream
from mauve.config import WORKERS_MAX, Settings
from mauve.core.clock import SystemClock
from mauve.core.secret import Secret
from mauve.stores import ForeignDataError, StoreUnavailableError
from mauve.stores.catalog.catalog import Catalog, Installation
from mauve.stores.disk import LOCAL_DISK
from mauve.stores.ledger import LOG_LOST, DeadLetter
from mauve.stores.ledger.loading import LoadLedger, keep_dead_letters
from mauve.stores.log import LogReader, LogWriter
from mauve.stores.log.files.maintenance import SegmentLogMaintenance
from mauve.stores.log.files.reader import SegmentLogReader
from mauve.stores.log.files.segments import continue_after, ends_before, list_segments, list_streams, stream_directory
from mauve.stores.log.files.writer import SegmentLogWriter
from mauve.stores.maintenance import LogMaintenance
from mauve.wiring.databases import open_catalog_database, open_ledger_database, open_load_ledger
from mauve.wiring.paths import log_path

if TYPE_CHECKING:
    from mauve.stores.log.nats.log_reader import NatsLogReader

# The modules for NATS are imported where they are used: embedded installations do not load them.
# ruff: noqa: PLC0415

_STREAM_IDS: Final = "log_stream_ids"
_stream_ids: Final = msgspec.json.Decoder(dict[int, str])
LOADER_S_MAX: Final = 20.0  # how long one call of the loader may take, including the first connection
LOOK_S_MAX: Final = 2.0  # the same, while a metric is read

log = structlog.get_logger()


def prepare_log(settings: Settings, identity: str, installation: Installation) -> None:
    """Create or check the streams on NATS. The catalog records them, so that no log is abandoned."""
    known = known_streams(installation)
    if settings.stream_url is None:
        if known:
            raise ForeignDataError(
                "the queued events of this installation are on NATS: "
                "set MAUVE_STREAM_URL to its servers again, or choose another installation"
            )
        return
    if has_local_log(settings.data):
        raise ForeignDataError(
            f"{settings.data} holds a local log and MAUVE_STREAM_URL is set: "
            "load and retire it with 'mauve move', or choose another --data"
        )
    from mauve.stores.log.nats.servers import StreamPlan, check_servers, prepare_streams
    from mauve.stores.log.nats.streams import STREAMS

    servers = check_servers(settings.stream_url, settings.stream_monitor_urls, all_of_them=not known)
    with open_load_ledger(settings) as ledger:
        loaded = {stream: number for stream, number in ledger.positions().items() if stream in STREAMS}
    plan = StreamPlan(identity, settings.backlog_bytes_max, known, loaded)
    ids = prepare_streams(settings.stream_url, servers, plan)
    if ids != known:
        installation.put(_STREAM_IDS, msgspec.json.encode(ids).decode())


def forget_streams(url: Secret, streams: Collection[int], installation: Installation) -> None:
    """Delete the remains of these streams on NATS: the next preparation creates new ones."""
    from mauve.stores.log.nats.servers import drop_streams

    drop_streams(url, streams)
    kept = {stream: id_ for stream, id_ in known_streams(installation).items() if stream not in streams}
    installation.put(_STREAM_IDS, msgspec.json.encode(kept).decode())


def known_streams(installation: Installation) -> dict[int, str]:
    """Return the id of each stream that this installation has written to."""
    fact = installation.get(_STREAM_IDS)
    return {} if fact is None else _stream_ids.decode(fact)


def losses(settings: Settings, identity: str, positions: Mapping[int, int]) -> list[str]:
    """Describe each stream on NATS that is lost. The others are still written and loaded."""
    if settings.stream_url is None:
        return []
    from mauve.stores.log.nats.servers import find_streams
    from mauve.stores.log.nats.streams import stream_name

    with closing(open_catalog_database(settings)) as database:
        known = known_streams(Catalog(database).installation)
    found = find_streams(settings.stream_url, identity, known, positions)
    return [f"the stream {stream_name(stream)} {each.loss}" for stream, each in found.items() if each.loss]


def check_log(settings: Settings) -> str:
    """Describe the location of the log; raise unless its servers are usable."""
    if settings.stream_url is None:
        return "in files"
    from mauve.stores.log.nats.servers import check_servers

    servers = check_servers(settings.stream_url, settings.stream_monitor_urls, all_of_them=False)
    return f"on {servers} NATS server{'s' if servers > 1 else ''}, which sync before they acknowledge"


def stream_bytes_max(settings: Settings) -> int:
    """Return the size above which a stream accepts no more: the next file or message must still fit.

    On NATS, the streams share the storage.
    """
    if settings.stream_url is None:
        return settings.backlog_bytes_max - settings.segment_bytes
    from mauve.stores.log.nats.messages import RECORD_BYTES_MAX
    from mauve.stores.log.nats.streams import STREAMS

    return settings.backlog_bytes_max // len(STREAMS) - RECORD_BYTES_MAX


async def open_log_writer(settings: Settings, stream: int) -> tuple[LogWriter, OwnStream | None]:
    """Open the log for a process; also return its exclusive stream, if there is one."""
    path = log_path(settings.data)
    if settings.stream_url is None:
        await asyncio.to_thread(_continue_lost_streams, settings, stream)
        own = SegmentLogWriter(
            path, stream, segment_bytes=settings.segment_bytes, budget_bytes=settings.backlog_bytes_max
        )
        return own, OwnStream(stream, own.last_number, partial(SegmentLogReader(path).records, stream))
    from mauve.stores.log.nats.log_writer import NatsLogWriter

    writer = NatsLogWriter(settings.stream_url, first=stream)
    await writer.open()
    return writer, None


def lost_streams(settings: Settings, positions: Mapping[int, int]) -> dict[int, int]:
    """Return the positions whose files end before them. Only workers have files."""
    if settings.stream_url is not None:
        return {}
    path = log_path(settings.data)
    return {
        stream: number
        for stream, number in positions.items()
        if stream <= WORKERS_MAX and ends_before(LOCAL_DISK, stream_directory(path, stream), number)
    }


def described_losses(losses_kept: Sequence[tuple[int, int]]) -> list[str]:
    """Return a sentence for each day on which log files were found missing."""
    by_day: dict[str, set[int]] = {}
    for stream, at in losses_kept:
        by_day.setdefault(datetime.fromtimestamp(at / 1000, UTC).date().isoformat(), set()).add(stream)
    return [
        f"the files of stream{'s' * (len(streams) > 1)} {', '.join(map(str, sorted(streams)))} were lost on {day}: "
        "events waiting there are gone"
        for day, streams in by_day.items()
    ]


def _continue_lost_streams(settings: Settings, stream: int) -> None:
    """Continue streams whose files were lost after the last loaded record: lower numbers would never be loaded.

    A worker checks its own stream; the core checks all, because some may no longer have a worker. Every stream gets a
    file, so that it is known to be complete while the ledger is down.
    """
    path = log_path(settings.data)
    is_empty = not list_segments(LOCAL_DISK, stream_directory(path, stream))
    with closing(open_ledger_database(settings)) as database:
        try:
            positions = LoadLedger(database).positions()
        except StoreUnavailableError:
            if is_empty:
                raise
            return
        own = positions.get(stream, 0)
        lost = lost_streams(settings, {stream: own} if stream else positions)
        if lost:
            log.error("log_lost", streams=sorted(lost), advice="new events count; see the ledger table dead_letters")
            now = SystemClock().now_ms()
            keep_dead_letters(database, [DeadLetter(*each, LOG_LOST, b"", now) for each in sorted(lost.items())])
    for each, number in (lost | ({stream: own} if is_empty else {})).items():
        continue_after(LOCAL_DISK, path, each, number)


def open_log_reader(settings: Settings, call_s_max: float = LOADER_S_MAX) -> LogReader:
    if settings.stream_url is None:
        return SegmentLogReader(log_path(settings.data))
    return _open_nats_reader(settings, settings.stream_url, call_s_max)


def has_local_log(data: Path) -> bool:
    return bool(list_streams(LOCAL_DISK, log_path(data)))


def open_log_maintenance(settings: Settings) -> LogMaintenance:
    def positions() -> dict[int, int]:
        with open_load_ledger(settings) as ledger:
            return ledger.positions()

    url = settings.stream_url
    if url is None:
        return SegmentLogMaintenance(log_path(settings.data), positions)
    from mauve.stores.log.nats.log_reader import NatsLogMaintenance

    return NatsLogMaintenance(lambda: _open_nats_reader(settings, url), positions)


def _open_nats_reader(settings: Settings, url: Secret, call_s_max: float = LOADER_S_MAX) -> "NatsLogReader":
    from mauve.stores.log.nats.log_reader import NatsLogReader

    with closing(open_catalog_database(settings)) as database:
        known = known_streams(Catalog(database).installation)
    keep = timedelta(hours=settings.stream_keep_hours)
    return NatsLogReader(url, known, keep=keep, call_s_max=call_s_max)
