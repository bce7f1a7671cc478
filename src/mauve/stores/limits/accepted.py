"""Usage: the events that the ledger has counted, and those accepted by processes but not counted yet.

Together they give the events of an organization in a billing period, even while the loader is down.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import msgspec

from mauve.core.accepted import AcceptedCounts, OrgPeriod, Subtotal
from mauve.stores import StoreUnavailableError


class PendingEvents(NamedTuple):
    """A record of the mixed stream whose events are accepted but not loaded."""

    number: int
    org_period: OrgPeriod
    events: int


class CountedUsage(NamedTuple):
    """The state of the ledger at one point in time."""

    period: str
    events: dict[str, int]  # by organization, in the period
    positions: dict[int, int]  # stream → number of the last record included in these events
    mixed: Sequence[PendingEvents]
    mixed_through: int  # the last record of the mixed stream


class AcceptedExchange(Protocol):
    """Where processes share what they have accepted. It depends on no other process.

    - Others see what was shared completely, at their next read, or on a server soon after; it replaces what was shared
      before.
    - It survives the process that shared it. A power cut may lose it: the log holds the same information.
    - Opening it reads what the predecessor shared. Later, while a server is down, `others` returns what it knows.
    - Counts are kept by the stream of the log that holds the events; processes may share a stream.
    """

    def share(self, accepted: Mapping[int, AcceptedCounts]) -> None: ...

    def own(self) -> dict[int, AcceptedCounts]:
        """Return what this process last shared, or its predecessor of the same name."""
        ...

    def others(self) -> list[tuple[int, AcceptedCounts]]:
        """Return each stream of each other process, with what it last shared."""
        ...


_NAME: Final = re.compile(r"[0-9]{3}")

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(list[tuple[int, list[tuple[str, str, list[Subtotal]]]]])  # by stream


def encoded(accepted: Mapping[int, AcceptedCounts]) -> bytes:
    counts = [
        (stream, [(*org_period, subtotals) for org_period, subtotals in each])
        for stream, each in sorted(accepted.items())
        if each
    ]
    return _encoder.encode(counts)


@lru_cache(maxsize=64)  # Counts are usually unchanged since the last look.
def decoded(content: bytes) -> dict[int, AcceptedCounts]:
    """Return the counts by stream, which must not be changed. Torn or unknown content counts as empty."""
    try:
        return {
            stream: AcceptedCounts({OrgPeriod(org_id, period): subtotals for org_id, period, subtotals in counts})
            for stream, counts in _decoder.decode(content)
        }
    except msgspec.MsgspecError:
        return {}


class FileAcceptedCounts:
    """The exchange on one machine: a small file for each process, replaced as a whole. Used from one thread at a time.

    Files instead of a shared database: a process stopped while holding a lock would block the others. They are not
    synced, because the log holds the same information.
    """

    def __init__(self, folder: Path, process: int) -> None:
        self._folder = folder
        self._own = folder / f"{process:03d}"
        self._shared: bytes | None = None

    def share(self, accepted: Mapping[int, AcceptedCounts]) -> None:
        content = encoded(accepted)
        if content == self._shared:
            return
        try:
            self._write(content)
        except OSError as error:
            raise StoreUnavailableError(str(error)) from error
        self._shared = content

    def _write(self, content: bytes) -> None:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        draft = self._own.with_suffix(".new")
        draft.touch(mode=0o600)
        draft.write_bytes(content)
        draft.rename(self._own)

    def own(self) -> dict[int, AcceptedCounts]:
        return {stream: accepted.copy() for stream, accepted in _counts_in(self._own).items()}

    def others(self) -> list[tuple[int, AcceptedCounts]]:
        try:
            paths = [path for path in self._folder.iterdir() if _NAME.fullmatch(path.name) and path != self._own]
        except FileNotFoundError:
            return []
        return [pair for path in paths for pair in _counts_in(path).items()]


def _counts_in(path: Path) -> dict[int, AcceptedCounts]:
    try:
        return decoded(path.read_bytes())
    except OSError:
        return {}
