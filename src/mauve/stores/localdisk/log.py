"""The log on one machine: segment files, one directory for each writer process."""

from mauve.stores.localdisk.log_reader import SegmentLogReader
from mauve.stores.localdisk.log_writer import SegmentLogWriter

__all__ = ["SegmentLogReader", "SegmentLogWriter"]
