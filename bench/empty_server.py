"""A worker that does nothing but read the body and say 202: the limit that the real one is held against."""

import sys

from granian.constants import Interfaces

from mauve.server.child import main, serve_until_stopped
from mauve.server.orders import Orders, Ready

_HEADERS = [("content-type", "application/json")]


class Empty:
    async def __rsgi__(self, scope, transport) -> None:
        await transport()
        transport.response_bytes(202, _HEADERS, b'{"ok":true,"accepted":1,"rejected":0}')


async def run(orders: Orders) -> None:
    address = (orders.host, orders.ingest_port)
    await serve_until_stopped(Empty(), Interfaces.RSGI, address, Ready(), has_failed=lambda: False)


if __name__ == "__main__":
    main(run)
    sys.exit(0)
