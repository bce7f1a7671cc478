"""Read all streams of the log and return their records in order of arrival.

Which of two events with the same id counts must not depend on the stream it was written to. A record is therefore
returned only once every stream has been read up to its time of arrival. Streams share the read budget, so a busy one
does not delay the others.
"""

from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Final, NamedTuple

from mauve.core.batch import arrival_of, received_at_of
from mauve.core.clock import CLOCK_SLACK_MS, Clock
from mauve.load.rows import Records
from mauve.stores.log import RECORD_NUMBER_MAX, LogRecord

ReadStream = Callable[[int, int, int], list[LogRecord]]  # stream, after, bytes_max

_SLACK_US: Final = CLOCK_SLACK_MS * 1000
# The most that one step may hold of a stream.
STEP_BYTES_MAX: Final = 32 * 1024 * 1024


class Arrival(NamedTuple):
    """A record and its time of arrival. Within a stream, times never decrease, so records stay in numeric order."""

    at: int  # epoch us
    stream: int
    record: LogRecord


class ArrivalOrder:
    """Used by one thread at a time."""

    def __init__(
        self, list_streams: Callable[[], list[int]], read_stream: ReadStream, clock: Clock, bytes_max: int
    ) -> None:
        self._list_streams = list_streams
        self._read_stream = read_stream
        self._clock = clock
        self._bytes_max = bytes_max
        self._waiting: dict[int, list[Arrival]] = {}  # read and not yet returned
        self._sizes: dict[int, int] = {}  # of those, in bytes
        self._turn = 0

    def reset(self) -> None:
        """Drop records that were read but not returned; they will be read again."""
        self._waiting.clear()
        self._sizes.clear()

    def take(self, positions: Mapping[int, int]) -> tuple[Records, bool]:
        """Return the records after the positions, up to the latest time that every stream has been read to.

        Also return whether the log held nothing more when reading began.
        """
        began_at = self._clock.now_us()  # before streams are listed: a stream created later holds nothing older
        cut = self._read_on(positions)
        # A time far in the future means that the clock was set back; do not wait for it.
        later = range(began_at + 1, self._clock.now_us() + _SLACK_US + 1)
        read_up_to = min((self._waiting[stream][-1].at for stream in cut), default=None)
        taken = [
            arrival
            for stream, waiting in self._waiting.items()
            for arrival in _timed_alone(self.take_until(stream, waiting, later, read_up_to))
        ]
        return by_arrival(taken), not cut

    def take_range(self, before: Mapping[int, int], last_numbers: Mapping[int, int]) -> Records:
        """Return exactly the records of a range, in the order in which any loader gets them."""
        found = [self._through(stream, [], before[stream], number_max=last) for stream, last in last_numbers.items()]
        return by_arrival([each for arrivals in found for each in arrivals])

    def take_unfinished(self, positions: Mapping[int, int], last_numbers: Mapping[int, int]) -> Records:
        """Return the records up to the given numbers, plus at most one step of others that arrived no later.

        This reconstructs the range of rows stored without an intent: a commit stored some rows and refused others, so
        the range was halved.
        """
        unfinished = {
            stream: self._through(stream, [], positions.get(stream, 0), number_max=last)
            for stream, last in last_numbers.items()
        }
        # A time far in the future comes from a wrong clock: treat every record as earlier.
        credible = self._clock.now_us() + _SLACK_US
        latest = max((each.at for found in unfinished.values() for each in found if each.at <= credible), default=0)
        room = self._bytes_max
        for stream in self._list_streams() if latest else ():
            found = unfinished.setdefault(stream, [])
            known = len(found)
            self._through(stream, found, positions.get(stream, 0), at_max=latest, bytes_max=room)
            room -= _size(found[known:])
            if room <= 0:
                break
        return by_arrival([each for found in unfinished.values() for each in found])

    def received_from(self, positions: Mapping[int, int]) -> int | None:
        """Return the earliest receipt time (ms) in an unfinished step; None if no records are waiting.

        It may not be a stream's first record, because clocks can be set back.
        """
        return min(
            (
                moment
                for stream in self._list_streams()
                for each in self._through(stream, [], positions.get(stream, 0), bytes_max=STEP_BYTES_MAX)
                if (moment := received_at_of(each.record.payload)) is not None
            ),
            default=None,
        )

    def waiting_numbers(self) -> dict[int, int]:
        """Return the last record of each stream that was read but not yet returned."""
        return {stream: waiting[-1].record.number for stream, waiting in self._waiting.items() if waiting}

    def _read_on(self, positions: Mapping[int, int]) -> list[int]:
        """Read each stream's share, then spend the rest on streams with more; return the streams with records left."""
        streams = self._list_streams()
        self._turn = (self._turn + 1) % max(len(streams), 1)
        streams = streams[self._turn :] + streams[: self._turn]
        room = self._bytes_max - sum(self._sizes.values())
        share = self._bytes_max // max(len(streams), 1)
        unread = streams
        for allowed in (share, self._bytes_max):
            cut = []
            for stream in unread:
                wanted = min(room, allowed - self._sizes.get(stream, 0))
                size, is_at_end = self._read_some(stream, positions.get(stream, 0), wanted)
                room -= size
                self._sizes[stream] = self._sizes.get(stream, 0) + size
                if not is_at_end:
                    cut.append(stream)
            unread = cut
        return unread

    def _read_some(self, stream: int, position: int, bytes_max: int) -> tuple[int, bool]:
        """Read a stream up to a size or to its end; return the size, and whether the end was reached."""
        waiting = self._waiting.setdefault(stream, [])
        size = 0
        while not waiting or size < bytes_max:
            read = self._read_stream(
                stream, waiting[-1].record.number if waiting else position, max(bytes_max - size, 1)
            )
            if not read:
                return size, True
            waiting += _arrivals(stream, read, waiting[-1].at if waiting else 0)
            size += sum(len(record.payload) for record in read)
        return size, False

    def take_until(self, stream: int, waiting: list[Arrival], later: range, read_up_to: int | None) -> list[Arrival]:
        """Take the records from the front that arrived within the limits."""
        count = 0
        for arrival in waiting:
            if arrival.at in later or (read_up_to is not None and arrival.at > read_up_to):
                break
            count += 1
        self._waiting[stream], taken = waiting[count:], waiting[:count]
        self._sizes[stream] -= _size(taken)
        return taken

    def _through(
        self,
        stream: int,
        found: list[Arrival],
        position: int,
        *,
        number_max: int = RECORD_NUMBER_MAX,
        at_max: float = inf,
        bytes_max: float = inf,
    ) -> list[Arrival]:
        """Append the records that follow those found, up to a number, a time or a size."""
        size = 0
        while size < bytes_max:
            after = found[-1].record.number if found else position
            arrivals = _arrivals(
                stream, self._read_stream(stream, after, self._bytes_max), found[-1].at if found else 0
            )
            within = [each for each in arrivals if each.record.number <= number_max and each.at <= at_max]
            found += within
            size += _size(within)
            if not within or len(within) < len(arrivals):
                break
        return found


def _arrivals(stream: int, records: Iterable[LogRecord], at: int) -> list[Arrival]:
    arrivals = []
    for record in records:
        at = max(at, arrival_of(record.payload))
        arrivals.append(Arrival(at, stream, record))
    return arrivals


def _timed_alone(arrivals: list[Arrival]) -> list[Arrival]:
    """Date a stream's records, ignoring earlier ones: the order within a range must depend only on the range."""
    if not arrivals or arrival_of(arrivals[0].record.payload) == arrivals[0].at:
        return arrivals
    return _arrivals(arrivals[0].stream, [each.record for each in arrivals], 0)


def in_order(records: Records) -> Records:
    """Return part of a range in the order it would have as a separate range."""
    by_stream: dict[int, list[LogRecord]] = {}
    for stream, record in records:
        by_stream.setdefault(stream, []).append(record)
    return by_arrival([each for stream, found in by_stream.items() for each in _arrivals(stream, found, 0)])


def by_arrival(arrivals: list[Arrival]) -> Records:
    arrivals.sort()  # By time, then stream, then number: a stream's records keep their order.
    return [(stream, record) for _, stream, record in arrivals]


def _size(arrivals: Iterable[Arrival]) -> int:
    return sum(len(each.record.payload) for each in arrivals)
