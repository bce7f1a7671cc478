"""Delete loaded records from the streams without waiting for a trim."""

from collections.abc import Callable, Mapping
from contextlib import closing

from mauve.stores.log.nats.log_reader import NatsLogReader


class NatsLogMaintenance:
    def __init__(self, open_reader: Callable[[], NatsLogReader], positions: Callable[[], Mapping[int, int]]) -> None:
        self._open_reader = open_reader
        self._positions = positions

    def erase_damaged(self, text: str) -> int:
        """Return 0: damaged messages exist only in the stream and are deleted with their neighbors."""
        del text
        return 0

    def blank_loaded(self) -> bool:
        positions = self._positions()
        with closing(self._open_reader()) as reader:
            for stream in reader.streams():
                reader.trim_now(stream, positions.get(stream, 0))
        return True
