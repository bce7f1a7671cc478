"""Manage apps, keys and webhook secrets: `Control`, and `AsyncControl` for asyncio."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote

from mauve_metrics._calls import AsyncCaller, Caller, Reply, awaited
from mauve_metrics.errors import MauveError


@dataclass(frozen=True)
class App:
    """An app. Times are epoch milliseconds."""

    app_id: str
    public_id: str
    name: str
    ownership: str
    type: str
    created_at: int
    first_event_at: int | None = None
    test_public_id: str | None = None
    has_biller_a_webhook: bool = False
    has_biller_b_webhook: bool = False


@dataclass(frozen=True)
class CreatedApp(App):
    """A new app with its first server key, which is shown only once."""

    sk_key: str = field(default="", repr=False)


@dataclass(frozen=True)
class AppKey:
    """A key, masked. Times are epoch milliseconds."""

    key_id: str
    kind: str
    masked: str
    revoked: bool
    created_at: int
    mirrored_at: int | None = None


@dataclass(frozen=True)
class MintedKey:
    """A new key, which is shown only once."""

    key_id: str
    key: str = field(repr=False)


_Value = TypeVar("_Value")
_EXPECTED = "Control needs a control token (ctl_live_…) with the scope for this call"


class Control:
    """Manage the apps of an organization with a control token. No POST is ever repeated."""

    def __init__(self, token: str, *, url: str, timeout: float = 10.0) -> None:
        self._caller = Caller(token, url, timeout, _EXPECTED)

    def apps(self) -> list[App]:
        return self._caller.call("GET", "/v1/apps", partial(_values, App))

    def create_app(self, name: str, *, ownership: str | None = None, type: str | None = None) -> CreatedApp:  # noqa: A002
        """Create an app and its first server key, `sk_key`: keep it, the service never shows it again."""
        body = _given(name=name, ownership=ownership, type=type)
        return self._caller.call("POST", "/v1/apps", partial(_value, CreatedApp), body)

    def app(self, app_id: str) -> App:
        return self._caller.call("GET", _path(app_id), partial(_value, App))

    def update_app(
        self,
        app_id: str,
        *,
        name: str | None = None,
        ownership: str | None = None,
        type: str | None = None,  # noqa: A002 - the name on the wire
    ) -> App:
        """Change the given fields, all or none."""
        body = _given(name=name, ownership=ownership, type=type)
        return self._caller.call("PATCH", _path(app_id), partial(_value, App), body)

    def keys(self, app_id: str) -> list[AppKey]:
        return self._caller.call("GET", _path(app_id, "keys"), partial(_values, AppKey))

    def mint_key(self, app_id: str, kind: str) -> MintedKey:
        """Mint a server key (`sk`) or a publishable one (`pk`): keep it, the service never shows it again."""
        return self._caller.call("POST", _path(app_id, "keys"), partial(_value, MintedKey), {"kind": kind})

    def revoke_key(self, app_id: str, key_id: str) -> None:
        """Revoke a key permanently."""
        return self._caller.call("DELETE", _path(app_id, "keys", key_id), _nothing)

    def set_webhook_secret(self, app_id: str, provider: str, secret: str, *, environment: str | None = None) -> None:
        """Save the signing secret of `biller_a` or `biller_b`. It cannot be read back."""
        body = _given(secret=secret, environment=environment)
        return self._caller.call("PUT", _path(app_id, "webhooks", provider), _nothing, body)


class AsyncControl:
    """The same for asyncio. Nothing runs in the loop's executor."""

    def __init__(self, token: str, *, url: str, timeout: float = 10.0) -> None:
        self._caller = AsyncCaller(token, url, timeout, _EXPECTED)

    apps = awaited(Control.apps)
    create_app = awaited(Control.create_app)
    app = awaited(Control.app)
    update_app = awaited(Control.update_app)
    keys = awaited(Control.keys)
    mint_key = awaited(Control.mint_key)
    revoke_key = awaited(Control.revoke_key)
    set_webhook_secret = awaited(Control.set_webhook_secret)


def _path(*parts: str) -> str:
    return "/v1/apps/" + "/".join(quote(part, safe="") for part in parts)


def _given(**values: str | None) -> dict[str, str]:
    return {name: value for name, value in values.items() if value is not None}


def _value(kind: type[_Value], reply: Reply) -> _Value:
    return _value_from(kind, reply.content)


def _values(kind: type[_Value], reply: Reply) -> list[_Value]:
    if not isinstance(reply.content, list):
        raise MauveError("the answer is not a list: check that url is the address of the service")
    return [_value_from(kind, each) for each in reply.content]


def _nothing(_reply: Reply) -> None:
    return None


def _value_from(kind: type[_Value], content: Mapping[str, Any]) -> _Value:
    """Return the known fields of a JSON object as a value. A newer service may send more."""
    names = {each.name for each in fields(kind)}  # type: ignore[arg-type] # always a dataclass
    try:
        return kind(**{name: value for name, value in content.items() if name in names})
    except (AttributeError, TypeError):
        raise MauveError("the answer has an unexpected format: check that url is the address of the service") from None
