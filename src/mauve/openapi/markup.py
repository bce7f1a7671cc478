"""Texts and schemas of the document as HTML.

Of CommonMark we write, and so render, paragraphs, lists and `code` only.
"""

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from markupsafe import Markup, escape

from mauve.openapi.operation import Schema

_CODE: Final = re.compile(r"`([^`]+)`")
_VALUES_SHOWN_MAX: Final = 12
_BOUNDS: Final = (
    ("minLength", "maxLength", "character"),
    ("minItems", "maxItems", "item"),
    ("minProperties", "maxProperties", "key"),
    ("minimum", "maximum", ""),
)


def inline(text: str) -> Markup:
    """Return one line of text, with `code` marked up."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704 - escaped right here


def prose(text: str) -> Markup:
    """Return paragraphs, and a list for each block whose lines all begin with a dash."""
    return Markup("").join(_block(block.splitlines()) for block in text.split("\n\n"))


def _block(lines: list[str]) -> Markup:
    if all(line.startswith("- ") for line in lines):
        items = Markup("").join(Markup("<li>{}</li>").format(inline(line[2:])) for line in lines)
        return Markup("<ul>{}</ul>").format(items)
    return Markup("<p>{}</p>").format(inline(" ".join(lines)))


class Field(NamedTuple):
    name: str
    type: Markup
    description: str
    required: bool


def fields_of(schema: Schema) -> list[Field]:
    """Return the fields of an object, in order."""
    required = schema.get("required", ())
    return [
        Field(name, type_of(field), field.get("description", ""), name in required)
        for name, field in schema.get("properties", {}).items()
    ]


def type_of(schema: Schema) -> Markup:
    """Describe the values that a schema allows, with links to the schemas it refers to."""
    bounds = [_bound(schema.get(lower), schema.get(upper), unit) for lower, upper, unit in _BOUNDS]
    default = schema.get("default")
    if_absent = [] if default is None else [inline(f"`{_literal(default)}` if absent")]
    return Markup(", ").join([_base_type(schema), *filter(None, bounds), *if_absent])


def names_in(schema: Any) -> Iterator[str]:  # noqa: ANN401 - any part of a JSON document
    """Yield the names of the schemas it refers to, in order."""
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield _name_of(schema)
        for value in schema.values():
            yield from names_in(value)
    elif isinstance(schema, list):
        for part in schema:
            yield from names_in(part)


def _bound(lower: int | None, upper: int | None, unit: str) -> str:
    match lower, upper:
        case None, None:
            return ""
        case None, _:
            return f"at most {_counted(upper, unit)}"
        case _, None:
            return f"at least {_counted(lower, unit)}"
        case _ if lower == upper:
            return f"exactly {_counted(upper, unit)}"
        case _:
            return f"{lower:,} to {_counted(upper, unit)}"


def _counted(number: int | None, unit: str) -> str:
    return f"{number:,} {unit}s" if unit and number != 1 else f"{number:,} {unit}".rstrip()


def _any_of(choices: list[Schema]) -> Markup:
    types = [type_of(choice) for choice in choices]
    separator = Markup(", or ") if any(", " in type_ for type_ in types) else Markup(" or ")
    return separator.join(types)


def _base_type(schema: Schema) -> Markup:
    match schema:
        case {"$ref": _}:
            name = _name_of(schema)
            return Markup('<a href="#schema-{0}">{0}</a>').format(name)
        case {"const": value}:
            return inline(f"`{_literal(value)}`")
        case {"enum": values}:
            shown = [inline(f"`{_literal(value)}`") for value in values[:_VALUES_SHOWN_MAX]]
            rest = len(values) - len(shown)
            return Markup(", ").join(shown) + (f" and {rest} more" if rest else "")
        case {"anyOf": choices} | {"oneOf": choices} if "properties" not in schema:
            return _any_of(choices)
        case {"type": "array", "items": items}:
            return Markup("array of {}").format(type_of(items))
        case _:
            return _named_type(schema)


def _named_type(schema: Schema) -> Markup:
    names = schema.get("type", "any JSON")
    joined = " or ".join([names] if isinstance(names, str) else names)
    return Markup.escape({"date-time": "date-time", "date": "date"}.get(schema.get("format", ""), joined))


def _name_of(schema: Schema) -> str:
    return str(schema["$ref"]).rpartition("/")[2]


def _literal(value: object) -> str:
    return (value or "empty") if isinstance(value, str) else str(value).lower()
