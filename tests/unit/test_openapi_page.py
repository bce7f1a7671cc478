"""The HTML page of the OpenAPI document."""

import base64
import hashlib
import html
import json
import re
import shlex

import pytest

from mauve.openapi.document import document
from mauve.openapi.page import content_policy, curl, inline, page, prose, type_of

DOCUMENT = document()
PAGE = page(DOCUMENT)
OPERATIONS = [
    (method.upper(), path, operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
]


def test_every_operation_parameter_and_status_is_on_the_page():
    for _, path, operation in OPERATIONS:
        article = PAGE.partition(f'<article id="{operation["operationId"]}">')[2].partition("</article>")[0]
        assert f"<code>{path}</code>" in article
        for parameter in operation.get("parameters", ()):
            assert f"<code>{parameter['name']}</code>" in article
        assert re.findall(r'class="status">(\d+)<', article) == list(operation["responses"])


def test_every_link_within_the_page_resolves():
    links = re.findall(r'href="#([^"]+)"', PAGE)
    anchors = re.findall(r'id="([^"]+)"', PAGE)
    assert len(links) > 50
    assert set(links) <= set(anchors)
    assert len(anchors) == len(set(anchors))


def test_the_page_has_no_scripts_or_external_resources():
    assert "<script" not in PAGE
    assert " style=" not in PAGE
    assert re.findall(r'(?:src|href)="(?!#)([^"]+)"', PAGE) == ["/openapi.json", "/openapi.json"]
    assert "unsafe" not in content_policy()


def test_the_policy_allows_the_style_and_nothing_else():
    (style,) = re.findall(r"<style>(.*?)</style>", PAGE, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert content_policy().startswith(f"default-src 'none'; style-src 'sha256-{digest}';")


@pytest.mark.parametrize(("method", "path", "operation"), OPERATIONS, ids=lambda value: str(value)[:40])
def test_the_shell_parses_a_curl_command_as_intended(method, path, operation):
    words = shlex.split(curl(method, path, operation, DOCUMENT["components"]["securitySchemes"]))
    assert words[:2] == ["curl", "-i"]
    assert "{" not in words[2]
    if "requestBody" in operation:
        first, *_ = operation["requestBody"]["content"]["application/json"]["examples"].values()
        assert json.loads(words[words.index("-d") + 1]) == first["value"]
    assert html.escape(words[2]) in PAGE


def test_an_apostrophe_is_quoted_in_a_curl_command():
    body = {"content": {"application/json": {"examples": {"one": {"value": {"name": "it's"}}}}}}
    words = shlex.split(curl("POST", "/", {"security": [], "requestBody": body}, {}))
    assert json.loads(words[-1]) == {"name": "it's"}


def test_text_is_escaped_before_it_is_marked_up():
    assert prose("a <b> & `c<d`") == "<p>a &lt;b&gt; &amp; <code>c&lt;d</code></p>"
    assert prose("one\ntwo\n\n- x\n- `y`") == "<p>one two</p><ul><li>x</li><li><code>y</code></li></ul>"
    assert inline("`<script>`") == "<code>&lt;script&gt;</code>"


@pytest.mark.parametrize(
    ("schema", "description"),
    [
        ({"type": "string", "minLength": 1, "maxLength": 128}, "string, 1 to 128 characters"),
        ({"type": "string", "format": "date"}, "date"),
        ({"type": "integer", "minimum": 0, "maximum": 9007199254740991}, "integer, 0 to 9,007,199,254,740,991"),
        ({"type": "array", "items": {"type": "integer"}, "maxItems": 500}, "array of integer, at most 500 items"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "string or null"),
        ({"anyOf": [{"type": "string", "minLength": 1}, {"type": "null"}]}, "string, at least 1 character, or null"),
        ({"type": "array", "items": {}, "minItems": 1, "maxItems": 1}, "array of any JSON, exactly 1 item"),
        ({"$ref": "#/components/schemas/App"}, '<a href="#schema-App">App</a>'),
        ({"const": True}, "<code>true</code>"),
        ({"type": "boolean", "default": False}, "boolean, <code>false</code> if absent"),
        ({"type": "string", "default": None}, "string"),
        ({"enum": ["a", "<"]}, "<code>a</code>, <code>&lt;</code>"),
        ({"enum": [str(number) for number in range(15)]}, None),
        ({}, "any JSON"),
    ],
)
def test_a_schema_is_described_in_words(schema, description):
    assert type_of(schema) == description if description else type_of(schema).endswith(" and 3 more")


def test_fields_keep_their_order_and_show_which_are_required():
    article = PAGE.partition('<article id="schema-Payment">')[2].partition("</article>")[0]
    fields = re.findall(r"<dt><code>(\w+)</code>(.*)</dt>", article)
    schema = DOCUMENT["components"]["schemas"]["Payment"]
    assert [name for name, _ in fields] == list(schema["properties"])
    assert [name for name, mark in fields if "required" in mark] == ["name", "id", "props"]
