"""An ingest worker: the ingest plane alone, on its own port. It needs no other process to be up."""

import asyncio

from granian.constants import Interfaces

from mauve.access.keyring import REFRESH_EVERY_S
from mauve.ingest.doors import RsgiIngest
from mauve.ingest.plane import IngestPlane
from mauve.server.child import main, repeat, serve_until_stopped
from mauve.server.orders import Orders, Ready
from mauve.wiring import keyring


async def run(orders: Orders) -> None:
    ring = keyring(orders.settings())
    ring.refresh()
    refreshing = asyncio.create_task(repeat(REFRESH_EVERY_S, ring.refresh, "keyring_not_refreshed"))
    app = RsgiIngest(IngestPlane(ring))
    await serve_until_stopped(app, Interfaces.RSGI, orders.host, orders.ingest_port, Ready())
    refreshing.cancel()
    ring.close()


if __name__ == "__main__":
    main(run)
