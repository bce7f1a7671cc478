"""The core process: every plane on the main port."""

import asyncio
from http import HTTPStatus

from granian.constants import Interfaces
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router

from mauve.access.keyring import REFRESH_EVERY_S, Keyring
from mauve.config import Settings
from mauve.control.operator import renew_setup_link
from mauve.control.parts import ControlParts
from mauve.control.plane import ControlPlane
from mauve.control.publish import SWEEP_EVERY_S, publish_pending, refill_if_lost
from mauve.dashboard.setup import link_page
from mauve.ingest.doors import AsgiIngest
from mauve.ingest.plane import IngestPlane
from mauve.server.child import main, repeat, serve_until_stopped
from mauve.server.orders import Orders, Ready
from mauve.stores.unavailable import StoreUnavailableError
from mauve.web.messages import Reply, json_reply
from mauve.wiring import control_parts, keyring, prepare


def core_app(parts: ControlParts, ring: Keyring, settings: Settings) -> Router:
    """Return the planes as one ASGI application."""
    control = ControlPlane(parts, settings.catalog_timeout_s)
    ingest = AsgiIngest(IngestPlane(ring))

    async def ready(_request: Request) -> Response:
        return _response(await run_in_threadpool(readiness, parts, ring))

    async def link(request: Request) -> Response:
        return _response(await run_in_threadpool(link_page, parts, request.path_params["secret"]))

    routes = [
        Route("/v1/apps", control),
        Route("/v1/apps/{rest:path}", control),
        Route("/readyz", ready),
        Route("/setup/{secret}", link),
        Route("/password/{secret}", link),
    ]
    return Router(routes, redirect_slashes=False, default=ingest)


def readiness(parts: ControlParts, ring: Keyring) -> Reply:
    engines = {"catalog": _state_of(parts), "edge": "ok" if ring.is_current else "unreachable"}
    ready = all(state == "ok" for state in engines.values())
    status = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
    return json_reply(status, {"ok": ready, "engines": engines})


def _state_of(parts: ControlParts) -> str:
    try:
        parts.catalog.installation.ping()
    except StoreUnavailableError:
        return "unreachable"
    return "ok"


def _response(reply: Reply) -> Response:
    return Response(reply.body, reply.status, dict(reply.headers))


async def run(orders: Orders) -> None:
    settings = orders.settings()
    prepare(settings)
    with control_parts(settings) as parts:
        refill_if_lost(parts)
        setup = renew_setup_link(parts) if orders.wants_setup_link else None
        ring = keyring(settings)
        ring.refresh()
        background = [
            asyncio.create_task(repeat(SWEEP_EVERY_S, lambda: publish_pending(parts), "publication_delayed")),
            asyncio.create_task(repeat(REFRESH_EVERY_S, ring.refresh, "keyring_not_refreshed")),
        ]
        ready = Ready(setup.path.reveal() if setup else None)
        app = core_app(parts, ring, settings)
        await serve_until_stopped(app, Interfaces.ASGINL, orders.host, orders.port, ready)
        for task in background:
            task.cancel()
        ring.close()


if __name__ == "__main__":
    main(run)
