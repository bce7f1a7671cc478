"""The ingest plane behind its two doors: RSGI on the workers' own port, ASGI on the main one."""

import structlog

from mauve.core.problems import Code, Problem
from mauve.ingest.plane import BODY_BYTES_MAX, IngestPlane
from mauve.web import asgi, rsgi
from mauve.web.envelopes import data_reply
from mauve.web.messages import Reply, Request

log = structlog.get_logger()


class AsgiIngest:
    def __init__(self, plane: IngestPlane) -> None:
        self._plane = plane

    async def __call__(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        request = await asgi.read_request(scope, receive, BODY_BYTES_MAX)
        await asgi.send_reply(send, _answer(self._plane, request))


class RsgiIngest:
    def __init__(self, plane: IngestPlane) -> None:
        self._plane = plane

    async def __rsgi__(self, scope: rsgi.RsgiScope, transport: rsgi.RsgiTransport) -> None:
        request = await rsgi.read_request(scope, transport, BODY_BYTES_MAX)
        rsgi.send_reply(transport, _answer(self._plane, request))


def _answer(plane: IngestPlane, request: Request) -> Reply:
    try:
        return plane.answer(request)
    except Exception:
        log.exception("ingest_failed", method=request.method)
        return data_reply(Problem(Code.NOT_STORED, "nothing was stored: retry"))
