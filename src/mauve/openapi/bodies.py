"""Types for response bodies that the planes encode without one.

Docstrings and `Meta` are the schemas' texts in the document.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from mauve.ingest.faults import NEEDS_SERVER_KEY

_True = Annotated[bool, Meta(extra_json_schema={"const": True})]
_False = Annotated[bool, Meta(extra_json_schema={"const": False})]
_Count = Annotated[int, Meta(ge=0)]


class ItemError(msgspec.Struct):
    """Why one item of a batch was rejected."""

    index: Annotated[int, Meta(ge=0, description="The item's position in the batch, from zero.")]
    reason: Annotated[
        str, Meta(description="Which field is wrong, and what it must be.", examples=[NEEDS_SERVER_KEY.text])
    ]


_ItemErrors = Annotated[list[ItemError], Meta(min_length=1, description="The rejected items, and why.")]


class IngestResult(msgspec.Struct):
    """The outcome of a batch."""

    ok: _True
    accepted: Annotated[int, Meta(ge=0, description="Items stored durably. Duplicates count as accepted.")]
    rejected: Annotated[int, Meta(ge=0, description="Items rejected.")]
    errors: _ItemErrors | UnsetType = UNSET


class WebhookResult(msgspec.Struct):
    """A delivery that was stored, or whose type is not consumed."""

    ok: _True
    rows: Annotated[int, Meta(ge=0, description="Payments and subscriptions made from the delivery.")]
    truncated: (
        Annotated[list[str], Meta(description="Fields whose text was shortened; the payment is kept.")] | UnsetType
    ) = UNSET


class WebhookSuspended(msgspec.Struct):
    """A delivery that was verified and acknowledged but not stored."""

    ok: _True
    rows: Literal[0]
    suspended: _True
    code: Literal["ingest_suspended"]


class DataProblem(msgspec.Struct):
    """Why the ingest or query plane refuses a request."""

    ok: _False
    error: Annotated[str, Meta(description="What to do about it. Never match on this text.")]


class BatchRefused(DataProblem):
    """Every item of the batch is invalid."""

    errors: _ItemErrors


class IngestSuspended(DataProblem):
    """The organization is suspended. Retrying does not help."""

    code: Literal["ingest_suspended"]


class InsufficientScope(DataProblem):
    """The token lacks a scope."""

    code: Literal["insufficient_scope"]


class EventCapReached(DataProblem):
    """The organization's own event cap is reached. Nothing was stored or billed. Match on `code`."""

    code: Literal["event_cap_reached"]
    cap_events: Annotated[int, Meta(ge=0, description="The cap, in events per billing period.")]
    resets_at: Annotated[int, Meta(description="Epoch milliseconds at which the next billing period begins.")]


class AllowanceSpent(DataProblem):
    """The allowance of control tokens for this billing period is spent."""

    reason: Literal["allowance"]
    scope: Annotated[Literal["queries", "raw_scans"], Meta(description="Which allowance: all queries, or raw scans.")]
    reset_at: Annotated[
        str, Meta(description="When the allowance is renewed.", extra_json_schema={"format": "date-time"})
    ]


class ControlFault(msgspec.Struct):
    """Match on `code`, never on the message."""

    code: Literal["invalid_body", "unauthorized", "insufficient_scope", "not_found", "upstream_unavailable"]
    message: Annotated[str, Meta(description="What to do about it.")]


class ControlProblem(msgspec.Struct):
    """Why the control plane refuses a request."""

    error: ControlFault


class Drain(msgspec.Struct):
    """Whether the process takes requests."""

    ok: bool
    reason: Annotated[str, Meta(description="Present if the process is about to stop.")] | UnsetType = UNSET


class Health(msgspec.Struct):
    """The process is up."""

    ok: _True


class Readiness(msgspec.Struct):
    """Whether every engine can be reached."""

    ok: Annotated[bool, Meta(description="True if all engines can be reached and the process is not about to stop.")]
    engines: Annotated[dict[str, Literal["ok", "unreachable"]], Meta(description="The state of each engine, by name.")]
    backlog_bytes: Annotated[_Count, Meta(description="Bytes waiting to be loaded. Main port only.")] | UnsetType = (
        UNSET
    )
    load_lag_ms: Annotated[_Count, Meta(description="How far loading lags. Main port only.")] | UnsetType = UNSET
    reason: Annotated[str, Meta(description="Present if the process is about to stop.")] | UnsetType = UNSET
