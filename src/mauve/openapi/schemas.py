"""The schemas of the document, generated from the types that the planes decode and encode."""

from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any, Final

import msgspec

from mauve.control import bodies as control_bodies
from mauve.core.events import PAYMENT, Event
from mauve.core.money import currency_codes
from mauve.ingest.faults import MINOR_UNITS_MAX
from mauve.ingest.rules import Subscription
from mauve.metrics.registry import METRICS, EventCount, Metric, Users
from mauve.openapi import bodies
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
    types = (*_structs_of(control_bodies), Event, Subscription, *_structs_of(bodies))
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
