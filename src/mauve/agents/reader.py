"""What tools read from: the service's own API, whether it is asked over HTTP or in process."""

from collections.abc import Callable
from datetime import date
from typing import Final, NamedTuple, Protocol

import msgspec

from mauve.agents.allowance import Allowance
from mauve.metrics.registry import METRICS

_ERROR_CHARACTERS_MAX: Final = 400

Row = dict[str, str | int]
Reserve = Callable[[int], None]


class Query(NamedTuple):
    """One `GET /v1/metrics/{metric}`."""

    project: str
    metric: str
    date_from: date | None = None
    date_to: date | None = None
    name: str | None = None

    @property
    def is_raw_scan(self) -> bool:
        return METRICS[self.metric].is_raw_scan


class Reading(NamedTuple):
    """One answer."""

    date_from: date
    date_to: date
    rows: list[Row]
    cache: str  # hit, miss, uncached or stale
    age_s: int | None  # None: not said, as for a hit
    cut_at: int | None  # the number of rows, if the service left some out

    @property
    def is_spent(self) -> bool:
        """Return whether the read counted against the allowance."""
        return self.cache != "hit"


class ListedApp(msgspec.Struct, frozen=True):
    """The fields of an app that agents see."""

    public_id: str
    name: str
    type: str
    created_at: float
    first_event_at: int | None


class RefusedError(Exception):
    """The service did not answer the question. The message says what to do, and is cut where it repeats long input."""

    def __init__(
        self, message: str, *, stop_until: str | None = None, retry_after_s: int | None = None, spent: int = 0
    ) -> None:
        super().__init__(message[:_ERROR_CHARACTERS_MAX])
        self.stop_until = stop_until  # no read of this kind is served before
        self.retry_after_s = retry_after_s
        self.spent = spent  # queries that it may have cost

    @property
    def facts(self) -> dict[str, object]:
        """Return the refusal as an agent sees it."""
        found = {
            "error": str(self),
            "stop_until": self.stop_until,
            "retry_after_s": self.retry_after_s,
            "spent_max": self.spent or None,
        }
        return {name: value for name, value in found.items() if value is not None}


class Reader(Protocol):
    """Reads with one control token.

    - Each method but `reserve` is one request, bounded in time and size, and raises `RefusedError` if it is refused.
    - Only `metric` spends anything, and only if no cache answers.
    """

    def reserve(self, reads: int) -> None:
        """Raise `RefusedError` if this number of `metric` calls is over the limit. Cached answers take time, too."""
        ...

    async def allowance(self) -> Allowance: ...

    async def apps(self) -> list[ListedApp]: ...

    async def metric(self, query: Query) -> Reading: ...
