"""The ingest plane behind its two doors: RSGI on the workers' own port, ASGI on the main one."""

from mauve.ingest.plane import IngestPlane
from mauve.web import asgi, rsgi
from mauve.web.deadlines import Deadlines


class AsgiIngest:
    def __init__(self, plane: IngestPlane) -> None:
        self._plane = plane

    async def __call__(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        await asgi.send_reply(send, await self._plane.answer(asgi.AsgiRequest(scope, receive)))


class RsgiIngest:
    def __init__(self, plane: IngestPlane, deadlines: Deadlines) -> None:
        self._plane = plane
        self._deadlines = deadlines

    async def __rsgi__(self, scope: rsgi.RsgiScope, transport: rsgi.RsgiTransport) -> None:
        rsgi.send_reply(transport, await self._plane.answer(rsgi.RsgiRequest(scope, transport, self._deadlines)))
