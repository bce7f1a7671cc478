"""The options of a client, and the queues they define."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mauve_metrics._outbox import Outbox
from mauve_metrics._spool import Spool

EVENTS = "/v1/events"
OBJECTS = "/v1/objects"
_SPOOL_EIGHTHS = {EVENTS: 7, OBJECTS: 1}  # Events that fill the spool leave room for subscriptions.


@dataclass(frozen=True)
class Options:
    """How to queue and deliver."""

    key_name: str  # for log lines: not the key
    max_queue: int
    flush_interval: float
    batch_size: int
    spool: Path | None
    spool_name: str  # of this key's part of the spool
    spool_max_bytes: int
    timeout: float
    compress: bool


def new_outboxes(options: Options) -> dict[str, Outbox]:
    """Return an empty queue for each endpoint."""
    return {
        path: Outbox(path, options.max_queue, options.batch_size, _spool(options, path)) for path in (EVENTS, OBJECTS)
    }


def _spool(options: Options, path: str) -> Spool | None:
    prefix = f"{options.spool_name}-{path.rpartition('/')[2]}"
    bytes_max = options.spool_max_bytes * _SPOOL_EIGHTHS[path] // 8
    return None if options.spool is None else Spool(options.spool, prefix, bytes_max)
