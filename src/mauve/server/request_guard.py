"""Middleware in front of every plane on the main port: refuse ambiguous requests, and too many from one address.

granian itself refuses most malformed HTTP, with an empty body. This refuses the rest of what the workers' HTTP parser
refuses. granian does not report connections, so this counts requests per address instead.
"""

from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mauve.control.plane import is_control_path
from mauve.core.problems import Code, Problem
from mauve.overload.fair_share import PerAddress
from mauve.web.asgi import flaw_of, send_reply
from mauve.web.envelopes import control_reply, data_reply
from mauve.web.head_rules import Flaw
from mauve.web.health import Drain
from mauve.web.messages import Reply, json_reply

_CLOSE: Final = {"connection": "close"}
_TOO_MANY_TEXT: Final = "too many requests from this address are in progress: wait for some of them, then retry"


class RequestGuard:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, per_address: int, drain: Drain) -> None:
        self._app = app
        self._drain = drain
        self._addresses = PerAddress(per_address, "requests")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._drain.is_on:
            send = _closing_send(send)
        flaw = flaw_of(scope)
        if flaw is not None:
            await send_reply(send, _refused(scope["path"], flaw))
            return
        address = scope["client"][0]
        if not self._addresses.enter(address):
            await send_reply(send, _too_many_reply(scope["path"]))
            return
        try:
            await self._app(scope, receive, send)
        finally:
            self._addresses.leave(address)


def _refused(path: str, flaw: Flaw) -> Reply:
    """Return the refusal in the plane's envelope. Close the connection: the end of such a request is ambiguous."""
    if is_control_path(path):
        return _closing(json_reply(flaw.status, {"error": {"code": Code.INVALID_BODY, "message": flaw.text}}))
    return _closing(json_reply(flaw.status, {"ok": False, "error": flaw.text}))


def _too_many_reply(path: str) -> Reply:
    if is_control_path(path):
        return _closing(control_reply(Problem(Code.UPSTREAM_UNAVAILABLE, _TOO_MANY_TEXT)))
    return _closing(data_reply(Problem(Code.NOT_STORED, _TOO_MANY_TEXT, retry_after_s=1)))


def _closing_send(send: Send) -> Send:
    """Close the connection after the reply: the client's next request then goes to another machine."""

    async def send_closing(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [(name, value) for name, value in message.get("headers", ()) if name != b"connection"]
            message = {**message, "headers": [*headers, (b"connection", b"close")]}
        await send(message)

    return send_closing


def _closing(reply: Reply) -> Reply:
    return reply._replace(headers={**reply.headers, **_CLOSE})
