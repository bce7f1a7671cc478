"""The operations of the control plane: its own table, with what the table does not tell."""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from mauve.control.bodies import AppBody, AppKeyBody, CreatedAppBody, MintedKeyBody
from mauve.control.plane import BODY_BYTES_MAX
from mauve.control.routes import OPERATIONS as TABLE
from mauve.control.routes import Operation as TableRow
from mauve.core.app import AppType, Ownership
from mauve.core.biller import Provider
from mauve.core.credential import KeyKind
from mauve.core.problems import Code, Problem, not_found, unauthorized
from mauve.openapi.notes import example_id
from mauve.openapi.operation import Answer, Body, Example, Operation, Parameter, Schema, control_refusal, ref
from mauve.openapi.security import control_token
from mauve.web.messages import Reply, json_reply

TAG: Final = "Apps and keys"
_KEY: Final = "sk_live_Ab3d" + "0" * 32 + "x9Zq"
_APP: Final[Mapping[str, Any]] = {
    "app_id": example_id("app"),
    "public_id": example_id("proj"),
    "test_public_id": None,
    "name": "My first app",
    "ownership": Ownership.MINE,
    "type": AppType.SAAS,
    "first_event_at": 1_794_712_801_250,
    "has_biller_a_webhook": True,
    "has_biller_b_webhook": False,
    "created_at": 1_794_712_763_680,
}
_NEW_APP: Final = {**_APP, "first_event_at": None, "has_biller_a_webhook": False}
_APP_KEY: Final = AppKeyBody(
    example_id("key"),
    KeyKind.SERVER,
    "sk_live_Ab3d…x9Zq",
    revoked=False,
    mirrored_at=None,
    created_at=1_794_712_763_680,
)


@dataclass(frozen=True, slots=True)
class OperationDoc:
    """What the reference tells of an operation beside its path and scope."""

    name: str
    summary: str
    text: str
    success: Answer
    body: Body | None = None


def _success(status: HTTPStatus, when: str, value: Any = None, schema: Schema | None = None) -> Answer:  # noqa: ANN401
    reply = Reply(status) if schema is None else json_reply(status, value)
    kept = reply._replace(headers={**reply.headers, "cache-control": "no-store"})
    return Answer("success", when, kept, schema)


def _array_of(name: str) -> Schema:
    return {"type": "array", "items": ref(name)}


def _body(name: str, text: str, **examples: Any) -> Body:  # noqa: ANN401
    shown = tuple(Example(key, key.replace("_", " ").capitalize(), value) for key, value in examples.items())
    return Body(f"{text} At most {BODY_BYTES_MAX // 1024} KiB.", ref(name), shown)


