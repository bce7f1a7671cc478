"""The core process: every plane on the main port."""

import asyncio
from collections.abc import Callable
from contextlib import closing

from prometheus_client import CollectorRegistry
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from mauve.access.keyring import REFRESH_EVERY_S
from mauve.access.uses import USES_FLUSH_EVERY_S, KeyUseCopy
from mauve.config import Settings
from mauve.control.links import renew_setup_link
from mauve.control.parts import ControlParts
from mauve.control.plane import ControlPlane, is_control_path
from mauve.control.publish import SWEEP_EVERY_S
from mauve.dashboard.parts import DashboardParts
from mauve.dashboard.plane import Dashboard
from mauve.ingest.asgi import IngestApp
from mauve.ingest.parts import IngestParts
from mauve.ingest.plane import IngestPlane
from mauve.ingest.stats import write_stats_forever
from mauve.load.lease import TRY_EVERY_S
from mauve.load.runner import LoadMetrics, LoadRunner
from mauve.maintenance.retention import CHECK_EVERY_S
from mauve.openapi.app import reference_routes
from mauve.query.parts import QueryParts
from mauve.query.plane import QueryPlane, is_query_path
from mauve.server.admin_socket import AdminSocket
from mauve.server.asgi_server import AsgiServer
from mauve.server.child import expose_metrics, finished, main, repeat, serve_until_stopped
from mauve.server.child_protocol import ChildConfig, Ready
from mauve.server.engine_gauges import CHECK_EVERY_S as ENGINES_EVERY_S
from mauve.server.engine_gauges import EngineGauges
from mauve.server.request_guard import RequestGuard
from mauve.stores import StoreUnavailableError
from mauve.web.app import response_from, starlette_app
from mauve.web.asgi import matchable_path
from mauve.web.envelopes import wrong_method
from mauve.web.health import readiness
from mauve.wiring.bootstrap import prepare
from mauve.wiring.control import control_parts
from mauve.wiring.dashboard import dashboard_parts
from mauve.wiring.ingest import ingest_parts
from mauve.wiring.maintenance import drop_frozen, retention
from mauve.wiring.query import query_parts
from mauve.wiring.warehouse import open_load_lag, open_load_parts, open_warehouse_reader


class CoreApp:
    """Every plane and the dashboard as one ASGI application: the path selects the one that answers.

    Control plane, dashboard, reference and readiness are Starlette applications. Metrics and ingest are raw ASGI,
    because Starlette would cost a cached metric a sixth more. For an unknown path, browsers get a page and programs
    the envelope of the data planes.
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
        self._ingest = IngestApp(self._plane)
        service_routes = [Route("/readyz", self._readiness), *reference_routes(dashboard.public_url)]
        self._service_paths = frozenset(route.path for route in service_routes)
        self._service = starlette_app(service_routes, _refuse_method)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app_for(scope)
        scope["path"] = matchable_path(scope)
        await app(scope, receive, send)

    def _app_for(self, scope: Scope) -> ASGIApp:
        path: str = scope["path"]
        if is_query_path(path):
            return self._query
        if is_control_path(path):
            return self._control.app
        if path in self._service_paths:
            return self._service
        return self._dashboard.app if self._dashboard.serves(scope) else self._ingest

    def _readiness(self, request: Request) -> Response:
        """Report on the engines. Starlette runs this in a thread, since it is not a coroutine."""
        return response_from(readiness(request.method, self.engines(), **self._loading.status()))

    def engines(self) -> dict[str, bool]:
        """Return which engines answer now. It waits for them."""
        return {
            "catalog": _is_reachable(self._parts.catalog.installation.ping),
            "ledger": _is_reachable(self._ledger.ping),
            "warehouse": self._loading.has_warehouse,
            **self._plane.engines(),
        }


async def _refuse_method(_: Request, __: Exception) -> Response:
    return response_from(wrong_method("GET"))


def _is_reachable(ping: Callable[[], None]) -> bool:
    try:
        ping()
    except StoreUnavailableError:
        return False
    return True


def _load_every_s(settings: Settings) -> float:
    """Return the time between steps: half of what is promised, as an event may just miss one and wait for the next."""
    every_s = settings.flush_s / 2
    return every_s if settings.database_url is None else min(every_s, TRY_EVERY_S)


async def run(config: ChildConfig) -> None:
    settings = config.settings()
    if config.wants_setup_link:  # at the first start; one that dies starts again even if a server is away
        prepare(settings)
    drop_frozen(settings)
    registry = CollectorRegistry()
    expose_metrics(settings, 0, registry)
    loading = LoadRunner(lambda: open_load_parts(settings), LoadMetrics(registry))
    with control_parts(settings) as parts:
        parts.publisher.refill_if_lost()
        setup = renew_setup_link(parts) if config.wants_setup_link else None
        async with ingest_parts(settings, stream=0, registry=registry) as ingest:
            with (
                closing(open_warehouse_reader(settings)) as warehouse,
                open_load_lag(settings, loading) as lag,
                query_parts(settings, ingest.keyring, warehouse, parts.uses, is_loading_behind=lag.is_behind) as query,
                dashboard_parts(settings, parts, query) as dashboard,
            ):
                retention_job = retention(settings, parts)
                key_use_copy = KeyUseCopy(dashboard.ingest_stats, parts.catalog.keys, parts.clock)
                background = [
                    asyncio.create_task(write_stats_forever(ingest)),
                    asyncio.create_task(ingest.caps.refresh_forever()),
                    asyncio.create_task(repeat(SWEEP_EVERY_S, parts.publisher.publish_pending, "publication_delayed")),
                    asyncio.create_task(repeat(REFRESH_EVERY_S, ingest.keyring.refresh, "keyring_not_refreshed")),
                    asyncio.create_task(repeat(USES_FLUSH_EVERY_S, parts.uses.flush, "credential_uses_not_noted")),
                    asyncio.create_task(repeat(USES_FLUSH_EVERY_S, key_use_copy.copy, "key_uses_not_copied")),
                    asyncio.create_task(repeat(_load_every_s(settings), loading.step, "load_failed")),
                    asyncio.create_task(repeat(CHECK_EVERY_S, retention_job.forget_if_due, "raw_events_not_forgotten")),
                ]
                app = CoreApp(parts, ingest, query, dashboard, loading, timeout_s=settings.catalog_timeout_s)
                gauges = EngineGauges(registry, app.engines)
                background.append(asyncio.create_task(repeat(ENGINES_EVERY_S, gauges.refresh, "engines_not_checked")))
                admin_socket = AdminSocket(settings, loading)
                await admin_socket.open()
                await serve_until_stopped(
                    AsgiServer(RequestGuard(app, settings.connections_per_address), (config.host, config.port)),
                    Ready(setup.path.reveal() if setup else None),
                    has_failed=lambda: ingest.log.has_failed,
                )
                await admin_socket.close()
                loading.stop()
                await finished(background)
    loading.close()


if __name__ == "__main__":
    main(run)
