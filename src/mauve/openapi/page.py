"""The document as a page: no script, nothing from elsewhere, readable on a phone and in the dark."""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache
from http import HTTPStatus
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from mauve.openapi.curl import curl
from mauve.openapi.prose import line, prose
from mauve.openapi.wording import fields_of, names_in, type_of


def page(document: Mapping[str, Any]) -> str:
    """Return the HTML. All that is in the document is on the page."""
    return (
        _environment()
        .get_template("page.html")
        .render(
            info=document["info"],
            sections=_sections(document),
            schemes=document["components"]["securitySchemes"],
            schemas=document["components"]["schemas"],
            style=Markup(_style()),  # noqa: S704 - our own file
        )
    )


def content_policy() -> str:
    """Return the policy that lets the page's own style through, by its digest, and nothing else."""
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
        "line": line,
        "type": type_of,
        "fields": fields_of,
        "names": lambda schema: list(dict.fromkeys(names_in(schema))),
        "title": _title,
        "phrase": lambda status: HTTPStatus(int(status)).phrase,
        "pretty": lambda value: json.dumps(value, indent=2, ensure_ascii=False),
    }
    return environment


def _title(name: str) -> str:
    """Return the words of a camel-cased name."""
    first, *others = re.findall(r"^[a-z]+|[A-Z][a-z]+|[A-Z]", name)
    return " ".join([first.capitalize(), *(word if len(word) == 1 else word.lower() for word in others)])


@cache
def _style() -> str:
    loader = _environment().loader
    assert loader is not None  # noqa: S101 - given above
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
