"""The log in files of one machine whose positions are in a shared ledger: another machine's are not its own."""

from collections.abc import Callable, Mapping

from mauve.stores.log import LogReader, LogRecord, Lost, Reach


class ClaimedLogReader:
    """Claims the positions for this machine before the first record is returned.

    `claim` and `check` raise if they belong to another machine. Records are then neither returned nor trimmed: those
    positions say nothing about them.
    """

    def __init__(self, log: LogReader, claim: Callable[[], None], check: Callable[[], None]) -> None:
        self._log = log
        self._claim = claim
        self._check = check
        self._is_claimed = False
        self._is_checked = False

    def streams(self) -> list[int]:
        return self._log.streams()

    def read(self, stream: int, after: int, bytes_max: int) -> list[LogRecord]:
        records = self._log.read(stream, after, bytes_max)
        if records and not self._is_claimed:
            self._claim()
            self._is_claimed = self._is_checked = True
        elif after and not self._is_checked:
            self._check()  # The position may be another machine's, and hide our records.
            self._is_checked = True
        return records

    def last_number(self, stream: int) -> int:
        return self._log.last_number(stream)

    def trim(self, stream: int, through: int) -> None:
        if self._is_checked:
            self._log.trim(stream, through)

    def backlog_bytes(self, positions: Mapping[int, int]) -> int:
        return self._log.backlog_bytes(positions)

    def stored_bytes(self) -> int:
        return self._log.stored_bytes()

    def largest_stream_bytes(self) -> int:
        return self._log.largest_stream_bytes()

    def quarantined(self) -> int:
        return self._log.quarantined()

    def lost_after(self, positions: Mapping[int, int]) -> dict[int, Lost]:
        return self._log.lost_after(positions)

    def lost_streams(self) -> frozenset[int]:
        return self._log.lost_streams()

    def reach(self) -> Reach:
        return self._log.reach()

    def close(self) -> None:
        self._log.close()
