"""Stands before every plane on the main port, and lets through what is one request to everybody who reads it.

granian reads the head and refuses most of what is no HTTP by itself, without a body. It hands over the rest, of which
this refuses what the workers' own HTTP refuses. It tells of no connections, only of requests: it is those that are
counted by address here.
"""

from typing import Final

from mauve.control.plane import is_control_path
from mauve.core.problems import Code, Problem
from mauve.overload.per_address import PerAddress
from mauve.web.asgi import Application, Receive, Scope, Send, flaw_of, send_reply
from mauve.web.envelopes import control_reply, data_reply
from mauve.web.heads import Flaw
from mauve.web.messages import Reply, json_reply

_CLOSE: Final = {"connection": "close"}
_TOO_MANY: Final = "too many requests of this address are under way: wait for some of them, then retry"


class RequestGuard:
    """An ASGI application around another."""

    def __init__(self, app: Application, per_address: int) -> None:
        self._app = app
        self._addresses = PerAddress(per_address, "requests")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        flaw = flaw_of(scope)
        if flaw is not None:
            await send_reply(send, _refused(scope["path"], flaw))
            return
        address = scope["client"][0]
        if not self._addresses.enter(address):
            await send_reply(send, _one_too_many(scope["path"]))
            return
        try:
            await self._app(scope, receive, send)
        finally:
            self._addresses.leave(address)


def _refused(path: str, flaw: Flaw) -> Reply:
    """Return the refusal, in the envelope of the plane. Where such a request ends is open: so does the connection."""
    if is_control_path(path):
        return _closing(json_reply(flaw.status, {"error": {"code": Code.INVALID_BODY, "message": flaw.text}}))
    return _closing(json_reply(flaw.status, {"ok": False, "error": flaw.text}))


def _one_too_many(path: str) -> Reply:
    if is_control_path(path):
        return _closing(control_reply(Problem(Code.UPSTREAM_UNAVAILABLE, _TOO_MANY)))
    return _closing(data_reply(Problem(Code.NOT_STORED, _TOO_MANY, retry_after_s=1)))


def _closing(reply: Reply) -> Reply:
    return reply._replace(headers={**reply.headers, **_CLOSE})
