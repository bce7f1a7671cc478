"""The OpenAPI document agrees with the routes, the sources and the golden files."""

import json
import re
from collections import Counter
from pathlib import Path

import jsonschema_rs
import msgspec
import pytest

from mauve.control.routes import OPERATIONS as CONTROL_ROUTES
from mauve.core.problems import Code
from mauve.metrics.registry import METRICS, metric_named
from mauve.openapi.document import document, texts
from mauve.openapi.examples import BODIES, RESPONSES, problem_raised_by
from mauve.web.envelopes import STATUS_OF

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src/mauve"
GOLDEN = ROOT / "tests/golden/errors"
DOCUMENT = json.loads(msgspec.json.encode(document()))
DOCUMENTED = {
    f"{method.upper()} {path}": operation
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}
PREFIXES = {"/", "/v1/", "/v1/metrics/", "/v1/apps/"}


def validator_of(schema):
    return jsonschema_rs.Draft202012Validator({**schema, "components": DOCUMENT["components"]}, validate_formats=True)


def parts_named(name, part):
    """Return every value under a key, anywhere in the document."""
    if isinstance(part, dict):
        return [value for key, value in part.items() if key == name] + [
            found for value in part.values() for found in parts_named(name, value)
        ]
    return [found for value in part for found in parts_named(name, value)] if isinstance(part, list) else []


def test_it_is_an_openapi_document():
    import schemathesis  # noqa: PLC0415 - slow, and every process collects all tests

    schemathesis.openapi.from_dict(DOCUMENT).validate()
    assert DOCUMENT["openapi"].startswith("3.1.")
    assert DOCUMENT["info"]["version"] == "1.0.0"


def test_every_reference_resolves():
    targets = [target for target in parts_named("$ref", DOCUMENT) if isinstance(target, str)]
    assert len(targets) > 50
    assert {target.rpartition("/")[2] for target in targets} <= set(DOCUMENT["components"]["schemas"])


def test_no_two_operations_have_the_same_id():
    assert max(Counter(operation["operationId"] for operation in DOCUMENTED.values()).values()) == 1


def labels_of(tag):
    return [label for label, operation in DOCUMENTED.items() if operation["tags"] == [tag]]


def test_every_example_belongs_to_a_documented_operation():
    assert DOCUMENTED.keys() == RESPONSES.keys()
    assert {label for label, operation in DOCUMENTED.items() if "requestBody" in operation} == BODIES.keys()


def test_every_text_is_used():
    operations, tags = texts()["operations"], texts()["tags"]
    for label, text in operations.items():
        assert text.get("responses", {}).keys() <= {response.name for response in RESPONSES[label]}
    for tag, text in tags.items():
        used = {response.name for label in labels_of(tag) for response in RESPONSES[label]}
        assert text.get("responses", {}).keys() <= used
    used = {name for text in operations.values() for name in text.get("parameters", ())}
    assert used == texts()["parameters"].keys()


def test_no_placeholder_is_left_in_a_text():
    texts = [text for name in ("description", "summary") for text in parts_named(name, DOCUMENT)]
    assert [text for text in texts if isinstance(text, str) and re.search(r"\$\w|{\w+}|: None", text)] == []


def test_the_control_plane_is_documented_as_it_is_routed():
    documented = {label: DOCUMENTED[label]["security"] for label in labels_of("Apps and keys")}
    assert documented == {f"{route.method} {route.path}": [{"controlToken": [route.scope]}] for route in CONTROL_ROUTES}


def test_every_metric_is_documented_with_its_columns():
    described = DOCUMENTED["GET /v1/metrics/{metric}"]["description"]
    assert re.findall(r"^- `(\w+)`: \w", described, re.MULTILINE) == list(METRICS)
    results = DOCUMENT["components"]["schemas"]["MetricResult"]["discriminator"]["mapping"]
    for name, metric in METRICS.items():
        result = DOCUMENT["components"]["schemas"][results[name].rpartition("/")[2]]
        assert tuple(result["properties"]["data"]["items"]["required"]) == metric.columns


def test_every_path_that_a_plane_serves_is_documented():
    known = set()
    for module in ("ingest/plane.py", "query/plane.py", "control/plane.py", "server/app.py"):
        known |= set(re.findall(r'"(/[^"\s]*)"', (SOURCES / module).read_text()))
    assert {"/v1/events", "/readyz"} <= known
    assert known - PREFIXES - set(DOCUMENT["paths"]) == set()


