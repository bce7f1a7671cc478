"""Response bodies that the planes write without a type, as types, and the headers of responses.

Docstrings and `Meta` are the schemas' texts in the document.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from mauve.core.problems import unauthorized
from mauve.ingest.faults import NEEDS_SERVER_KEY
from mauve.openapi.operation import Schema
from mauve.query.answer_cache import Freshness
from mauve.stores.limits.read_meter import Throttle
from mauve.web.envelopes import data_reply
from mauve.web.messages import Reply

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


BODIES: Final = (
    AllowanceSpent,
    BatchRefused,
    ControlFault,
    ControlProblem,
    DataProblem,
    EventCapReached,
    Drain,
    Health,
    IngestResult,
    IngestSuspended,
    InsufficientScope,
    ItemError,
    Readiness,
    WebhookResult,
    WebhookSuspended,
)

_CHALLENGE: Final = data_reply(unauthorized()).headers["www-authenticate"]
_TEXT: Final = {"type": "string"}
_SECONDS: Final = {"type": "integer", "minimum": 0}


def _header(description: str, schema: Schema) -> Mapping[str, Any]:
    return {"description": description, "schema": schema}


_HEADERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "WWW-Authenticate": _header("The kind of credential required.", {"const": _CHALLENGE}),
    "Retry-After": _header("Seconds to wait before retrying.", {"type": "integer", "minimum": 1}),
    "x-service-throttle": _header(
        "Which limit refused the request. Branch on this header, not on the status.",
        {"enum": [throttle.value for throttle in Throttle]},
    ),
    "x-service-reset": _header(
        "When the allowance is renewed. Do not retry earlier.", {"type": "string", "format": "date-time"}
    ),
    "x-service-moved": _header(
        "How many accepted items have a time that was moved into the last 7 days and the next 5 minutes.",
        {"type": "integer", "minimum": 1},
    ),
    "x-service-moved-items": _header("The zero-based indexes of these items in the batch, such as `0, 2-5`.", _TEXT),
    "x-service-hint": _header(
        "What is probably wrong, for people to read: with an accepted item, with the credential of a 401 on the ingest "
        "plane, or which query parameters were ignored because they are unknown.",
        _TEXT,
    ),
    "x-cache": _header(
        "Where the result comes from. `stale` is the last known result, served because a fresh read failed.",
        {"enum": [freshness.value for freshness in Freshness]},
    ),
    "x-cache-age": _header("Age of a stale result, in seconds.", _SECONDS),
    "x-service-truncated": _header(
        "The number of rows returned, most frequent first. Further rows exist but are not included.",
        {"type": "integer", "minimum": 1},
    ),
    "Allow": _header("The method this path accepts.", _TEXT),
    "Cache-Control": _header("How long the response may be cached.", _TEXT),
    "ETag": _header("Identifies this version; send it back as `If-None-Match`.", _TEXT),
    "Access-Control-Allow-Origin": _header("Pages of any origin may read the response.", {"const": "*"}),
    "Access-Control-Expose-Headers": _header("Further headers that a page may read.", _TEXT),
    "Access-Control-Allow-Methods": _header("Methods that a page may use.", _TEXT),
    "Access-Control-Allow-Headers": _header("Headers that a page may send.", _TEXT),
    "Access-Control-Max-Age": _header("Seconds for which a browser may cache this permission.", _SECONDS),
    "Content-Security-Policy": _header("Blocks scripts and external resources.", _TEXT),
    "Referrer-Policy": _header("Links send no referrer.", _TEXT),
    "X-Content-Type-Options": _header("Browsers must not guess the content type.", {"const": "nosniff"}),
}
_SPELLINGS: Final = {name.lower(): name for name in _HEADERS}


def headers_of(replies: Sequence[Reply]) -> dict[str, Any]:
    """Return the headers of replies with one status; a header is required if every reply carries it."""
    carried = [reply.headers.keys() - {"content-type"} for reply in replies]  # OpenAPI has another place for the type
    always = frozenset.intersection(*map(frozenset, carried))
    names = dict.fromkeys(name for reply in replies for name in reply.headers if name != "content-type")
    return {_SPELLINGS[name]: {**_HEADERS[_SPELLINGS[name]], "required": name in always} for name in names}
