"""The schemas of the document: made from the types that the planes decode and encode, with the notes added."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from mauve.control import bodies
from mauve.core.events import Event
from mauve.core.money import currency_codes
from mauve.ingest.rules import Subscription
from mauve.metrics.registry import METRICS, Metric
from mauve.metrics.sources import EventCount, Users
from mauve.openapi import responses as shapes
from mauve.openapi.notes import MINOR_UNITS, NOTES, Note
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
    **{shape.__name__: shape for shape in (*shapes.TRUE_OK, *shapes.FALSE_OK, *shapes.OTHERS)},
}
_PUBLIC_NAMES: Final = {type_.__name__: name for name, type_ in _TYPES.items()}
_COLUMNS: Final[Mapping[str, Schema]] = {
    "day": {"type": "string", "format": "date", "examples": ["2026-11-14"]},
    "currency": ref("Currency"),
    "name": {"type": "string"},
}
_TELLS_VALUES: Final = frozenset({"$ref", "type", "const", "enum", "anyOf"})
_FIGURE: Final = {"type": "integer", "minimum": 0}


def schemas() -> dict[str, Schema]:
    """Return every schema by its name."""
    made = _made_from_types()
    noted = {name: _noted(schema, NOTES[name]) for name, schema in {**made, "Payment": made["Event"]}.items()}
    return noted | {"Currency": _currency(), "PaymentProps": _payment_props()} | _metric_results()


def result_name(metric: Metric) -> str:
    return "".join(part.capitalize() for part in metric.name.split("_")) + "Result"


def _made_from_types() -> dict[str, Any]:
    _, made = msgspec.json.schema_components(_TYPES.values(), ref_template="#/components/schemas/{name}")
    schemas = {_PUBLIC_NAMES.get(name, name): _renamed(schema) for name, schema in made.items()}
    for shape in (*shapes.TRUE_OK, *shapes.FALSE_OK):
        schemas[shape.__name__]["properties"]["ok"]["const"] = shape in shapes.TRUE_OK
    return schemas


def _renamed(schema: Any) -> Any:  # noqa: ANN401 - any part of a JSON document
    """Use the public name of each type, and leave out titles, which would repeat it."""
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


def _noted(schema: Schema, note: Note) -> Schema:
    noted = {**schema, "description": note.text, **note.keywords}
    if "properties" in schema:
        noted["properties"] = {
            name: _said(keywords, note.fields.get(name, {})) for name, keywords in schema["properties"].items()
        }
    return noted


def _said(keywords: Schema, note: Schema) -> Schema:
    """Add what the note says; a note that says what the values are stands for the whole field."""
    return note if _TELLS_VALUES & note.keys() else {**keywords, **note}


def _currency() -> Schema:
    return {
        "type": "string",
        "enum": sorted(currency_codes()),
        "description": "An ISO 4217 code, in lowercase.",
        "examples": ["eur"],
    }


def _payment_props() -> Schema:
    return {
        "type": "object",
        "description": "The money, and up to 98 other properties.",
        "properties": {
            "amount": {**MINOR_UNITS, "description": "Minor units, such as cents: a whole number, never coerced."},
            "currency": ref("Currency"),
            "earned": {
                "type": ["boolean", "null"],
                "default": True,
                "description": "False: processed for others. It counts as volume, never as revenue.",
            },
        },
        "required": ["amount", "currency"],
        "additionalProperties": {
            "anyOf": [{"type": "string", "maxLength": 1024}, {"type": ["number", "boolean", "null"]}]
        },
        "maxProperties": 100,
    }


def _metric_results() -> dict[str, Schema]:
    results = {result_name(metric): _result(metric) for metric in METRICS.values()}
    mapping = {metric.name: ref(result_name(metric))["$ref"] for metric in METRICS.values()}
    together = {
        "description": "The rows of a metric: their shape is the metric's own.",
        "oneOf": [ref(name) for name in results],
        "discriminator": {"propertyName": "metric", "mapping": mapping},
    }
    return {"MetricResult": together, **results}


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
        "date_from": {**day, "description": "First day, UTC, included."},
        "date_to": {**day, "description": "Last day, UTC, included."},
        "data": {"type": "array", "items": row, **always_one},
    }
    return {
        "type": "object",
        "description": f"The rows of `{metric.name}`.",
        "properties": fields,
        "required": list(fields),
    }
