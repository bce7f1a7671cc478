"""The core process: every plane on the main port."""

import asyncio
from collections.abc import Callable

from granian.constants import Interfaces

from mauve.access.keyring import REFRESH_EVERY_S, Keyring
from mauve.config import Settings
from mauve.control.operator import renew_setup_link
from mauve.control.parts import ControlParts
from mauve.control.plane import ControlPlane, is_control_path
from mauve.control.publish import SWEEP_EVERY_S
from mauve.dashboard.setup import is_link_path, link_page
from mauve.ingest.doors import AsgiIngest
from mauve.ingest.plane import IngestPlane
from mauve.server.child import main, repeat, serve_until_stopped
from mauve.server.orders import Orders, Ready
from mauve.stores.unavailable import StoreUnavailableError
from mauve.web.asgi import Receive, Scope, Send, read_request, send_reply
from mauve.web.health import readiness
from mauve.web.messages import Reply, Request
from mauve.wiring import control_parts, keyring, prepare


class CoreApp:
    """The planes as one ASGI application: the path alone decides which one answers."""

    def __init__(self, parts: ControlParts, ring: Keyring, settings: Settings) -> None:
        self._parts = parts
        self._ring = ring
        self._control = ControlPlane(parts, settings.catalog_timeout_s)
        self._ingest = AsgiIngest(IngestPlane(ring))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        if is_control_path(path):
            await self._control(scope, receive, send)
        elif path == "/readyz":
            await _answer_in_thread(self._readiness, scope, receive, send)
        elif is_link_path(path):
            await _answer_in_thread(self._link, scope, receive, send)
        else:
            await self._ingest(scope, receive, send)

    def _readiness(self, request: Request) -> Reply:
        return readiness(request, {"catalog": _answers(self._parts), "edge": self._ring.is_current})

    def _link(self, request: Request) -> Reply:
        return link_page(self._parts, request)


async def _answer_in_thread(
    answer: Callable[[Request], Reply], scope: Scope, receive: Receive, send: Send
) -> None:
    request = await read_request(scope, receive, body_bytes_max=0)
    await send_reply(send, await asyncio.to_thread(answer, request))


def _answers(parts: ControlParts) -> bool:
    try:
        parts.catalog.installation.ping()
    except StoreUnavailableError:
        return False
    return True


async def run(orders: Orders) -> None:
    settings = orders.settings()
    prepare(settings)
    with control_parts(settings) as parts:
        parts.publisher.refill_if_lost()
        setup = renew_setup_link(parts) if orders.wants_setup_link else None
        ring = keyring(settings)
        ring.refresh()
        background = [
            asyncio.create_task(repeat(SWEEP_EVERY_S, parts.publisher.publish_pending, "publication_delayed")),
            asyncio.create_task(repeat(REFRESH_EVERY_S, ring.refresh, "keyring_not_refreshed")),
        ]
        ready = Ready(setup.path.reveal() if setup else None)
        app = CoreApp(parts, ring, settings)
        await serve_until_stopped(app, Interfaces.ASGINL, orders.host, orders.port, ready)
        for task in background:
            task.cancel()
        ring.close()


if __name__ == "__main__":
    main(run)
