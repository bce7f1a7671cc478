"""A process that does nothing but answer: the limit that the real ones are held against."""

import sys

from granian.constants import Interfaces

from mauve.server.child import main, serve_until_stopped
from mauve.server.orders import Orders, Ready

_HEADERS = [("content-type", "application/json")]
_ASGI_HEADERS = [(b"content-type", b"application/json"), (b"cache-control", b"no-store"), (b"x-cache", b"hit")]
_ANSWER = b'{"ok":true,"metric":"mau","project":"proj_0","date_from":"2026-10-17","date_to":"2026-11-15","data":[]}'


class Empty:
    """A worker: reads the body and says 202."""

    async def __rsgi__(self, scope, transport) -> None:
        await transport()
        transport.response_bytes(202, _HEADERS, b'{"ok":true,"accepted":1,"rejected":0}')


async def empty(_scope, _receive, send) -> None:
    """A core: says 200."""
    await send({"type": "http.response.start", "status": 200, "headers": _ASGI_HEADERS})
    await send({"type": "http.response.body", "body": _ANSWER})


async def run(orders: Orders) -> None:
    if orders.role == "core":
        app, interface, port = empty, Interfaces.ASGINL, orders.port
    else:
        app, interface, port = Empty(), Interfaces.RSGI, orders.ingest_port
    await serve_until_stopped(app, interface, (orders.host, port), Ready(), has_failed=lambda: False)


if __name__ == "__main__":
    main(run)
    sys.exit(0)
