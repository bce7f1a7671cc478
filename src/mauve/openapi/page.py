"""The document as an HTML page without scripts or external resources."""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache
from http import HTTPStatus
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from mauve.openapi.markup import fields_of, inline, names_in, prose, type_of

_VARIABLES: Final = {"serverKey": "$KEY", "publishableKey": "$KEY", "controlToken": "$TOKEN"}


URL_EXAMPLE: Final = "http://127.0.0.1:8080"


def page(document: Mapping[str, Any]) -> str:
    """Return the whole document as HTML, with an example of the service's address."""
    return (
        _environment()
        .get_template("page.html")
        .render(
            info=document["info"],
            url=URL_EXAMPLE,
            sections=_sections(document),
            schemes=document["components"]["securitySchemes"],
            schemas=document["components"]["schemas"],
            style=Markup(_style()),  # noqa: S704 - our own file
        )
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
        "fields": fields_of,
        "names": lambda schema: list(dict.fromkeys(names_in(schema))),
        "title": _title,
        "phrase": lambda status: HTTPStatus(int(status)).phrase,
        "pretty": lambda value: json.dumps(value, indent=2, ensure_ascii=False),
    }
    return environment


def _title(name: str) -> str:
    """Return a camel-case name as words."""
    first, *others = re.findall(r"^[a-z]+|[A-Z][a-z]+|[A-Z]", name)
    return " ".join([first.capitalize(), *(word if len(word) == 1 else word.lower() for word in others)])


@cache
def _style() -> str:
    loader = _environment().loader
    assert loader is not None  # noqa: S101 - set above
    return loader.get_source(_environment(), "page.css")[0]


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
    parts = [f'curl -i "$URL{_filled_path(path, operation)}"']
    body = _first_example(operation)
    if method not in {"GET", "POST"}:
        parts.append(f"-X {method}")
    parts += _credential(operation, schemes)
    if body is not None:
        parts += ["-H 'Content-Type: application/json'", f"-d {_quoted(_json_lines(body))}"]
    return " \\\n  ".join(parts)


def _filled_path(path: str, operation: Mapping[str, Any]) -> str:
    for parameter in operation.get("parameters", ()):
        if parameter["in"] == "path":
            path = path.replace(f"{{{parameter['name']}}}", parameter["example"])
    return path


def _credential(operation: Mapping[str, Any], schemes: Mapping[str, Any]) -> list[str]:
    for requirement in operation["security"][:1]:
        name = next(iter(requirement))
        scheme = schemes[name]
        if scheme["type"] == "apiKey":
            return [f"-H '{scheme['name']}: …'"]
        return [f'-H "Authorization: Bearer {_VARIABLES[name]}"']
    return []


def _first_example(operation: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any JSON value
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    return next((example["value"] for example in content.get("examples", {}).values()), None)


def _json_lines(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Return JSON, with each item of an array on its own line."""
    if not isinstance(value, list):
        return json.dumps(value, ensure_ascii=False)
    return "[\n    " + ",\n    ".join(json.dumps(item, ensure_ascii=False) for item in value) + "]"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
