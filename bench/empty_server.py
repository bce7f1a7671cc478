"""A server with an empty handler: the upper limit to compare the real processes with."""

import sys

from granian.constants import Interfaces

from mauve.ingest.publishable import BODY_BYTES_MAX
from mauve.server.asgi_server import AsgiServer
from mauve.server.child import main, serve_until_stopped
from mauve.server.child_protocol import ChildConfig, Ready
from mauve.web.http1.listener import Listener
from mauve.web.messages import JSON, Reply

_ASGI_HEADERS = [(b"content-type", b"application/json"), (b"cache-control", b"no-store"), (b"x-cache", b"hit")]
ON_GRANIAN, OF_WORKERS = 99, 9
_ACCEPTED = b'{"ok":true,"accepted":1,"rejected":0}'
_ANSWER = b'{"ok":true,"metric":"mau","project":"proj_0","date_from":"2026-10-17","date_to":"2026-11-15","data":[]}'


class Rsgi:
    """An empty handler on granian's own interface, its fastest."""

    async def __rsgi__(self, _scope, transport) -> None:
        await transport()
        transport.response_bytes(202, list(JSON.items()), _ACCEPTED)


async def accepted(request) -> Reply:
    """Answer as a worker: read the body and return 202."""
    await request.body(BODY_BYTES_MAX)
    return Reply(202, _ACCEPTED, JSON)


async def empty(_scope, _receive, send) -> None:
    """Answer as a core: return 200."""
    await send({"type": "http.response.start", "status": 200, "headers": _ASGI_HEADERS})
    await send({"type": "http.response.body", "body": _ANSWER})


async def run(config: ChildConfig) -> None:
    if config.role == "core":
        server = AsgiServer(empty, (config.host, config.port))
    elif config.number == ON_GRANIAN:
        server = AsgiServer(Rsgi(), (config.host, config.ingest_port), Interfaces.RSGI)
    else:
        server = Listener(accepted, (config.host, config.ingest_port))
    await serve_until_stopped(server, Ready(), has_failed=lambda: False)


if __name__ == "__main__":
    main(run)
    sys.exit(0)
