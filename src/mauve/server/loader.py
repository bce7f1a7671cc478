"""The loader and the warehouse jobs: part of the core, or a separate process."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import closing
from typing import Any

import structlog

from mauve.config import Settings
from mauve.control import ControlParts
from mauve.load.lease import TRY_EVERY_S
from mauve.load.runner import LoadMetrics, LoadRunner
from mauve.maintenance.retention import CHECK_EVERY_S
from mauve.server.admin_socket import AdminSocket
from mauve.server.app import ProbesApp, is_reachable
from mauve.server.asgi_server import AsgiServer
from mauve.server.child import Child, repeat
from mauve.server.child_protocol import Watchdog
from mauve.web.health import Probes
from mauve.wiring.bootstrap import control_parts
from mauve.wiring.databases import open_load_ledger
from mauve.wiring.log import LOOK_S_MAX, open_log_reader
from mauve.wiring.maintenance import retention
from mauve.wiring.warehouse import open_load_parts, ping_warehouse

log = structlog.get_logger()


def loading_jobs(settings: Settings, parts: ControlParts, loading: LoadRunner) -> list[Coroutine[Any, Any, None]]:
    """Return the jobs that load events and anonymize old ones."""
    # Twice as often as promised: an event may just miss a step and wait for the next.
    every_s = settings.flush_s / 2
    if settings.database_url is not None:
        every_s = min(every_s, TRY_EVERY_S)
    forgetting = retention(settings, parts)
    return [
        repeat(every_s, loading.step, "load_failed"),
        repeat(CHECK_EVERY_S, forgetting.forget_if_due, "raw_events_not_forgotten"),
    ]


def release_lease(loading: LoadRunner) -> None:
    """Stop loading and release the lease immediately: another machine takes over while this one finishes."""
    loading.stop()
    ending = asyncio.get_running_loop().run_in_executor(None, loading.step)
    ending.add_done_callback(_log_failure)


def _log_failure(ending: asyncio.Future[None]) -> None:
    error = None if ending.cancelled() else ending.exception()
    if error is not None:
        log.error("lease_not_released", advice="another loader takes over when it expires", exc_info=error)


async def run(child: Child) -> None:
    settings = child.settings
    loading = LoadRunner(lambda: open_load_parts(settings), LoadMetrics(child.registry))
    with control_parts(settings) as parts:
        engines = _engines(settings, parts, loading)
        child.start(*loading_jobs(settings, parts, loading))
        admin_socket = AdminSocket(settings, loading)
        await admin_socket.open()
        await child.serve(
            AsgiServer(ProbesApp(Probes(engines, child.drain, loading.status)), settings, child.drain),
            engines,
            on_stop=lambda: release_lease(loading),
            is_loader_hung=Watchdog(settings.load_hang_s, loading.work).is_hung,
        )
        await admin_socket.close()
        await child.finish()
    loading.close()


def has_warehouse(settings: Settings, loading: LoadRunner) -> bool:
    """Return whether the warehouse works. Ping a server: without loading, its failure would go unnoticed."""
    return loading.has_warehouse and is_reachable(lambda: ping_warehouse(settings))


def _engines(settings: Settings, parts: ControlParts, loading: LoadRunner) -> Callable[[], dict[str, bool]]:
    def positions() -> None:
        with open_load_ledger(settings) as ledger:
            ledger.positions()

    def size_of_log() -> None:
        with closing(open_log_reader(settings, LOOK_S_MAX)) as log:
            log.stored_bytes()

    return lambda: {
        "catalog": is_reachable(parts.catalog.installation.ping),
        "ledger": is_reachable(positions),
        "log": is_reachable(size_of_log),
        "warehouse": has_warehouse(settings, loading),
    }
