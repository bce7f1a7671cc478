"""The operations of the control plane: its table of routes, with the texts and examples for each."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, Final

from mauve.access.tokens import insufficient_scope
from mauve.control.bodies import (
    APP_ID_EXAMPLE,
    KEY_ID_EXAMPLE,
    MASKED_KEY_EXAMPLE,
    PROJECT_ID_EXAMPLE,
    WEBHOOK_SECRET_EXAMPLE,
    AppBody,
    AppKeyBody,
    CreatedAppBody,
    MintedKeyBody,
    NewAppBody,
    decode,
)
from mauve.control.plane import BODY_BYTES_MAX, backend_unavailable
from mauve.control.routes import OPERATIONS as CONTROL_OPERATIONS
from mauve.control.routes import Operation as ControlOperation
from mauve.core.app import AppType, Ownership
from mauve.core.biller import Provider
from mauve.core.credential import KeyKind
from mauve.core.problems import not_found, unauthorized
from mauve.openapi.operation import (
    Body,
    Example,
    Operation,
    Parameter,
    Response,
    Schema,
    control_error,
    control_token,
    problem_raised_by,
    ref,
)
from mauve.web.messages import Reply, json_reply

TAG: Final = "Apps and keys"
_KEY: Final = "sk_live_Ab3d" + "0" * 32 + "x9Zq"
_APP: Final[Mapping[str, Any]] = {
    "app_id": APP_ID_EXAMPLE,
    "public_id": PROJECT_ID_EXAMPLE,
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
    KEY_ID_EXAMPLE,
    KeyKind.SERVER,
    MASKED_KEY_EXAMPLE,
    revoked=False,
    mirrored_at=None,
    created_at=1_794_712_763_680,
)


@dataclass(frozen=True, slots=True)
class OperationDoc:
    """The description of an operation, beyond its route."""

    id: str
    summary: str
    description: str
    success: Response
    body: Body | None = None
    ends_credential: bool = False


def _uncached(response: Response) -> Response:
    """Forbid caching, as the plane does for every reply."""
    headers = {**response.reply.headers, "cache-control": "no-store"}
    return replace(response, reply=response.reply._replace(headers=headers))


def _success(status: HTTPStatus, when: str, value: Any = None, schema: Schema | None = None) -> Response:  # noqa: ANN401
    reply = Reply(status) if schema is None else json_reply(status, value)
    return _uncached(Response("success", when, reply, schema))


def _array_of(name: str) -> Schema:
    return {"type": "array", "items": ref(name)}


def _body(name: str, description: str, **examples: Any) -> Body:  # noqa: ANN401
    named = tuple(Example(key, key.replace("_", " ").capitalize(), value) for key, value in examples.items())
    return Body(f"{description} At most {BODY_BYTES_MAX // 1024} KiB.", ref(name), named)


OPERATION_DOCS: Final[Mapping[tuple[str, str], OperationDoc]] = {
    ("POST", "/v1/apps"): OperationDoc(
        "createApp",
        "Create an app",
        "Creates the app in the token's organization, with its first server key, which works at once. Returns 400 if "
        "the organization has as many apps as the operator allows.",
        _success(
            HTTPStatus.CREATED,
            "The app and its key, which is shown only now.",
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
        "Returns every app of the token's organization, without archived ones, which are not found until restored.",
        _success(HTTPStatus.OK, "The apps; an empty array if there are none.", [AppBody(**_APP)], _array_of("App")),
    ),
    ("GET", "/v1/apps/{app_id}"): OperationDoc(
        "readApp", "Read an app", "Returns one app.", _success(HTTPStatus.OK, "The app.", AppBody(**_APP), ref("App"))
    ),
    ("PATCH", "/v1/apps/{app_id}"): OperationDoc(
        "changeApp",
        "Change an app",
        "Omitted fields are unchanged. If one field is invalid, nothing is changed.",
        _success(HTTPStatus.OK, "The changed app.", AppBody(**{**_APP, "type": AppType.LIBRARY}), ref("App")),
        _body("AppChanges", "The fields to change.", another_type={"type": "library"}),
    ),
    ("POST", "/v1/apps/{app_id}/keys"): OperationDoc(
        "mintKey",
        "Mint a key",
        "Mints a server key or a publishable key. To rotate a key: mint a new one, deploy it, delete the old one. "
        "Returns 400 if the app or the organization has as many keys as the operator allows.",
        _success(
            HTTPStatus.CREATED,
            "The key, which is shown only now.",
            MintedKeyBody(KEY_ID_EXAMPLE, _KEY),
            ref("MintedKey"),
        ),
        _body("NewKey", "The kind of key.", server_key={"kind": "sk"}, publishable_key={"kind": "pk"}),
    ),
    ("GET", "/v1/apps/{app_id}/keys"): OperationDoc(
        "listKeys",
        "List the keys of an app",
        "Returns masked keys, including revoked ones. A lost key cannot be recovered, only replaced.",
        _success(HTTPStatus.OK, "The keys; an empty array if there are none.", [_APP_KEY], _array_of("AppKey")),
    ),
    ("DELETE", "/v1/apps/{app_id}/keys/{key_id}"): OperationDoc(
        "revokeKey",
        "Revoke a key",
        "Permanent. Revoking a revoked key succeeds and changes nothing.",
        _success(HTTPStatus.NO_CONTENT, "The key is revoked, and refused everywhere within a second."),
        ends_credential=True,
    ),
    ("PUT", "/v1/apps/{app_id}/webhooks/{provider}"): OperationDoc(
        "saveWebhookSecret",
        "Save a webhook's signing secret",
        "Replaces any earlier secret. The secret is stored encrypted and cannot be read: `GET` on this path is 404.",
        _success(HTTPStatus.NO_CONTENT, "The secret is saved."),
        _body("WebhookSecret", "The secret.", secret={"secret": WEBHOOK_SECRET_EXAMPLE}),
        ends_credential=True,
    ),
}
_PARAMETERS: Final[Mapping[str, Parameter]] = {
    "app_id": Parameter("app_id", "path", "The app.", {"type": "string"}, APP_ID_EXAMPLE, required=True),
    "key_id": Parameter("key_id", "path", "The key.", {"type": "string"}, KEY_ID_EXAMPLE, required=True),
    "provider": Parameter(
        "provider",
        "path",
        "The biller.",
        {"type": "string", "enum": [provider.value for provider in Provider]},
        Provider.BILLER_A,
        required=True,
    ),
}


_UNAVAILABLE: Final = "The catalog failed or did not answer in time. Nothing was changed: retry with backoff."
_UNPUBLISHED: Final = (
    " Or, with `Retry-After`: the change is stored, but some machines may not know it yet and still accept what it "
    "ends. It reaches them by itself; a retry is safe, and its success means that it has."
)


def operations() -> tuple[Operation, ...]:
    return tuple(_operation(route, OPERATION_DOCS[route.method, route.path]) for route in CONTROL_OPERATIONS)


def _operation(route: ControlOperation, doc: OperationDoc) -> Operation:
    return Operation(
        method=route.method,
        path=route.path,
        id=doc.id,
        tag=TAG,
        summary=doc.summary,
        description=doc.description,
        security=(control_token(route.scope),),
        parameters=tuple(_PARAMETERS[name] for name in route.parameters),
        body=doc.body,
        responses=(doc.success, *map(_uncached, _errors(route, doc))),
    )


def _errors(route: ControlOperation, doc: OperationDoc) -> Iterator[Response]:
    if doc.body:
        yield control_error(
            "The body is not a JSON object, or a field is missing or invalid. Nothing was changed.",
            problem_raised_by(decode, b"{}", NewAppBody),
        )
    yield control_error("The token is missing, malformed, unknown or revoked.", unauthorized())
    yield control_error(f"The token does not carry the scope `{route.scope}`.", insufficient_scope(route.scope))
    if route.parameters:
        yield control_error("Not found in the token's organization.", not_found())
    yield control_error(_UNAVAILABLE + (_UNPUBLISHED if doc.ends_credential else ""), backend_unavailable())
