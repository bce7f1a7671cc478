"""The schemas of the document, generated from the types that the planes decode and encode."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from mauve.control import bodies
from mauve.core.events import PAYMENT, Event
from mauve.core.money import currency_codes
from mauve.ingest.faults import MINOR_UNITS_MAX
from mauve.ingest.rules import Subscription
from mauve.metrics.registry import METRICS, Metric
from mauve.metrics.sources import EventCount, Users
from mauve.openapi import responses
from mauve.openapi.operation import Schema, ref

_TYPES: Final = {
    "NewApp": bodies.NewAppBody,
    "AppChanges": bodies.AppChangesBody,
    "NewKey": bodies.NewKeyBody,
    "WebhookSecret": bodies.WebhookSecretBody,
    "App": bodies.AppBody,
    "CreatedApp": bodies.CreatedAppBody,
    "AppKey": bodies.AppKeyBody,
    "MintedKey": bodies.MintedKeyBody,
    "Event": Event,
    "Subscription": Subscription,
    **{type_.__name__: type_ for type_ in responses.BODIES},
}
_PUBLIC_NAMES: Final = {type_.__name__: name for name, type_ in _TYPES.items()}
_COLUMNS: Final[Mapping[str, Schema]] = {
    "day": {"type": "string", "format": "date", "examples": ["2026-11-14"]},
    "currency": ref("Currency"),
    "name": {"type": "string"},
}
_FIGURE: Final = {"type": "integer", "minimum": 0}


def schemas() -> dict[str, Schema]:
    """Return every schema by its name."""
    generated = _generated()
    return {
        **generated,
        "AppChanges": _with_any_field(generated["AppChanges"]),
        "Event": _event(generated["Event"]),
        "Payment": _payment(generated["Event"]),
        "PaymentProps": _payment_props(),
        "Subscription": _subscription(generated["Subscription"]),
        "Currency": _currency(),
        **_metric_results(),
    }


def result_name(metric: Metric) -> str:
    return "".join(part.capitalize() for part in metric.name.split("_")) + "Result"


def _generated() -> dict[str, Any]:
    _, components = msgspec.json.schema_components(_TYPES.values(), ref_template="#/components/schemas/{name}")
    return {_PUBLIC_NAMES.get(name, name): _renamed(schema) for name, schema in components.items()}


def _renamed(schema: Any) -> Any:  # noqa: ANN401 - any part of a JSON document
    """Use the public name of each type, and drop titles, which would repeat it."""
    match schema:
        case {"$ref": str(target), **others}:
            folder, _, name = target.rpartition("/")
            return {"$ref": f"{folder}/{_PUBLIC_NAMES.get(name, name)}", **others}
        case dict():
            return {key: _renamed(value) for key, value in schema.items() if key != "title"}
        case list():
            return [_renamed(part) for part in schema]
        case _:
            return schema


def _with_fields(schema: Schema, **fields: Schema) -> dict[str, Any]:
    return {**schema, "properties": {**schema["properties"], **fields}}


def _with_any_field(schema: Schema) -> Schema:
    return {**schema, "anyOf": [{"required": [name]} for name in schema["properties"]]}


def _event(schema: Schema) -> Schema:
    return _with_fields(schema, name={**schema["properties"]["name"], "not": {"const": PAYMENT}})


def _payment(event: Schema) -> Schema:
    """Return the schema of an event that the rules treat as a payment."""
    payment = _with_fields(
        event,
        name={"const": PAYMENT},
        id={
            "type": "string",
            "minLength": 1,
            "maxLength": 256,
            "description": "Required. The same payment may be sent again; a different one with this id is rejected.",
        },
        props=ref("PaymentProps"),
    )
    description = "An event that moves money. The first payment with an id is kept for good."
    return {**payment, "description": description, "required": ["name", "id", "props"]}


def _payment_props() -> Schema:
    return {
        "type": "object",
        "description": "The money, and up to 98 other properties.",
        "properties": {
            "amount": {
                "type": "integer",
                "minimum": 0,
                "maximum": MINOR_UNITS_MAX,
                "description": "Minor units, such as cents. An integer; other values are rejected, never coerced.",
            },
            "currency": ref("Currency"),
            "earned": {
                "type": ["boolean", "null"],
                "default": True,
                "description": "False if processed for others: counts as volume, never as revenue.",
            },
        },
        "required": ["amount", "currency"],
        "additionalProperties": {
            "anyOf": [{"type": "string", "maxLength": 1024}, {"type": ["number", "boolean", "null"]}]
        },
        "maxProperties": 100,
    }


def _subscription(schema: Schema) -> Schema:
    description = schema["properties"]["currency"]["description"]
    return _with_fields(schema, currency={**ref("Currency"), "description": description})


def _currency() -> Schema:
    return {
        "type": "string",
        "enum": sorted(currency_codes()),
        "description": "An ISO 4217 code in lowercase.",
        "examples": ["eur"],
    }


def _metric_results() -> dict[str, Schema]:
    results = {result_name(metric): _result(metric) for metric in METRICS.values()}
    mapping = {metric.name: ref(result_name(metric))["$ref"] for metric in METRICS.values()}
    any_result = {
        "description": "The rows of a metric. Their columns depend on the metric.",
        "oneOf": [ref(name) for name in results],
        "discriminator": {"propertyName": "metric", "mapping": mapping},
    }
    return {"MetricResult": any_result, **results}


def _result(metric: Metric) -> Schema:
    day = _COLUMNS["day"]
    row = {
        "type": "object",
        "properties": {column: _COLUMNS.get(column, _FIGURE) for column in metric.columns},
        "required": list(metric.columns),
    }
    always_one = {"minItems": 1, "maxItems": 1} if isinstance(metric.source, Users | EventCount) else {}
    fields = {
        "ok": {"type": "boolean", "const": True},
        "metric": {"type": "string", "const": metric.name},
        "project": {"type": "string", "description": "The project's public id."},
        "date_from": {**day, "description": "First day (UTC), inclusive."},
        "date_to": {**day, "description": "Last day (UTC), inclusive."},
        "data": {"type": "array", "items": row, **always_one},
    }
    return {
        "type": "object",
        "description": f"The rows of `{metric.name}`.",
        "properties": fields,
        "required": list(fields),
    }
