"""The ingest plane as an ASGI application, for the main port. Workers serve it without ASGI."""

from starlette.types import Receive, Scope, Send

from mauve.ingest.plane import IngestPlane
from mauve.web.asgi import AsgiRequest, send_reply


class IngestApp:
    def __init__(self, plane: IngestPlane) -> None:
        self._plane = plane

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send_reply(send, await self._plane.answer(AsgiRequest(scope, receive)))
