"""Limits on how often an organization may read."""

from typing import Final, assert_never

import structlog

from mauve.core.organization import Limits
from mauve.core.problems import Code, Problem
from mauve.stores import StoreUnavailableError
from mauve.stores.limits.read_meter import ReadCost, ReadLimits, ReadMeter, Throttle, Throttled
from mauve.stores.published import PublishedKey, PublishedOrganization, PublishedToken

_RATE_LIMITED: Final = "this organization has made all its reads of this minute: retry after"
_QUERIES_SPENT: Final = (
    "the queries of control tokens in this billing period are spent: do not retry before the reset, "
    "or ask the operator for more"
)
_RAW_SCANS_SPENT: Final = (
    "the reads of event_names, event_count and event_series by control tokens in this billing period are spent: "
    "other metrics are still served, these again after the reset"
)

log = structlog.get_logger()

Reader = PublishedKey | PublishedToken
"""The credential of a read."""


def check_reads(
    meter: ReadMeter,
    organization: PublishedOrganization | None,
    reader: Reader,
    now_ms: int,
    *,
    is_raw_scan: bool,
) -> None:
    """Count a read that no cache answers, or raise if the organization has reached a limit."""
    cost = cost_of(reader, is_raw_scan=is_raw_scan)
    refusal = meter.take(reader.org_id, cost, limits_of(organization), now_ms)
    if refusal is not None:
        raise problem_from(refusal)


class FailOpenMeter(ReadMeter):
    """Allows a read that the meter cannot count, and logs the first of several in a row."""

    _is_counting = True

    def take(self, org_id: str, cost: ReadCost, limits: ReadLimits, now_ms: int) -> Throttled | None:
        try:
            refusal = super().take(org_id, cost, limits, now_ms)
        except StoreUnavailableError as error:
            if self._is_counting:
                log.warning("reads_not_counted", reason=str(error), advice="reads continue without limits")
            self._is_counting = False
            return None
        self._is_counting = True
        return refusal


def cost_of(reader: Reader, *, is_raw_scan: bool) -> ReadCost:
    """Return what a read spends. The allowances are for agents: a server key spends nothing."""
    return ReadCost() if isinstance(reader, PublishedKey) else ReadCost(queries=1, raw_scans=int(is_raw_scan))


def limits_of(organization: PublishedOrganization | None) -> ReadLimits:
    found = organization or Limits()  # A key may be published a moment before its organization is.
    return ReadLimits(found.reads_per_minute, found.agent_queries, found.raw_scans)


def problem_from(refusal: Throttled) -> Problem:
    match refusal.throttle:
        case Throttle.RATE_LIMIT:
            wait_s = seconds_until(refusal.lifts_at, refusal.at)
            return Problem(Code.RATE_LIMITED, f"{_RATE_LIMITED} {wait_s} s", retry_after_s=wait_s)
        case Throttle.QUERIES:
            return Problem(Code.QUERIES_SPENT, _QUERIES_SPENT, reset_at=refusal.lifts_at)
        case Throttle.RAW_SCANS:
            return Problem(Code.RAW_SCANS_SPENT, _RAW_SCANS_SPENT, reset_at=refusal.lifts_at)
        case _:
            assert_never(refusal.throttle)


def seconds_until(moment_ms: int, now_ms: int) -> int:
    """Return whole seconds, rounded up and at least 1, so that a client that waits so long is not too early."""
    return max(1, -((now_ms - moment_ms) // 1000))
