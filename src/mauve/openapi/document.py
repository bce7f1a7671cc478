"""The OpenAPI document: operations, schemas and credentials."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from mauve.openapi import control, ingest, query, service, webhooks
from mauve.openapi.operation import SECURITY_SCHEMES, Body, Operation, Parameter, Response, Schema
from mauve.openapi.responses import headers_of
from mauve.openapi.schemas import schemas

VERSION: Final = "1.0.0"
_DESCRIPTION: Final = (
    "Metrics for developers who run several apps. Write behavioral events, payments and subscription state; read back "
    "MAU, DAU, signups, revenue, volume and MRR.\n\n"
    "Every request carries `Authorization: Bearer …`, except for billing webhooks, which are signed, and requests "
    "about the service itself. Bodies and responses are JSON. A path with a trailing slash does not exist.\n\n"
    "Match on `code` and on headers, never on the text of an error. Unknown fields of events are ignored. Responses "
    "may gain fields that are not listed here."
)
_TAGS: Final = {
    ingest.TAG: (
        "Write events and subscriptions, with an app's key. The ingest workers also serve these paths on their own "
        "port (8081 by default), which stays open while the main process restarts."
    ),
    query.TAG: "Read metrics, with a server key or a control token.",
    control.TAG: "Manage apps, their keys and their webhook signing secrets, with a control token.",
    webhooks.TAG: "Deliveries from billing providers.",
    service.TAG: "Health checks and this reference. No credential is needed.",
}


def operations() -> tuple[Operation, ...]:
    """Return every operation, in the order of the page."""
    return (
        *ingest.OPERATIONS,
        *query.OPERATIONS,
        *control.operations(),
        *webhooks.OPERATIONS,
        *service.OPERATIONS,
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
            "description": _DESCRIPTION,
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/", "description": "The address that served this document. It serves every plane."}],
        "tags": [{"name": name, "description": text} for name, text in _TAGS.items()],
        "paths": dict(paths),
        "components": {"schemas": schemas(), "securitySchemes": dict(SECURITY_SCHEMES)},
    }


def _operation(operation: Operation) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.id,
        "tags": [operation.tag],
        "summary": operation.summary,
        "description": operation.description,
        "security": list(operation.security),
    }
    if operation.parameters:
        described["parameters"] = [_parameter(parameter) for parameter in operation.parameters]
    if operation.body:
        described["requestBody"] = _body(operation.body)
    return {**described, "responses": _responses(operation.responses)}


def _parameter(parameter: Parameter) -> dict[str, Any]:
    described = {
        "name": parameter.name,
        "in": parameter.location,
        "required": parameter.required,
        "description": parameter.description,
        "schema": parameter.schema,
    }
    return described if parameter.example is None else {**described, "example": parameter.example}


def _body(body: Body) -> dict[str, Any]:
    examples = {example.name: {"summary": example.summary, "value": example.value} for example in body.examples}
    content = {"application/json": {"schema": body.schema, "examples": examples}}
    return {"required": True, "description": body.description, "content": content}


def _responses(responses: Sequence[Response]) -> dict[str, Any]:
    by_status: dict[int, list[Response]] = defaultdict(list)
    for response in responses:
        by_status[int(response.reply.status)].append(response)
    return {str(status): _response(by_status[status]) for status in sorted(by_status)}


def _response(responses: Sequence[Response]) -> dict[str, Any]:
    described: dict[str, Any] = {"description": _description_of(responses)}
    if headers := headers_of([response.reply for response in responses]):
        described["headers"] = headers
    if responses[0].schema is not None:
        media_type = responses[0].reply.headers["content-type"].partition(";")[0]
        examples = {response.name: {"summary": response.when, "value": _example_of(response)} for response in responses}
        described["content"] = {media_type: {"schema": _any_of(responses), "examples": examples}}
    return described


def _description_of(responses: Sequence[Response]) -> str:
    if len(responses) == 1:
        return responses[0].when
    return "\n".join(f"- {response.when}" for response in responses)


def _any_of(responses: Sequence[Response]) -> Schema:
    """Return the schema that the responses share, or the choice between theirs."""
    schemas_found: list[Schema] = []
    for response in responses:
        if response.schema is not None and response.schema not in schemas_found:
            schemas_found.append(response.schema)
    return schemas_found[0] if len(schemas_found) == 1 else {"anyOf": schemas_found}


def _example_of(response: Response) -> Any:  # noqa: ANN401 - any JSON value
    is_json = response.reply.headers["content-type"] == "application/json"
    return msgspec.json.decode(response.reply.body) if is_json else response.reply.body.decode()
