"""The core process: every plane on the main port."""

import asyncio
from collections.abc import Callable
from contextlib import closing

from prometheus_client import CollectorRegistry

from mauve.access.keyring import REFRESH_EVERY_S
from mauve.access.token_uses import WRITE_EVERY_S
from mauve.control.links import renew_setup_link
from mauve.control.parts import ControlParts
from mauve.control.plane import ControlPlane, is_control_path
from mauve.control.publish import SWEEP_EVERY_S
from mauve.dashboard.parts import DashboardParts
from mauve.dashboard.plane import Dashboard, is_page
from mauve.ingest.asgi import IngestApp
from mauve.ingest.parts import IngestParts
from mauve.ingest.plane import IngestPlane
from mauve.ingest.stats import write_stats_forever
from mauve.load.runner import LoadMetrics, LoadRunner
from mauve.maintenance.retention import LOOK_EVERY_S
from mauve.openapi.app import reference
from mauve.query.parts import QueryParts
from mauve.query.plane import QueryPlane, is_query_path
from mauve.server.admin_socket import AdminSocket
from mauve.server.asgi_server import AsgiServer
from mauve.server.child import expose_metrics, finished, main, repeat, serve_until_stopped
from mauve.server.child_protocol import ChildOrders, Ready
from mauve.server.gate import RequestGuard
from mauve.stores import StoreUnavailableError
from mauve.web.asgi import Receive, Scope, Send, read_request, send_reply
from mauve.web.health import readiness
from mauve.web.messages import Reply, Request
from mauve.wiring.bootstrap import prepare
from mauve.wiring.control import control_parts
from mauve.wiring.dashboard import dashboard_parts
from mauve.wiring.ingest import ingest_parts
from mauve.wiring.maintenance import drop_frozen, retention
from mauve.wiring.query import query_parts
from mauve.wiring.warehouse import open_load_parts, open_warehouse_reader


class CoreApp:
    """The planes and the dashboard as one ASGI application: the path decides which one answers.

    For a path that nobody knows it is the kind of answer that decides: people get a page, programs an envelope.
    """

    def __init__(
        self,
        parts: ControlParts,
        ingest: IngestParts,
        query: QueryParts,
        dashboard: DashboardParts,
        loading: LoadRunner,
        *,
        timeout_s: float,
    ) -> None:
        self._parts = parts
        self._query = QueryPlane(query)
        self._ledger = query.stores.ledger
        self._loading = loading
        self._control = ControlPlane(parts, timeout_s)
        self._dashboard = Dashboard(dashboard, timeout_s)
        self._plane = IngestPlane(ingest)
        self._reference = reference()
        self._ingest = IngestApp(self._plane)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        if is_query_path(path):
            await self._query(scope, receive, send)
        elif is_control_path(path):
            await self._control(scope, receive, send)
        elif self._reference.serves(path):
            await self._reference(scope, receive, send)
        elif path == "/readyz":
            await _answer_in_thread(self._readiness, scope, receive, send)
        elif is_page(scope):
            await self._dashboard(scope, receive, send)
        else:
            await self._ingest(scope, receive, send)

    def _readiness(self, request: Request) -> Reply:
        engines = {
            "catalog": _answers(self._parts.catalog.installation.ping),
            "ledger": _answers(self._ledger.ping),
            "warehouse": self._loading.has_warehouse,
            **self._plane.engines(),
        }
        return readiness(request.method, engines, **self._loading.status())


async def _answer_in_thread(answer: Callable[[Request], Reply], scope: Scope, receive: Receive, send: Send) -> None:
    request = await read_request(scope, receive, body_bytes_max=0)
    await send_reply(send, await asyncio.to_thread(answer, request))


def _answers(ping: Callable[[], None]) -> bool:
    try:
        ping()
    except StoreUnavailableError:
        return False
    return True


async def run(orders: ChildOrders) -> None:
    settings = orders.settings()
    prepare(settings)
    drop_frozen(settings)
    registry = CollectorRegistry()
    expose_metrics(settings, 0, registry)
    loading = LoadRunner(lambda: open_load_parts(settings), LoadMetrics(registry))
    with control_parts(settings) as parts:
        parts.publisher.refill_if_lost()
        setup = renew_setup_link(parts) if orders.wants_setup_link else None
        async with ingest_parts(settings, stream=0, registry=registry) as ingest:
            with (
                closing(open_warehouse_reader(settings)) as warehouse,
                query_parts(settings, ingest.keyring, warehouse, parts.token_uses) as query,
                dashboard_parts(settings, parts, query) as dashboard,
            ):
                forgetting = retention(settings, parts)
                background = [
                    asyncio.create_task(write_stats_forever(ingest)),
                    asyncio.create_task(ingest.caps.keep_current()),
                    asyncio.create_task(repeat(SWEEP_EVERY_S, parts.publisher.publish_pending, "publication_delayed")),
                    asyncio.create_task(repeat(REFRESH_EVERY_S, ingest.keyring.refresh, "keyring_not_refreshed")),
                    asyncio.create_task(repeat(WRITE_EVERY_S, parts.token_uses.write_down, "token_uses_not_noted")),
                    # Twice as often as promised: an event waits for the step after the one that just missed it.
                    asyncio.create_task(repeat(settings.flush_s / 2, loading.step, "load_failed")),
                    asyncio.create_task(repeat(LOOK_EVERY_S, forgetting.forget_if_due, "raw_events_not_forgotten")),
                ]
                errands = AdminSocket(settings, loading)
                await errands.open()
                app = CoreApp(parts, ingest, query, dashboard, loading, timeout_s=settings.catalog_timeout_s)
                await serve_until_stopped(
                    AsgiServer(RequestGuard(app, settings.connections_per_address), (orders.host, orders.port)),
                    Ready(setup.path.reveal() if setup else None),
                    has_failed=lambda: ingest.log.has_failed,
                )
                await errands.close()
                loading.stop()
                await finished(background)
    loading.close()


if __name__ == "__main__":
    main(run)
