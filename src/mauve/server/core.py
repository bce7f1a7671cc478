"""The core process: every plane on the main port, and the loader."""

import asyncio

from prometheus_client import CollectorRegistry

from mauve.config import Settings
from mauve.control.links import renew_setup_link
from mauve.ingest.asgi import IngestApp
from mauve.ingest.plane import IngestPlane
from mauve.ingest.stats import write_stats_forever
from mauve.load.runner import LoadMetrics, LoadRunner
from mauve.server.admin_socket import AdminSocket
from mauve.server.api import open_api
from mauve.server.app import OtherPaths
from mauve.server.asgi_server import AsgiServer
from mauve.server.child import expose_metrics, finished, main, repeat, serve_until_stopped
from mauve.server.child_protocol import ChildConfig, Ready
from mauve.server.engine_gauges import CHECK_EVERY_S, EngineGauges
from mauve.server.loader import has_warehouse, start_loading
from mauve.server.request_guard import RequestGuard
from mauve.wiring.bootstrap import prepare
from mauve.wiring.control import control_parts
from mauve.wiring.ingest import ingest_parts
from mauve.wiring.maintenance import drop_frozen
from mauve.wiring.warehouse import open_load_parts


async def run(config: ChildConfig) -> None:
    settings = config.settings()
    if config.is_first:  # A core that died starts again even if a server is away.
        prepare(settings)
    drop_frozen(settings)
    registry = CollectorRegistry()
    expose_metrics(settings, 0, registry)
    loading = LoadRunner(lambda: open_load_parts(settings), LoadMetrics(registry))
    with control_parts(settings) as parts:
        parts.publisher.refill_if_lost()
        setup = renew_setup_link(parts) if config.is_first else None
        async with ingest_parts(settings, stream=0, registry=registry) as ingest:
            others = ingest_and_loading(settings, IngestPlane(ingest), loading)
            with open_api(settings, parts, ingest.keyring, loading, others) as (app, background):
                gauges = EngineGauges(registry, app.engines)
                background += [
                    asyncio.create_task(write_stats_forever(ingest)),
                    asyncio.create_task(ingest.caps.refresh_forever()),
                    asyncio.create_task(repeat(CHECK_EVERY_S, gauges.refresh, "engines_not_checked")),
                    *start_loading(settings, parts, loading),
                ]
                admin_socket = AdminSocket(settings, loading)
                await admin_socket.open()
                await serve_until_stopped(
                    AsgiServer(RequestGuard(app, settings.connections_per_address), (config.host, config.port)),
                    Ready(setup.path.reveal() if setup else None),
                    has_failed=lambda: ingest.log.has_failed,
                    on_stop=loading.stop,
                )
                await admin_socket.close()
                await finished(background)
    loading.close()


def ingest_and_loading(settings: Settings, plane: IngestPlane, loading: LoadRunner) -> OtherPaths:
    def engines() -> dict[str, bool]:
        return {"warehouse": has_warehouse(settings, loading), **plane.engines()}

    return OtherPaths(IngestApp(plane), engines, loading.status)


if __name__ == "__main__":
    main(run)