OPERATION_DOCS: Final[Mapping[tuple[str, str], OperationDoc]] = {
    ("POST", "/v1/apps"): OperationDoc(
        "createApp",
        "Create an app",
        "Creates the app in the token's organization, with its first server key, which works at once. One app more "
        "than the operator allows is a 400 that says so.",
        _success(
            HTTPStatus.CREATED,
            "The app, and its key this once.",
            CreatedAppBody(**_NEW_APP, sk_key=_KEY),
            ref("CreatedApp"),
        ),
        _body(
            "NewApp",
            "The app.",
            name_alone={"name": "My first app"},
            everything={"name": "My library", "ownership": "client_operated", "type": "library"},
        ),
    ),
    ("GET", "/v1/apps"): OperationDoc(
        "listApps",
        "List the apps",
        "Every app of the token's organization.",
        _success(HTTPStatus.OK, "The apps; an empty array if there are none.", [AppBody(**_APP)], _array_of("App")),
    ),
    ("GET", "/v1/apps/{app_id}"): OperationDoc(
        "readApp", "Read an app", "One app.", _success(HTTPStatus.OK, "The app.", AppBody(**_APP), ref("App"))
    ),
    ("PATCH", "/v1/apps/{app_id}"): OperationDoc(
        "changeApp",
        "Change an app",
        "Fields that are left out stay as they are. One invalid field, and nothing is changed.",
        _success(HTTPStatus.OK, "The app as it is now.", AppBody(**{**_APP, "type": AppType.LIBRARY}), ref("App")),
        _body("AppChanges", "What to change.", another_type={"type": "library"}),
    ),
    ("POST", "/v1/apps/{app_id}/keys"): OperationDoc(
        "mintKey",
        "Mint a key",
        "A server key or a publishable key. To replace a key: mint a new one, deploy it, delete the old one. One key "
        "more than the operator allows is a 400 that says so.",
        _success(HTTPStatus.CREATED, "The key, this once.", MintedKeyBody(example_id("key"), _KEY), ref("MintedKey")),
        _body("NewKey", "Which kind.", server_key={"kind": "sk"}, publishable_key={"kind": "pk"}),
    ),
    ("GET", "/v1/apps/{app_id}/keys"): OperationDoc(
        "listKeys",
        "List the keys of an app",
        "Masked, the revoked ones included. A lost key cannot be read again, only replaced.",
        _success(HTTPStatus.OK, "The keys; an empty array if there are none.", [_APP_KEY], _array_of("AppKey")),
    ),
    ("DELETE", "/v1/apps/{app_id}/keys/{key_id}"): OperationDoc(
        "revokeKey",
        "Revoke a key",
        "For good. It is refused everywhere within seconds. Revoking again changes nothing and succeeds.",
        _success(HTTPStatus.NO_CONTENT, "The key is revoked."),
    ),
    ("PUT", "/v1/apps/{app_id}/webhooks/{provider}"): OperationDoc(
        "saveWebhookSecret",
        "Save a webhook's signing secret",
        "Replaces any earlier one. It is kept sealed and there is no way to read it: `GET` on this path is 404.",
        _success(HTTPStatus.NO_CONTENT, "The secret is saved."),
        _body("WebhookSecret", "The secret.", secret={"secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}),
    ),
}
_PARAMETERS: Final[Mapping[str, Parameter]] = {
    "app_id": Parameter("app_id", "path", "The app.", {"type": "string"}, example_id("app"), required=True),
    "key_id": Parameter("key_id", "path", "The key.", {"type": "string"}, example_id("key"), required=True),
    "provider": Parameter(
        "provider",
        "path",
        "The biller.",
        {"type": "string", "enum": [provider.value for provider in Provider]},
        Provider.BILLER_A,
        required=True,
    ),
}


def operations() -> tuple[Operation, ...]:
    return tuple(_operation(row, OPERATION_DOCS[row.method, row.path]) for row in TABLE)


def _operation(row: TableRow, telling: OperationDoc) -> Operation:
    return Operation(
        method=row.method,
        path=row.path,
        name=telling.name,
        tag=TAG,
        summary=telling.summary,
        text=telling.text,
        security=(control_token(row.scope),),
        parameters=tuple(_PARAMETERS[name] for name in row.parameters),
        body=telling.body,
        answers=(telling.success, *_refusals(row, telling)),
    )


def _refusals(row: TableRow, telling: OperationDoc) -> tuple[Answer, ...]:
    invalid = Problem(Code.INVALID_BODY, "Object missing required field `name`")
    no_scope = Problem(Code.INSUFFICIENT_SCOPE, f"this token does not carry the scope {row.scope}: mint one that does")
    unavailable = Problem(Code.UPSTREAM_UNAVAILABLE, "the control backend did not answer: retry with backoff")
    possible = (
        control_refusal("The body is no JSON object, lacks a field or holds a wrong one. Nothing was done.", invalid)
        if telling.body
        else None,
        control_refusal("The token is missing, malformed, unknown or revoked.", unauthorized()),
        control_refusal(f"The token does not carry `{row.scope}`.", no_scope),
        control_refusal("The token's organization has no such thing.", not_found()) if row.parameters else None,
        control_refusal(
            "The catalog failed or did not answer in time. Nothing was done: retry with backoff.", unavailable
        ),
    )
    return tuple(_not_to_be_kept(answer) for answer in possible if answer is not None)


def _not_to_be_kept(answer: Answer) -> Answer:
    reply = answer.reply._replace(headers={**answer.reply.headers, "cache-control": "no-store"})
    return Answer(answer.name, answer.when, reply, answer.schema, answer.code)
