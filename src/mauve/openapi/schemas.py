"""The schemas of the document, generated from the types that the planes decode and encode.

Bodies that the planes encode without a type have one here. Docstrings and `Meta` are the texts of the schemas.
"""

import sys
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from mauve.control import bodies as control_bodies
from mauve.core.events import PAYMENT, Event
from mauve.core.money import currency_codes
from mauve.ingest.faults import MINOR_UNITS_MAX, NEEDS_SERVER_KEY
from mauve.ingest.rules import Subscription
from mauve.metrics.registry import METRICS, EventCount, Metric, Users
from mauve.openapi.examples import Schema, ref

_TEXT: Final = {"type": "string"}
_CURRENCY: Final = ref("Currency")
_DAY: Final = {**_TEXT, "format": "date", "examples": ["2026-11-14"]}
_COLUMNS: Final[Mapping[str, Schema]] = {"day": _DAY, "currency": _CURRENCY, "name": _TEXT}
_FIGURE: Final = {"type": "integer", "minimum": 0}
_PAYMENT_ID: Final = "Required. The same payment may be sent again; a different one with this id is rejected."
_PAYMENT_PROPS: Final[Schema] = {
    "type": "object",
    "description": "The money, and up to 98 other properties.",
    "properties": {
        "amount": {
            "type": "integer",
            "minimum": 0,
            "maximum": MINOR_UNITS_MAX,
            "description": "Minor units, such as cents. An integer; other values are rejected, never coerced.",
        },
        "currency": _CURRENCY,
        "earned": {
            "type": ["boolean", "null"],
            "default": True,
            "description": "False if processed for others: counts as volume, never as revenue.",
        },
    },
    "required": ["amount", "currency"],
    "additionalProperties": {"anyOf": [{**_TEXT, "maxLength": 1024}, {"type": ["number", "boolean", "null"]}]},
    "maxProperties": 100,
}


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


def schemas() -> dict[str, Schema]:
    """Return every schema by its name."""
    generated = _generated()
    changes, event, subscription = (generated[name] for name in ("AppChanges", "Event", "Subscription"))
    fields, currency = event["properties"], subscription["properties"]["currency"]
    return {
        **generated,
        "AppChanges": {**changes, "anyOf": [{"required": [name]} for name in changes["properties"]]},
        "Event": _with_fields(event, name={**fields["name"], "not": {"const": PAYMENT}}),
        "Payment": _payment(event),
        "PaymentProps": _PAYMENT_PROPS,
        "Subscription": _with_fields(subscription, currency={**_CURRENCY, "description": currency["description"]}),
        "Currency": {
            **_TEXT,
            "enum": sorted(currency_codes()),
            "description": "An ISO 4217 code in lowercase.",
            "examples": ["eur"],
        },
        **_metric_results(),
    }


def _generated() -> dict[str, Any]:
    own = [each for each in _structs_of(sys.modules[__name__]) if each.__module__ == __name__]
    types = (*_structs_of(control_bodies), Event, Subscription, *own)
    _, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    for schema in components.values():
        schema.pop("title")  # It repeats the name.
    return {name.removesuffix("Body"): schema for name, schema in components.items()}


def _structs_of(module: ModuleType) -> Iterator[type]:
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, msgspec.Struct):
            yield value


def _with_fields(schema: Schema, **fields: Schema) -> dict[str, Any]:
    return {**schema, "properties": {**schema["properties"], **fields}}


def _payment(event: Schema) -> Schema:
    """Return the schema of an event that the rules treat as a payment."""
    id_ = {**_TEXT, "minLength": 1, "maxLength": 256, "description": _PAYMENT_ID}
    payment = _with_fields(event, name={"const": PAYMENT}, id=id_, props=ref("PaymentProps"))
    description = "An event that moves money. The first payment with a given id always wins."
    return {**payment, "description": description, "required": ["name", "id", "props"]}


def _metric_results() -> dict[str, Schema]:
    names = {name: name.title().replace("_", "") + "Result" for name in METRICS}
    any_result = {
        "description": "The rows of a metric. Their columns depend on the metric.",
        "oneOf": [ref(name) for name in names.values()],
        "discriminator": {
            "propertyName": "metric",
            "mapping": {metric: ref(name)["$ref"] for metric, name in names.items()},
        },
    }
    return {"MetricResult": any_result, **{names[metric.name]: _result(metric) for metric in METRICS.values()}}


def _result(metric: Metric) -> Schema:
    row = {
        "type": "object",
        "properties": {column: _COLUMNS.get(column, _FIGURE) for column in metric.columns},
        "required": list(metric.columns),
    }
    always_one = {"minItems": 1, "maxItems": 1} if isinstance(metric.source, Users | EventCount) else {}
    fields = {
        "ok": {"type": "boolean", "const": True},
        "metric": {**_TEXT, "const": metric.name},
        "project": {**_TEXT, "description": "The project's public id."},
        "date_from": {**_DAY, "description": "First day (UTC), inclusive."},
        "date_to": {**_DAY, "description": "Last day (UTC), inclusive."},
        "data": {"type": "array", "items": row, **always_one},
    }
    return {
        "type": "object",
        "description": f"The rows of `{metric.name}`.",
        "properties": fields,
        "required": list(fields),
    }