PLANES = {
    "Ingest": ["ingest/plane.py", "ingest/rules.py", "ingest/wire.py", "access/event_caps.py", "web/compression.py"],
    "Billing webhooks": ["ingest/webhooks/*.py"],
    "Metrics": ["query/*.py", "metrics/*.py", "access/read_limits.py", "web/parameters.py"],
    "Apps and keys": ["control/routes.py", "control/bodies.py", "control/plane.py", "access/tokens.py"],
}


@pytest.mark.parametrize("tag", PLANES)
def test_every_code_that_a_plane_raises_is_documented(tag):
    found = [list(SOURCES.glob(pattern)) for pattern in PLANES[tag]]
    assert all(found)
    modules = [path for paths in found for path in paths]
    raised = {Code[name] for path in modules for name in re.findall(r"\bProblem\(\s*Code\.(\w+)", path.read_text())}
    assert raised
    assert raised <= {response.code for label in labels_of(tag) for response in RESPONSES[label]}


def error_responses():
    return [
        pytest.param(label, response, id=f"{label} {response.name}")
        for label, responses in RESPONSES.items()
        for response in responses
        if response.code is not None
    ]


@pytest.mark.parametrize(("label", "error"), error_responses())
def test_an_error_is_documented_as_the_golden_files_have_it(label, error):
    envelope = "control" if label in labels_of("Apps and keys") else "data"
    golden = json.loads((GOLDEN / f"{envelope}-{error.code}.json").read_text())
    response = DOCUMENTED[label]["responses"][str(int(STATUS_OF[error.code]))]
    example = response["content"]["application/json"]["examples"][error.name]["value"]
    assert int(STATUS_OF[error.code]) == golden["status"]
    assert golden["body"].keys() <= example.keys()
    documented_headers = {name.lower() for name in response.get("headers", ())}
    assert golden["headers"].keys() - {"content-type"} <= documented_headers


def test_every_code_is_documented_somewhere():
    assert {response.code for responses in RESPONSES.values() for response in responses} >= set(Code)


@pytest.mark.parametrize("label", DOCUMENTED)
def test_every_example_is_valid(label):
    operation = DOCUMENTED[label]
    contents = [operation.get("requestBody", {}), *operation["responses"].values()]
    for content in (media for each in contents for media in each.get("content", {}).values()):
        assert content["examples"]
        for example in content["examples"].values():
            validator_of(content["schema"]).validate(example["value"])
    for parameter in operation.get("parameters", ()):
        if "example" in parameter:
            validator_of(parameter["schema"]).validate(parameter["example"])


@pytest.mark.parametrize("label", RESPONSES)
def test_every_header_of_an_example_is_valid(label):
    for response in RESPONSES[label]:
        documented = DOCUMENTED[label]["responses"][str(int(response.reply.status))].get("headers", {})
        schemas = {name.lower(): header["schema"] for name, header in documented.items()}
        for name, text in response.reply.headers.items():
            if name != "content-type":
                is_number = schemas[name].get("type") == "integer"
                validator_of(schemas[name]).validate(int(text) if is_number else text)


def test_an_invalid_example_is_detected():
    with pytest.raises(jsonschema_rs.ValidationError):
        validator_of({"$ref": "#/components/schemas/Payment"}).validate({"name": "payment", "id": "1", "props": {}})


@pytest.mark.parametrize("name", DOCUMENT["components"]["schemas"])
def test_every_example_of_a_field_is_valid(name):
    for field in DOCUMENT["components"]["schemas"][name].get("properties", {}).values():
        for example in field.get("examples", ()):
            validator_of(field).validate(example)


@pytest.mark.parametrize("name", DOCUMENT["components"]["schemas"])
def test_every_schema_has_a_description(name):
    assert DOCUMENT["components"]["schemas"][name]["description"]


def test_an_example_needs_a_problem_to_quote():
    with pytest.raises(AssertionError, match="raised no problem"):
        problem_raised_by(metric_named, "dau")


def test_health_and_the_reference_itself_are_documented():
    paths = ["/healthz", "/drainz", "/readyz", "/openapi.json", "/docs", "/llms.txt"]
    assert labels_of("The service") == [f"GET {path}" for path in paths]
