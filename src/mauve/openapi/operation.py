"""Operations of the API as values, with their credentials. The module of each plane fills them in."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mauve.core.credential import Scope
from mauve.core.problems import Code, Problem
from mauve.web.envelopes import control_reply, data_reply, wrong_method
from mauve.web.messages import Reply

Schema = Mapping[str, Any]
Requirement = Mapping[str, list[str]]


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    location: str  # path, query or header
    description: str
    schema: Schema
    example: str | None = None
    required: bool = False


@dataclass(frozen=True, slots=True)
class Example:
    name: str
    summary: str
    value: Any


@dataclass(frozen=True, slots=True)
class Body:
    description: str
    schema: Schema
    examples: tuple[Example, ...]


@dataclass(frozen=True, slots=True)
class Response:
    """One possible response of an operation.

    The document takes its status, headers and example from a reply that the service's own code made.
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
    id: str
    tag: str
    summary: str
    description: str
    responses: tuple[Response, ...]
    security: tuple[Requirement, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    body: Body | None = None


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


_DATA_SCHEMAS: Final[Mapping[Code, str]] = {
    Code.EVENT_CAP_REACHED: "EventCapReached",
    Code.INGEST_SUSPENDED: "IngestSuspended",
    Code.INSUFFICIENT_SCOPE: "InsufficientScope",
    Code.QUERIES_SPENT: "AllowanceSpent",
    Code.RAW_SCANS_SPENT: "AllowanceSpent",
}


def data_error(when: str, problem: Problem, name: str | None = None) -> Response:
    """Return the response of the ingest or query plane to a problem."""
    schema = ref(_DATA_SCHEMAS.get(problem.code, "DataProblem"))
    return Response(name or problem.code, when, data_reply(problem), schema, problem.code)


def control_error(when: str, problem: Problem) -> Response:
    return Response(problem.code, when, control_reply(problem), ref("ControlProblem"), problem.code)


def method_not_allowed(allowed: str) -> Response:
    code = Code.METHOD_NOT_ALLOWED
    return Response(code, f"The method is not {allowed}.", wrong_method(allowed), ref("DataProblem"), code)


def problem_raised_by(function: Callable[..., object], *arguments: object) -> Problem:
    """Return the problem that the call raises, so that an example quotes the service itself."""
    try:
        function(*arguments)
    except Problem as problem:
        return problem
    message = f"{function.__qualname__} raised no problem"
    raise AssertionError(message)


SERVER_KEY: Final[Requirement] = {"serverKey": []}
PUBLISHABLE_KEY: Final[Requirement] = {"publishableKey": []}
BILLER_A: Final[Requirement] = {"billerASignature": []}
BILLER_B: Final[Requirement] = {"billerBSignature": []}


def control_token(scope: Scope) -> Requirement:
    return {"controlToken": [scope.value]}


def _bearer(bearer_format: str, description: str) -> Mapping[str, Any]:
    return {"type": "http", "scheme": "bearer", "bearerFormat": bearer_format, "description": description}


def _signature(header: str, description: str) -> Mapping[str, Any]:
    return {"type": "apiKey", "in": "header", "name": header, "description": description}


SECURITY_SCHEMES: Final[Mapping[str, Mapping[str, Any]]] = {
    "serverKey": _bearer(
        "sk_live_…",
        "A server key: full access to one app on the ingest and query planes. Keep it on your servers. "
        "`sk_test_…` writes and reads the app's test environment.",
    ),
    "publishableKey": _bearer(
        "pk_live_…",
        "A publishable key: writes behavioral events of one app. Safe to ship in a page or an app: it cannot write "
        "payments or read anything.",
    ),
    "controlToken": _bearer(
        "ctl_live_…",
        "A control token: manages the apps of one organization, as far as its scopes allow: "
        f"{', '.join(f'`{scope}`' for scope in Scope)}. No scope implies another.",
    ),
    "billerASignature": _signature(
        "Stripe-Signature",
        "`t=…,v1=…`: the hexadecimal HMAC-SHA256 of the timestamp, a dot and the body, keyed with the project's "
        "signing secret for Stripe (biller_a). `Biller-A-Signature` is accepted too. At most 5 minutes old.",
    ),
    "billerBSignature": _signature(
        "Webhook-Signature",
        "`v1,…`: the base64 HMAC-SHA256 of `Webhook-Id`, `Webhook-Timestamp` and the body, joined by dots, keyed with "
        "the project's signing secret for Polar (biller_b), as in Standard Webhooks. At most 5 minutes old.",
    ),
}
