"""The core process: every plane on the main port, and the loader."""

from mauve.config import Settings
from mauve.ingest.plane import IngestPlane
from mauve.ingest.stats import write_stats_forever
from mauve.load.runner import LoadMetrics, LoadRunner
from mauve.query.answer_cache import AnswerCache
from mauve.server.admin_socket import AdminSocket
from mauve.server.api import open_api, ready_to_serve
from mauve.server.app import OtherPaths
from mauve.server.asgi_server import AsgiServer
from mauve.server.child import Child
from mauve.server.child_protocol import Watchdog
from mauve.server.loader import has_warehouse, loading_jobs, release_lease
from mauve.server.scheduled_backups import BackupProcess, backup_jobs
from mauve.web.health import Drain
from mauve.wiring.bootstrap import control_parts
from mauve.wiring.ingest import ingest_parts
from mauve.wiring.maintenance import drop_frozen
from mauve.wiring.warehouse import open_load_parts


async def run(child: Child) -> None:
    settings = child.settings
    drop_frozen(settings)
    cache = AnswerCache()
    loading = LoadRunner(lambda: open_load_parts(settings), LoadMetrics(child.registry))
    with control_parts(settings) as parts:
        ready = ready_to_serve(child, parts)
        async with ingest_parts(settings, stream=0, registry=child.registry) as ingest:
            others = ingest_and_loading(settings, IngestPlane(ingest), loading, child.drain)
            with open_api(child, parts, ingest.keyring, loading, others, cache=cache) as app:
                backup = BackupProcess(settings)
                child.start(
                    write_stats_forever(ingest),
                    ingest.caps.refresh_forever(),
                    *loading_jobs(settings, parts, loading),
                    *backup_jobs(settings, parts, backup, child.registry),
                )
                admin_socket = AdminSocket(settings, loading, cache)
                await admin_socket.open()
                await child.serve(
                    AsgiServer(app, settings, child.drain),
                    app.engines,
                    ready=ready,
                    log_writer=ingest.log,
                    on_stop=lambda: _end_work(loading, backup),
                    is_loader_hung=Watchdog(settings.load_hang_s, loading.work).is_hung,
                )
                await admin_socket.close()
                await child.finish()
    loading.close()


def _end_work(loading: LoadRunner, backup: BackupProcess) -> None:
    backup.stop()
    release_lease(loading)


def ingest_and_loading(settings: Settings, plane: IngestPlane, loading: LoadRunner, drain: Drain) -> OtherPaths:
    def engines() -> dict[str, bool]:
        return {"warehouse": has_warehouse(settings, loading), **plane.engines()}

    return OtherPaths(plane, engines, loading.status, drain)
