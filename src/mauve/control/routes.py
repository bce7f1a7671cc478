"""The operations of the control plane, in the order of the contract."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from mauve.access.tokens import Caller
from mauve.control import ControlParts, apps, webhook_secrets
from mauve.control.bodies import (
    AppChangesBody,
    MintedKeyBody,
    NewAppBody,
    NewKeyBody,
    WebhookSecretBody,
    app_body,
    created_app_body,
    decode,
    key_body,
)
from mauve.core.biller import Provider
from mauve.core.credential import Scope
from mauve.web.app import JsonResponse


@dataclass(frozen=True, slots=True)
class Call:
    """An authenticated request for one operation."""

    parts: ControlParts
    caller: Caller
    path: dict[str, str]
    body: bytes | None


Handler = Callable[[Call], Response]
_PROVIDERS: Final = frozenset(Provider)


@dataclass(frozen=True, slots=True)
class Operation:
    method: str
    path: str
    scope: Scope
    handle: Handler

    @property
    def parameters(self) -> list[str]:
        """Return the names of the path's parameters."""
        return re.findall(r"{(\w+)}", self.path)

    def accepts(self, request: Request) -> bool:
        """Return whether the contract knows this request: the route takes any provider."""
        provider = request.path_params.get("provider")
        return provider is None or provider in _PROVIDERS


def _create_app(call: Call) -> Response:
    caller = call.caller
    app, sk_key = apps.create_app(call.parts, caller.org_id, decode(call.body, NewAppBody), caller.token_id)
    return JsonResponse(created_app_body(app, sk_key.reveal()), HTTPStatus.CREATED)


def _list_apps(call: Call) -> Response:
    return JsonResponse([app_body(app) for app in call.parts.catalog.apps.all_of(call.caller.org_id)])


def _read_app(call: Call) -> Response:
    return JsonResponse(app_body(apps.find_app(call.parts, call.caller.org_id, call.path["app_id"])))


def _change_app(call: Call) -> Response:
    app = apps.find_app(call.parts, call.caller.org_id, call.path["app_id"])
    return JsonResponse(app_body(apps.change_app(call.parts, app, decode(call.body, AppChangesBody))))


def _mint_key(call: Call) -> Response:
    app = apps.find_app(call.parts, call.caller.org_id, call.path["app_id"])
    kind = decode(call.body, NewKeyBody).kind
    key_id, key = apps.mint_key(call.parts, app, kind, call.caller.environment, call.caller.token_id)
    return JsonResponse(MintedKeyBody(key_id, key.reveal()), HTTPStatus.CREATED)


def _list_keys(call: Call) -> Response:
    app = apps.find_app(call.parts, call.caller.org_id, call.path["app_id"])
    return JsonResponse([key_body(key) for key in call.parts.catalog.keys.all_of(app.app_id)])


def _revoke_key(call: Call) -> Response:
    app = apps.find_app(call.parts, call.caller.org_id, call.path["app_id"])
    apps.revoke_key(call.parts, app, call.path["key_id"])
    return Response(status_code=HTTPStatus.NO_CONTENT)


def _save_webhook_secret(call: Call) -> Response:
    app = apps.find_app(call.parts, call.caller.org_id, call.path["app_id"])
    secret = webhook_secrets.secret_from(decode(call.body, WebhookSecretBody), call.caller.environment)
    provider = Provider(call.path["provider"])
    webhook_secrets.save_secret(call.parts, app, call.caller.environment, provider, secret)
    return Response(status_code=HTTPStatus.NO_CONTENT)


OPERATIONS: Final = (
    Operation("POST", "/v1/apps", Scope.APPS_WRITE, _create_app),
    Operation("GET", "/v1/apps", Scope.APPS_READ, _list_apps),
    Operation("GET", "/v1/apps/{app_id}", Scope.APPS_READ, _read_app),
    Operation("PATCH", "/v1/apps/{app_id}", Scope.APPS_WRITE, _change_app),
    Operation("POST", "/v1/apps/{app_id}/keys", Scope.KEYS_WRITE, _mint_key),
    Operation("GET", "/v1/apps/{app_id}/keys", Scope.KEYS_READ, _list_keys),
    Operation("DELETE", "/v1/apps/{app_id}/keys/{key_id}", Scope.KEYS_WRITE, _revoke_key),
    Operation("PUT", "/v1/apps/{app_id}/webhooks/{provider}", Scope.WEBHOOKS_WRITE, _save_webhook_secret),
)
