"""What the reference tells of an operation, as values. The planes' modules here fill them in."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mauve.core.problems import Code, Problem
from mauve.web.envelopes import control_reply, data_reply, wrong_method
from mauve.web.messages import Reply

Schema = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    place: str  # path, query or header
    text: str
    schema: Schema
    example: str | None = None
    required: bool = False


@dataclass(frozen=True, slots=True)
class Example:
    name: str
    text: str
    value: Any


@dataclass(frozen=True, slots=True)
class Body:
    text: str
    schema: Schema
    examples: tuple[Example, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """One way in which an operation can answer, with a reply as the service gives it.

    Status, headers and example of the document are read off the reply.
    """

    name: str  # of the example
    when: str
    reply: Reply
    schema: Schema | None = None
    code: Code | None = None


@dataclass(frozen=True, slots=True)
class Operation:
    method: str
    path: str
    name: str
    tag: str
    summary: str
    text: str
    answers: tuple[Answer, ...]
    security: tuple[Mapping[str, list[str]], ...] = ()
    parameters: tuple[Parameter, ...] = ()
    body: Body | None = None


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


_DATA_SHAPES: Mapping[Code, str] = {
    Code.EVENT_CAP_REACHED: "EventCapReached",
    Code.INGEST_SUSPENDED: "IngestSuspended",
    Code.INSUFFICIENT_SCOPE: "InsufficientScope",
    Code.QUERIES_SPENT: "AllowanceSpent",
    Code.RAW_SCANS_SPENT: "AllowanceSpent",
}


def data_refusal(when: str, problem: Problem, name: str | None = None) -> Answer:
    """Return the answer of a data plane to a problem."""
    shape = ref(_DATA_SHAPES.get(problem.code, "DataProblem"))
    return Answer(name or problem.code, when, data_reply(problem), shape, problem.code)


def control_refusal(when: str, problem: Problem) -> Answer:
    return Answer(problem.code, when, control_reply(problem), ref("ControlProblem"), problem.code)


def other_method(allowed: str) -> Answer:
    code = Code.METHOD_NOT_ALLOWED
    return Answer(code, f"Another method than {allowed} on this path.", wrong_method(allowed), ref("DataProblem"), code)
