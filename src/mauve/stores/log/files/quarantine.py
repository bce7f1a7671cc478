"""Copies of damaged log bytes, kept for inspection. Limited in number and size."""

import os
from pathlib import Path
from typing import Final

import structlog

from mauve.stores.disk import Disk, write_all
from mauve.stores.log.files.segments import Segment

FILES_MAX: Final = 100
DAMAGE_BYTES_MAX: Final = 4 * 2**20
QUARANTINE_FOLDER: Final = "quarantine"

log = structlog.get_logger()


class Quarantine:
    """Reports each damaged location once, even if it is read repeatedly."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._reported: dict[Path, set[tuple[Segment, int]]] = {}
        self._records = 0

    @property
    def records(self) -> int:
        return self._records

    def report(self, directory: Path, segment: Segment, offset: int, damaged: bytes, records: int) -> None:
        reported = self._reported.setdefault(directory, set())
        if (segment, offset) in reported:
            return
        reported.add((segment, offset))
        self._records += records
        kept_as = self._keep(directory / QUARANTINE_FOLDER, f"{segment.first:014d}-{offset:010d}.damaged", damaged)
        log.error(
            "log_record_damaged",
            stream=int(directory.name),
            segment=segment.name,
            offset=offset,
            records=records,
            kept_as=kept_as,
        )

    def discard(self, directory: Path, segments: list[Segment]) -> None:
        """Drop the reports about segments that no longer exist."""
        reported = self._reported.get(directory, set())
        self._reported[directory] = {location for location in reported if location[0] not in segments}

    def _keep(self, folder: Path, name: str, damaged: bytes) -> str | None:
        try:
            self._disk.make_directory(folder)
            names = self._disk.names(folder)
            if name not in names and len(names) >= FILES_MAX:
                return None
            descriptor = self._disk.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            try:
                write_all(self._disk, descriptor, [damaged], 0)
                self._disk.sync(descriptor)
            finally:
                self._disk.close(descriptor)
        except OSError:
            return None  # The copy is optional: the stream continues without it.
        return name
