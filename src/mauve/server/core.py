"""The core process: every plane on the main port, and the loader."""

import asyncio

from prometheus_client import CollectorRegistry

from mauve.config import Settings
from mauve.ingest.plane import IngestPlane
from mauve.ingest.stats import write_stats_forever
from mauve.load.runner import LoadMetrics, LoadRunner
from mauve.query.answer_cache import AnswerCache
from mauve.server.admin_socket import AdminSocket
from mauve.server.api import open_api, ready_to_serve
from mauve.server.app import OtherPaths
from mauve.server.asgi_server import AsgiServer, RequestGuard
from mauve.server.child import (
    ENGINES_EVERY_S,
    EngineGauges,
    Preparation,
    expose_metrics,
    finished,
    log_failure,
    repeat,
    serve_until_stopped,
)
from mauve.server.child_protocol import ChildConfig, LoadWatch
from mauve.server.loader import end_turn, has_warehouse, start_loading
from mauve.server.scheduled_backups import BackupProcess, start_backups
from mauve.web.health import Drain
from mauve.wiring.bootstrap import control_parts
from mauve.wiring.ingest import ingest_parts
from mauve.wiring.maintenance import drop_frozen
from mauve.wiring.warehouse import open_load_parts


async def run(config: ChildConfig) -> None:
    settings = config.settings()
    preparation = Preparation(config, settings)
    drop_frozen(settings)
    registry = CollectorRegistry()
    expose_metrics(settings, 0, registry)
    cache = AnswerCache()
    loading = LoadRunner(lambda: open_load_parts(settings), LoadMetrics(registry))
    with control_parts(settings) as parts:
        ready = ready_to_serve(config, settings, parts, preparation)
        async with ingest_parts(settings, stream=0, registry=registry) as ingest:
            drain = Drain(settings.drain_s)
            others = ingest_and_loading(settings, IngestPlane(ingest), loading, drain)
            api = open_api(settings, parts, ingest.keyring, loading, others, registry=registry, cache=cache)
            with api as (app, background):
                gauges = EngineGauges(registry, app.engines)
                background += [
                    asyncio.create_task(write_stats_forever(ingest)),
                    asyncio.create_task(ingest.caps.refresh_forever()),
                    asyncio.create_task(repeat(ENGINES_EVERY_S, gauges.refresh, "engines_not_checked")),
                    *start_loading(settings, parts, loading),
                    *start_backups(settings, parts, backup := BackupProcess(settings), registry),
                ]
                admin_socket = AdminSocket(settings, loading, cache)
                await admin_socket.open()
                await serve_until_stopped(
                    AsgiServer(RequestGuard(app, settings.connections_per_address, drain), (config.host, config.port)),
                    ready,
                    failure=lambda: preparation.failure or log_failure(ingest.log),
                    on_stop=lambda: _end_work(loading, backup),
                    drain=drain,
                    is_loader_hung=LoadWatch(settings.load_hang_s, loading.work).is_hung,
                )
                await admin_socket.close()
                await finished(background)
    loading.close()


def _end_work(loading: LoadRunner, backup: BackupProcess) -> None:
    backup.stop()
    end_turn(loading)


def ingest_and_loading(settings: Settings, plane: IngestPlane, loading: LoadRunner, drain: Drain) -> OtherPaths:
    def engines() -> dict[str, bool]:
        return {"warehouse": has_warehouse(settings, loading), **plane.engines()}

    return OtherPaths(plane, engines, loading.status, drain)
