"""The answers that the planes write without a type, as types."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Count = Annotated[int, Meta(ge=0)]


class ItemError(msgspec.Struct):
    index: Count
    reason: str


class IngestResult(msgspec.Struct):
    ok: bool
    accepted: Count
    rejected: Count
    errors: Annotated[list[ItemError], Meta(min_length=1)] | msgspec.UnsetType = msgspec.UNSET


class WebhookResult(msgspec.Struct):
    ok: bool
    rows: Count
    truncated: list[str] | msgspec.UnsetType = msgspec.UNSET


class WebhookSuspended(msgspec.Struct):
    ok: bool
    rows: Literal[0]
    suspended: bool
    code: Literal["ingest_suspended"]


class DataProblem(msgspec.Struct):
    ok: bool
    error: str


class BatchRefused(DataProblem):
    errors: Annotated[list[ItemError], Meta(min_length=1)]


class IngestSuspended(DataProblem):
    code: Literal["ingest_suspended"]


class InsufficientScope(DataProblem):
    code: Literal["insufficient_scope"]


class EventCapReached(DataProblem):
    code: Literal["event_cap_reached"]
    cap_events: Count
    resets_at: int


class AllowanceSpent(DataProblem):
    reason: Literal["allowance"]
    scope: Literal["queries", "raw_scans"]
    reset_at: str


class ControlFault(msgspec.Struct):
    code: Literal["invalid_body", "unauthorized", "insufficient_scope", "not_found", "upstream_unavailable"]
    message: str


class ControlProblem(msgspec.Struct):
    error: ControlFault


class Health(msgspec.Struct):
    ok: bool


class Readiness(msgspec.Struct):
    ok: bool
    engines: dict[str, Literal["ok", "unreachable"]]
    backlog_bytes: Count | msgspec.UnsetType = msgspec.UNSET
    load_lag_ms: Count | msgspec.UnsetType = msgspec.UNSET


FALSE_OK = (DataProblem, BatchRefused, IngestSuspended, InsufficientScope, EventCapReached, AllowanceSpent)
TRUE_OK = (IngestResult, WebhookResult, WebhookSuspended, Health)
OTHERS = (ItemError, ControlFault, ControlProblem, Readiness)
