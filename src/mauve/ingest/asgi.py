"""The ingest plane's door on the main port, where ASGI is spoken. Workers need none: they serve nothing else."""

from mauve.ingest.plane import IngestPlane
from mauve.web import asgi


class IngestApp:
    def __init__(self, plane: IngestPlane) -> None:
        self._plane = plane

    async def __call__(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        await asgi.send_reply(send, await self._plane.answer(asgi.AsgiRequest(scope, receive)))
