"""Two logs read as one: that of NATS, and what an installation wrote to files before it moved there."""

from collections.abc import Mapping

from mauve.stores.log import LogReader, LogRecord, Lost, Reach


class CombinedLogReader:
    """Reads the streams of both. Their numbers do not overlap."""

    def __init__(self, current: LogReader, former: LogReader) -> None:
        self._current = current
        self._former = former
        self._current_streams = frozenset(current.streams())

    def streams(self) -> list[int]:
        return [*self._former.streams(), *self._current.streams()]

    def read(self, stream: int, after: int, bytes_max: int) -> list[LogRecord]:
        return self._log_of(stream).read(stream, after, bytes_max)

    def last_number(self, stream: int) -> int:
        return self._log_of(stream).last_number(stream)

    def trim(self, stream: int, through: int) -> None:
        self._log_of(stream).trim(stream, through)

    def backlog_bytes(self, positions: Mapping[int, int]) -> int:
        return self._current.backlog_bytes(positions) + self._former.backlog_bytes(positions)

    def stored_bytes(self) -> int:
        return self._current.stored_bytes() + self._former.stored_bytes()

    def largest_stream_bytes(self) -> int:
        return self._current.largest_stream_bytes()  # Nothing is written to the former any more.

    def quarantined(self) -> int:
        return self._current.quarantined() + self._former.quarantined()

    def lost_after(self, positions: Mapping[int, int]) -> dict[int, Lost]:
        return self._current.lost_after(positions) | self._former.lost_after(positions)

    def lost_streams(self) -> frozenset[int]:
        return self._current.lost_streams() | self._former.lost_streams()

    def reach(self) -> Reach:
        return self._current.reach()

    def close(self) -> None:
        self._current.close()
        self._former.close()

    def _log_of(self, stream: int) -> LogReader:
        return self._current if stream in self._current_streams else self._former
