"""A segment log with small segments: write it, read it and find its files."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mauve.stores.log import LogReader, LogRecord
from mauve.stores.log.files.writer import SegmentLogWriter

SEGMENT_BYTES = 4096
BYTES_MAX = 2**30
LARGE = [bytes([number]) * 1000 for number in range(40)]  # four of them fill a segment


class Seconds:
    """A monotonic clock that stands still until it is advanced."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def a_writer(root: Path, stream: int = 0, **options: Any) -> SegmentLogWriter:
    return SegmentLogWriter(root, stream, **{"segment_bytes": SEGMENT_BYTES} | options)


def append_all(root: Path, payloads: Iterable[bytes], **options: Any) -> None:
    async def main() -> None:
        writer = a_writer(root, **options)
        for payload in payloads:
            await writer.append([payload])
        await writer.close()

    asyncio.run(main())


def read_all(reader: LogReader) -> list[bytes]:
    records: list[LogRecord] = []
    after = 0
    while batch := reader.read(0, after, BYTES_MAX):
        records += batch
        after = batch[-1].number
    return [record.payload for record in records]


def segment_paths(root: Path) -> list[Path]:
    return sorted((root / "000").glob("*.segment"))
