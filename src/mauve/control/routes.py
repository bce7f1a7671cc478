"""The operations of the control plane, as one table: what the contract lists, in its order."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from starlette.routing import compile_path

from mauve.access.tokens import Caller
from mauve.control import apps, keys, webhook_secrets
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
from mauve.control.parts import ControlParts
from mauve.core.biller import Provider
from mauve.core.credential import Scope
from mauve.core.problems import not_found
from mauve.web.messages import Reply, json_reply


@dataclass(frozen=True, slots=True)
class Call:
    """An authenticated request for one operation."""

    parts: ControlParts
    caller: Caller
    path: dict[str, str]
    body: bytes | None


Handler = Callable[[Call], Reply]
_PROVIDERS: Final = frozenset(Provider)
_A_PROVIDER: Final = Provider.BILLER_A


@dataclass(frozen=True, slots=True)
class Route:
    method: str
    path: str
    scope: Scope
    handle: Handler
    pattern: re.Pattern[str]

    def match(self, method: str, path: str) -> dict[str, str] | None:
        """Return the path's parameters if this operation is meant."""
        found = self.pattern.fullmatch(path) if method == self.method else None
        return None if found is None else found.groupdict()


def find_route(method: str, path: str) -> tuple[Route, dict[str, str]]:
    """Return the operation and its path parameters. Anything not in the table is the same 404."""
    for route in ROUTES:
        parameters = route.match(method, path)
        if parameters is not None and parameters.get("provider", _A_PROVIDER) in _PROVIDERS:
            return route, parameters
    raise not_found()


def _create_app(call: Call) -> Reply:
    caller = call.caller
    app, sk_key = apps.create_app(call.parts, caller.org_id, decode(call.body, NewAppBody), caller.token_id)
    return json_reply(HTTPStatus.CREATED, created_app_body(app, sk_key.reveal()))


def _list_apps(call: Call) -> Reply:
    return json_reply(HTTPStatus.OK, [app_body(app) for app in call.parts.catalog.apps.all_of(call.caller.org_id)])


def _read_app(call: Call) -> Reply:
    return json_reply(HTTPStatus.OK, app_body(apps.find_app(call.parts, call.caller.org_id, call.path["app_id"])))


def _change_app(call: Call) -> Reply:
    app = apps.find_app(call.parts, call.caller.org_id, call.path["app_id"])
    return json_reply(HTTPStatus.OK, app_body(apps.change_app(call.parts, app, decode(call.body, AppChangesBody))))


def _mint_key(call: Call) -> Reply:
    app = apps.find_app(call.parts, call.caller.org_id, call.path["app_id"])
    kind = decode(call.body, NewKeyBody).kind
    key_id, key = keys.mint_key(call.parts, app, kind, call.caller.environment, call.caller.token_id)
    return json_reply(HTTPStatus.CREATED, MintedKeyBody(key_id, key.reveal()))


def _list_keys(call: Call) -> Reply:
    app = apps.find_app(call.parts, call.caller.org_id, call.path["app_id"])
    return json_reply(HTTPStatus.OK, [key_body(key) for key in keys.list_keys(call.parts, app)])


def _revoke_key(call: Call) -> Reply:
    app = apps.find_app(call.parts, call.caller.org_id, call.path["app_id"])
    keys.revoke_key(call.parts, app, call.path["key_id"])
    return Reply(HTTPStatus.NO_CONTENT)


def _save_webhook_secret(call: Call) -> Reply:
    app = apps.find_app(call.parts, call.caller.org_id, call.path["app_id"])
    secret = webhook_secrets.secret_from(decode(call.body, WebhookSecretBody), call.caller.environment)
    provider = Provider(call.path["provider"])
    webhook_secrets.save_secret(call.parts, app, call.caller.environment, provider, secret)
    return Reply(HTTPStatus.NO_CONTENT)


def _route(method: str, path: str, scope: Scope, handle: Handler) -> Route:
    pattern, _, _ = compile_path(path)
    return Route(method, path, scope, handle, pattern)


ROUTES: Final = (
    _route("POST", "/v1/apps", Scope.APPS_WRITE, _create_app),
    _route("GET", "/v1/apps", Scope.APPS_READ, _list_apps),
    _route("GET", "/v1/apps/{app_id}", Scope.APPS_READ, _read_app),
    _route("PATCH", "/v1/apps/{app_id}", Scope.APPS_WRITE, _change_app),
    _route("POST", "/v1/apps/{app_id}/keys", Scope.KEYS_WRITE, _mint_key),
    _route("GET", "/v1/apps/{app_id}/keys", Scope.KEYS_READ, _list_keys),
    _route("DELETE", "/v1/apps/{app_id}/keys/{key_id}", Scope.KEYS_WRITE, _revoke_key),
    _route("PUT", "/v1/apps/{app_id}/webhooks/{provider}", Scope.WEBHOOKS_WRITE, _save_webhook_secret),
)
