"""The document as an HTML page without scripts or external resources.

It supports only the CommonMark that the texts use: paragraphs, lists and `code`.
"""

import base64
import hashlib
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from functools import cache
from http import HTTPStatus
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from mauve.openapi.examples import Schema

URL_EXAMPLE: Final = "http://127.0.0.1:8080"
_VARIABLES: Final = {"serverKey": "$KEY", "publishableKey": "$KEY", "controlToken": "$TOKEN"}
_CODE: Final = re.compile(r"`([^`]+)`")
_VALUES_SHOWN_MAX: Final = 12
_BOUNDS: Final = (
    ("minLength", "maxLength", "character"),
    ("minItems", "maxItems", "item"),
    ("minProperties", "maxProperties", "key"),
    ("minimum", "maximum", ""),
)


def page(document: Mapping[str, Any]) -> str:
    """Return the whole document as HTML, with an example of the service's address."""
    template = _environment().get_template("page.html")
    style = Markup(_style())  # noqa: S704 - our own file
    components = document["components"]
    return template.render(
        info=document["info"],
        url=URL_EXAMPLE,
        sections=_sections(document),
        schemes=components["securitySchemes"],
        schemas=components["schemas"],
        style=style,
    )


def content_policy() -> str:
    """Return the policy that allows the page's own style, by its digest, and nothing else."""
    digest = base64.b64encode(hashlib.sha256(_style().encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("mauve.openapi"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "prose": prose,
        "inline": inline,
        "type": type_of,
        "names": lambda schema: list(dict.fromkeys(_names_in(schema))),
        "title": _title,
        "phrase": lambda status: HTTPStatus(int(status)).phrase,
        "pretty": lambda value: json.dumps(value, indent=2, ensure_ascii=False),
    }
    return environment


@cache
def _style() -> str:
    loader = _environment().loader
    assert loader is not None  # noqa: S101 - set above
    return loader.get_source(_environment(), "page.css")[0]


def _title(name: str) -> str:
    first, *others = re.findall(r"^[a-z]+|[A-Z][a-z]+|[A-Z]", name)
    return " ".join([first.capitalize(), *(word if len(word) == 1 else word.lower() for word in others)])


def _sections(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the tags, each with its operations."""
    schemes = document["components"]["securitySchemes"]
    operations = [
        {**operation, "method": method.upper(), "path": path, "curl": curl(method.upper(), path, operation, schemes)}
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    return [
        {**tag, "operations": [operation for operation in operations if tag["name"] in operation["tags"]]}
        for tag in document["tags"]
    ]


def curl(method: str, path: str, operation: Mapping[str, Any], schemes: Mapping[str, Any]) -> str:
    """Return the operation as a shell command that uses the variables `URL` and `KEY` or `TOKEN`."""
    in_path = {each["name"]: each["example"] for each in operation.get("parameters", ()) if each["in"] == "path"}
    parts = [f'curl -i "$URL{path.format(**in_path)}"']
    if method not in {"GET", "POST"}:
        parts.append(f"-X {method}")
    for name in [next(iter(requirement)) for requirement in operation["security"][:1]]:
        header = schemes[name].get("name")  # of a signature
        parts.append(f"-H '{header}: …'" if header else f'-H "Authorization: Bearer {_VARIABLES[name]}"')
    if body := operation.get("requestBody"):
        example = next(iter(body["content"]["application/json"]["examples"].values()))["value"]
        parts += ["-H 'Content-Type: application/json'", f"-d {shlex.quote(_json_lines(example))}"]
    return " \\\n  ".join(parts)


def _json_lines(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Return JSON, with each item of an array on its own line."""
    if not isinstance(value, list):
        return json.dumps(value, ensure_ascii=False)
    return "[\n    " + ",\n    ".join(json.dumps(item, ensure_ascii=False) for item in value) + "]"


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


def type_of(schema: Schema) -> Markup:
    """Describe the values that a schema allows, with links to the schemas it refers to."""
    bounds = [_bound(schema.get(lower), schema.get(upper), unit) for lower, upper, unit in _BOUNDS]
    default = schema.get("default")
    if_absent = [] if default is None else [inline(f"`{_literal(default)}` if absent")]
    return Markup(", ").join([_base_type(schema), *filter(None, bounds), *if_absent])


def _base_type(schema: Schema) -> Markup:
    match schema:
        case {"$ref": _}:
            return Markup('<a href="#schema-{0}">{0}</a>').format(_name_of(schema))
        case {"const": value}:
            return inline(f"`{_literal(value)}`")
        case {"enum": values}:
            shown = [inline(f"`{_literal(value)}`") for value in values[:_VALUES_SHOWN_MAX]]
            rest = len(values) - len(shown)
            return Markup(", ").join(shown) + (f" and {rest} more" if rest else "")
        case {"anyOf": choices} | {"oneOf": choices} if "properties" not in schema:
            types = [type_of(choice) for choice in choices]
            return Markup(", or " if any(", " in type_ for type_ in types) else " or ").join(types)  # noqa: S704 - ours
        case {"type": "array", "items": items}:
            return Markup("array of {}").format(type_of(items))
        case _:
            is_date = schema.get("format") in {"date", "date-time"}
            names = schema["format"] if is_date else schema.get("type", "any JSON")
            return Markup.escape(names if isinstance(names, str) else " or ".join(names))


def _bound(lower: int | None, upper: int | None, unit: str) -> str:
    number = lower if upper is None else upper
    if number is None:
        return ""
    counted = f"{number:,} {unit}s" if unit and number != 1 else f"{number:,} {unit}".rstrip()
    if lower is None or upper is None:
        return f"at most {counted}" if lower is None else f"at least {counted}"
    return f"exactly {counted}" if lower == upper else f"{lower:,} to {counted}"


def _names_in(schema: Any) -> Iterator[str]:  # noqa: ANN401 - any part of a JSON document
    """Yield the names of the schemas it refers to, in order."""
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield _name_of(schema)
        schema = list(schema.values())
    if isinstance(schema, list):
        for part in schema:
            yield from _names_in(part)


def _name_of(schema: Schema) -> str:
    return str(schema["$ref"]).rpartition("/")[2]


def _literal(value: object) -> str:
    return (value or "empty") if isinstance(value, str) else str(value).lower()
