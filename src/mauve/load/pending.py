"""Whether everything that the log held at one moment is loaded. By position: the clocks of machines differ."""

from collections.abc import Mapping

from mauve.stores.ledger import LoadLedger
from mauve.stores.log import MIXED_STREAM, LogReader, StreamReader


def ends_of(ledger: LoadLedger, source: LogReader) -> dict[int, int]:
    """Return where each stream ends now: every record that was acknowledged before has a lower number, or this one."""
    return {stream: source.last_number(stream) for stream in source.streams()} | {
        MIXED_STREAM: ledger.last_event_number()
    }


def are_loaded(ends: Mapping[int, int], ledger: LoadLedger, streams: Mapping[int, StreamReader]) -> bool:
    """Return whether no record up to these ends waits. An end may be higher than the number of the last record."""
    positions = ledger.positions()
    for stream, end in ends.items():
        after = positions.get(stream, 0)
        if after >= end:
            continue
        if stream == MIXED_STREAM:
            waiting = any(record.number <= end for record in ledger.read_events(after, bytes_max=1)[:1])
        else:
            waiting = stream in streams and any(True for _ in streams[stream].records(after, end))
        if waiting:
            return False
    return True
