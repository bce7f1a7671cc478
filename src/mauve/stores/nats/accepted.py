"""The exchange of accepted counts on NATS: an entry for each process, replaced as a whole.

Entries expire unless their process is alive. The bucket is on disk: a single server forgets one that is in memory.
"""

import contextlib
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from mauve.core.accepted import AcceptedCounts, OrgPeriod, Subtotal
from mauve.core.secret import Secret
from mauve.stores import StoreUnavailableError
from mauve.stores.nats.bucket import BucketThread, Follower

BUCKET: Final = "MAUVE-ACCEPTED"
TTL_S: Final = 3 * 86_400.0
_SHARE_AGAIN_S: Final = 86_400.0
_LOAD_S_MAX: Final = 15.0
_READ_S_MAX: Final = 5.0
_SHARE_S_MAX: Final = 5.0

_Counts = list[tuple[int, list[tuple[str, str, list[Subtotal]]]]]  # by stream
_CountsByStream = dict[int, AcceptedCounts]

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(_Counts)
_EMPTY: Final = _encoder.encode([])


class NatsAcceptedCounts:
    """Used from one thread at a time.

    If NATS is down when it is opened, it shares under a new name: what the process shared before stays until it is
    loaded or expires.
    """

    def __init__(self, url: Secret, process: str, ticks: Callable[[], float] = time.monotonic) -> None:
        self._process = process
        self._ticks = ticks
        self._seen: dict[str, tuple[float, _CountsByStream]] = {}  # by process, with the time when it was read
        self._shared, self._shared_at = _EMPTY, ticks()
        self._thread = BucketThread(url, BUCKET, "accepted counts")
        self._follower = Follower(self._thread.bucket, ticks)
        self._restarts = 0
        try:
            self._thread.run(self._read(), _LOAD_S_MAX)
        except StoreUnavailableError:
            self._process = f"{process}-{secrets.token_hex(4)}"
        except BaseException:
            self.close()
            raise
        self._shared = _content_of(self.own())

    def share(self, accepted: Mapping[int, AcceptedCounts]) -> None:
        content = _content_of(accepted)
        may_expire = content != _EMPTY and self._ticks() - self._shared_at > _SHARE_AGAIN_S
        if content == self._shared and not may_expire:
            return
        self._thread.run(self._thread.bucket.put(self._process, content), _SHARE_S_MAX)
        self._shared, self._shared_at = content, self._ticks()

    def own(self) -> dict[int, AcceptedCounts]:
        self._read_if_possible()
        _, counts = self._seen.get(self._process, (0.0, {}))
        return {stream: accepted.copy() for stream, accepted in counts.items() if accepted}

    def others(self) -> list[tuple[int, AcceptedCounts]]:
        """Return what the others have shared; while NATS is away, what they had shared before."""
        self._read_if_possible()
        expired_at = self._ticks() - TTL_S
        self._seen = {process: seen for process, seen in self._seen.items() if seen[0] > expired_at}
        others = (counts for process, (_, counts) in self._seen.items() if process != self._process)
        return [pair for counts in others for pair in counts.items()]

    def close(self) -> None:
        self._thread.close()

    def _read_if_possible(self) -> None:
        with contextlib.suppress(StoreUnavailableError):
            self._thread.run(self._read(), _READ_S_MAX)

    async def _read(self) -> None:
        while entries := await self._follower.next_changes():
            self._seen |= {entry.key: (self._ticks(), _counts_from(entry.value)) for entry in entries}
        if self._follower.restarts != self._restarts:
            self._restarts = self._follower.restarts
            self._shared = _EMPTY  # The bucket has lost it.


def _content_of(accepted: Mapping[int, AcceptedCounts]) -> bytes:
    counts = [
        (stream, [(*org_period, subtotals) for org_period, subtotals in each])
        for stream, each in sorted(accepted.items())
        if each
    ]
    return _encoder.encode(counts)


def _counts_from(content: bytes) -> _CountsByStream:
    """Return the counts of an entry. A deleted or malformed one counts as empty."""
    try:
        return {
            stream: AcceptedCounts({OrgPeriod(org_id, period): subtotals for org_id, period, subtotals in counts})
            for stream, counts in _decoder.decode(content)
        }
    except msgspec.MsgspecError:
        return {}
