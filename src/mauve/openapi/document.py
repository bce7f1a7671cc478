"""The OpenAPI document: operations, schemas and credentials put together."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from mauve.openapi import control, ingest, query, webhooks
from mauve.openapi import service as upkeep
from mauve.openapi.headers import headers_of
from mauve.openapi.operation import Answer, Body, Operation, Parameter, Schema
from mauve.openapi.schemas import schemas
from mauve.openapi.security import SCHEMES

VERSION: Final = "1.0.0"
_TEXT: Final = (
    "Metrics for developers who run several apps. Write behavioural events, payments and subscription state; read back "
    "MAU, DAU, signups, revenue, volume and MRR.\n\n"
    "Every request carries `Authorization: Bearer …`, except deliveries of billers, which are signed, and questions "
    "about the service itself. Bodies and answers are JSON. A path with a slash at its end is another path, and does "
    "not exist.\n\n"
    "Match on `code` and on headers, never on the text of an error. Unknown fields of events are ignored, and answers "
    "may come to hold fields that are not listed here."
)
_TAGS: Final = {
    ingest.TAG: (
        "Write what happened, with an app's key. The ingest workers serve these paths on their own port too (8081 "
        "unless it was changed), which stays open while the rest restarts."
    ),
    query.TAG: "Read the numbers, with a server key or a control token.",
    control.TAG: "Manage apps, their keys and the signing secrets of their billers, with a control token.",
    webhooks.TAG: "Where billers deliver what was paid.",
    upkeep.TAG: "For monitors, programs and people. No credential is asked for.",
}


def operations() -> tuple[Operation, ...]:
    """Return every operation, in the order in which they are shown."""
    return (
        *ingest.ROUTES,
        *query.ROUTES,
        *control.operations(),
        *webhooks.ROUTES,
        *upkeep.ROUTES,
    )


def document() -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = defaultdict(dict)
    for operation in operations():
        paths[operation.path][operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Mauve",
            "version": VERSION,
            "summary": "Metrics for developers who run several apps.",
            "description": _TEXT,
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/", "description": "The address that served this document: every plane."}],
        "tags": [{"name": name, "description": text} for name, text in _TAGS.items()],
        "paths": dict(paths),
        "components": {"schemas": schemas(), "securitySchemes": dict(SCHEMES)},
    }


def _operation(operation: Operation) -> dict[str, Any]:
    told: dict[str, Any] = {
        "operationId": operation.name,
        "tags": [operation.tag],
        "summary": operation.summary,
        "description": operation.text,
        "security": list(operation.security),
    }
    if operation.parameters:
        told["parameters"] = [_parameter(parameter) for parameter in operation.parameters]
    if operation.body:
        told["requestBody"] = _body(operation.body)
    return {**told, "responses": _responses(operation.answers)}


def _parameter(parameter: Parameter) -> dict[str, Any]:
    told = {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.required,
        "description": parameter.text,
        "schema": parameter.schema,
    }
    return told if parameter.example is None else {**told, "example": parameter.example}


def _body(body: Body) -> dict[str, Any]:
    examples = {example.name: {"summary": example.text, "value": example.value} for example in body.examples}
    content = {"application/json": {"schema": body.schema, "examples": examples}}
    return {"required": True, "description": body.text, "content": content}


def _responses(answers: Sequence[Answer]) -> dict[str, Any]:
    by_status: dict[int, list[Answer]] = defaultdict(list)
    for answer in answers:
        by_status[int(answer.reply.status)].append(answer)
    return {str(status): _response(by_status[status]) for status in sorted(by_status)}


def _response(answers: Sequence[Answer]) -> dict[str, Any]:
    told: dict[str, Any] = {"description": _described(answers)}
    if headers := headers_of([answer.reply for answer in answers]):
        told["headers"] = headers
    if answers[0].schema is not None:
        media_type = answers[0].reply.headers["content-type"].partition(";")[0]
        examples = {answer.name: {"summary": answer.when, "value": _shown(answer)} for answer in answers}
        told["content"] = {media_type: {"schema": _any_of(answers), "examples": examples}}
    return told


def _described(answers: Sequence[Answer]) -> str:
    if len(answers) == 1:
        return answers[0].when
    return "\n".join(f"- {answer.when}" for answer in answers)


def _any_of(answers: Sequence[Answer]) -> Schema:
    """Return the one schema of the answers, or a choice of theirs."""
    found: list[Schema] = []
    for answer in answers:
        if answer.schema is not None and answer.schema not in found:
            found.append(answer.schema)
    return found[0] if len(found) == 1 else {"anyOf": found}


def _shown(answer: Answer) -> Any:  # noqa: ANN401 - any JSON value
    is_json = answer.reply.headers["content-type"] == "application/json"
    return msgspec.json.decode(answer.reply.body) if is_json else answer.reply.body.decode()
