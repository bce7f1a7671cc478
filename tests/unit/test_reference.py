"""The OpenAPI document cannot drift from the code: it is compared with the tables, the sources and the golden files."""

import json
import re
from collections import Counter
from pathlib import Path

import jsonschema_rs
import msgspec
import pytest
import schemathesis

from mauve.control.routes import OPERATIONS as CONTROL_TABLE
from mauve.core.problems import Code
from mauve.metrics.registry import METRICS
from mauve.openapi import control, ingest, query, webhooks
from mauve.openapi import service as upkeep
from mauve.openapi.document import document, operations
from mauve.openapi.notes import NOTES
from mauve.web.envelopes import STATUS_OF

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src/mauve"
GOLDEN = ROOT / "tests/golden/errors"
DOCUMENT = json.loads(msgspec.json.encode(document()))
ROUTES = {
    f"{method.upper()} {path}": operation
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}
TOLD = {f"{operation.method} {operation.path}": operation for operation in operations()}
PREFIXES = {"/", "/v1/metrics/", "/v1/apps/"}


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
    schemathesis.openapi.from_dict(DOCUMENT).validate()
    assert DOCUMENT["openapi"].startswith("3.1.")
    assert DOCUMENT["info"]["version"] == "1.0.0"


def test_every_reference_leads_somewhere():
    targets = [target for target in parts_named("$ref", DOCUMENT) if isinstance(target, str)]
    assert len(targets) > 50
    assert {target.rpartition("/")[2] for target in targets} <= set(DOCUMENT["components"]["schemas"])


def test_no_two_operations_have_the_same_name():
    assert max(Counter(operation["operationId"] for operation in ROUTES.values()).values()) == 1


def test_the_control_plane_is_told_as_its_table_has_it():
    told = {label: operation["security"] for label, operation in ROUTES.items() if control.TAG in operation["tags"]}
    assert told == {f"{row.method} {row.path}": [{"controlToken": [row.scope]}] for row in CONTROL_TABLE}


def test_every_metric_is_told_with_its_columns():
    assert list(query.MEANINGS) == list(METRICS)
    results = DOCUMENT["components"]["schemas"]["MetricResult"]["discriminator"]["mapping"]
    for name, metric in METRICS.items():
        result = DOCUMENT["components"]["schemas"][results[name].rpartition("/")[2]]
        assert tuple(result["properties"]["data"]["items"]["required"]) == metric.columns


def test_every_path_that_the_planes_know_is_told():
    known = set()
    for module in ("ingest/plane.py", "query/plane.py", "control/plane.py", "server/core.py"):
        known |= set(re.findall(r'"(/[^"\s]*)"', (SOURCES / module).read_text()))
    assert {"/v1/events", "/readyz"} <= known
    assert known - PREFIXES - set(DOCUMENT["paths"]) == set()


PLANES = {
    ingest.TAG: ["ingest/plane.py", "ingest/rules.py", "ingest/wire.py", "access/standing.py", "web/compression.py"],
    webhooks.TAG: ["ingest/webhooks/*.py"],
    query.TAG: ["query/*.py", "metrics/*.py", "access/throttle.py", "web/parameters.py"],
    control.TAG: ["control/operations.py", "control/bodies.py", "control/plane.py", "access/tokens.py"],
}


@pytest.mark.parametrize("tag", PLANES)
def test_every_code_that_a_plane_raises_is_told(tag):
    modules = [path for pattern in PLANES[tag] for path in SOURCES.glob(pattern)]
    raised = {Code[name] for path in modules for name in re.findall(r"\bProblem\(\s*Code\.(\w+)", path.read_text())}
    assert raised
    assert raised <= {answer.code for told in TOLD.values() if told.tag == tag for answer in told.answers}


def answers_to_problems():
    return [
        pytest.param(told, answer, id=f"{label} {answer.name}")
        for label, told in TOLD.items()
        for answer in told.answers
        if answer.code is not None
    ]


@pytest.mark.parametrize(("told", "answer"), answers_to_problems())
def test_an_error_is_told_as_the_golden_files_have_it(told, answer):
    envelope = "control" if told.tag == control.TAG else "data"
    golden = json.loads((GOLDEN / f"{envelope}-{answer.code}.json").read_text())
    response = ROUTES[f"{told.method} {told.path}"]["responses"][str(int(STATUS_OF[answer.code]))]
    shown = response["content"]["application/json"]["examples"][answer.name]["value"]
    assert int(STATUS_OF[answer.code]) == golden["status"]
    assert golden["body"].keys() <= shown.keys()
    told_headers = {name.lower() for name in response.get("headers", ())}
    assert golden["headers"].keys() - {"content-type"} <= told_headers


def test_every_code_is_told_somewhere():
    assert {answer.code for told in TOLD.values() for answer in told.answers} >= set(Code)


@pytest.mark.parametrize("label", ROUTES)
def test_every_example_is_valid(label):
    operation = ROUTES[label]
    contents = [operation.get("requestBody", {}), *operation["responses"].values()]
    for content in (media for each in contents for media in each.get("content", {}).values()):
        assert content["examples"]
        for example in content["examples"].values():
            validator_of(content["schema"]).validate(example["value"])
    for parameter in operation.get("parameters", ()):
        if "example" in parameter:
            validator_of(parameter["schema"]).validate(parameter["example"])


@pytest.mark.parametrize("label", TOLD)
def test_every_header_of_an_example_is_valid(label):
    for answer in TOLD[label].answers:
        told = ROUTES[label]["responses"][str(int(answer.reply.status))].get("headers", {})
        schemas = {name.lower(): header["schema"] for name, header in told.items()}
        for name, text in answer.reply.headers.items():
            if name != "content-type":
                is_number = schemas[name].get("type") == "integer"
                validator_of(schemas[name]).validate(int(text) if is_number else text)


def test_a_wrong_example_would_be_found():
    with pytest.raises(jsonschema_rs.ValidationError):
        validator_of({"$ref": "#/components/schemas/Payment"}).validate({"name": "payment", "id": "1", "props": {}})


@pytest.mark.parametrize("name", NOTES)
def test_a_note_speaks_of_fields_that_exist(name):
    schema = DOCUMENT["components"]["schemas"][name]
    assert set(NOTES[name].fields) <= set(schema.get("properties", ()))


@pytest.mark.parametrize("name", DOCUMENT["components"]["schemas"])
def test_every_schema_says_what_it_is(name):
    assert DOCUMENT["components"]["schemas"][name]["description"]


def test_health_and_the_reference_itself_are_told():
    told = {operation.path for operation in operations() if operation.tag == upkeep.TAG}
    assert told == {"/healthz", "/readyz", "/openapi.json", "/docs"}
