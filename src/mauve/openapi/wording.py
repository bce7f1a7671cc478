"""Schemas in words: what a reader wants to know of a field, on one line."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from markupsafe import Markup

from mauve.openapi.operation import Schema
from mauve.openapi.prose import line

_VALUES_SHOWN_MAX: Final = 12
_BOUNDS: Final = (
    ("minLength", "maxLength", "character"),
    ("minItems", "maxItems", "item"),
    ("minProperties", "maxProperties", "key"),
    ("minimum", "maximum", ""),
)


class Field(NamedTuple):
    name: str
    type: Markup
    text: str
    required: bool


def fields_of(schema: Schema) -> list[Field]:
    """Return the fields of an object, in order."""
    required = schema.get("required", ())
    return [
        Field(name, type_of(field), field.get("description", ""), name in required)
        for name, field in schema.get("properties", {}).items()
    ]


def type_of(schema: Schema) -> Markup:
    """Return what a value may be, with links to the schemas that are named."""
    bounds = [_bound(schema.get(least), schema.get(most), unit) for least, most, unit in _BOUNDS]
    default = schema.get("default")
    otherwise = [] if default is None else [line(f"`{_literal(default)}` if absent")]
    return Markup(", ").join([_kind_of(schema), *filter(None, bounds), *otherwise])


def names_in(schema: Any) -> Iterator[str]:  # noqa: ANN401 - any part of a JSON document
    """Yield the names of the schemas that are referred to, in order."""
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield _name_of(schema)
        for value in schema.values():
            yield from names_in(value)
    elif isinstance(schema, list):
        for part in schema:
            yield from names_in(part)


def _bound(least: int | None, most: int | None, unit: str) -> str:
    match least, most:
        case None, None:
            return ""
        case None, _:
            return f"at most {_counted(most, unit)}"
        case _, None:
            return f"at least {_counted(least, unit)}"
        case _ if least == most:
            return f"exactly {_counted(most, unit)}"
        case _:
            return f"{least:,} to {_counted(most, unit)}"


def _counted(number: int | None, unit: str) -> str:
    return f"{number:,} {unit}s" if unit and number != 1 else f"{number:,} {unit}".rstrip()


def _either(choices: list[Schema]) -> Markup:
    words = [type_of(choice) for choice in choices]
    between = Markup(", or ") if any(", " in word for word in words) else Markup(" or ")
    return between.join(words)


def _kind_of(schema: Schema) -> Markup:
    match schema:
        case {"$ref": _}:
            name = _name_of(schema)
            return Markup('<a href="#schema-{0}">{0}</a>').format(name)
        case {"const": value}:
            return line(f"`{_literal(value)}`")
        case {"enum": values}:
            shown = [line(f"`{_literal(value)}`") for value in values[:_VALUES_SHOWN_MAX]]
            rest = len(values) - len(shown)
            return Markup(", ").join(shown) + (f" and {rest} more" if rest else "")
        case {"anyOf": choices} | {"oneOf": choices} if "properties" not in schema:
            return _either(choices)
        case {"type": "array", "items": items}:
            return Markup("array of {}").format(type_of(items))
        case _:
            return _plain(schema)


def _plain(schema: Schema) -> Markup:
    kinds = schema.get("type", "any JSON")
    words = " or ".join([kinds] if isinstance(kinds, str) else kinds)
    return Markup.escape({"date-time": "date-time", "date": "date"}.get(schema.get("format", ""), words))


def _name_of(schema: Schema) -> str:
    return str(schema["$ref"]).rpartition("/")[2]


def _literal(value: object) -> str:
    return (value or "empty") if isinstance(value, str) else str(value).lower()
