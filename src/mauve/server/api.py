"""Control plane, query plane and dashboard: part of the core, or a separate process."""

import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry

from mauve.access.keyring import Keyring
from mauve.access.uses import USES_FLUSH_EVERY_S, KeyUseCopy
from mauve.alerts.messages import AlertParts
from mauve.alerts.outbox import SEND_EVERY_S, Outbox
from mauve.alerts.runner import RUN_EVERY_S, AlertRunner
from mauve.config import Settings
from mauve.control import ControlParts
from mauve.control.people import LINK_LIFETIME_MS, renew_setup_link
from mauve.load.lag import Progress
from mauve.query.answer_cache import AnswerCache
from mauve.server.app import HealthApp, OtherPaths, ServiceApp, is_reachable
from mauve.server.asgi_server import AsgiServer, RequestGuard
from mauve.server.child import (
    ENGINES_EVERY_S,
    EngineGauges,
    Preparation,
    expose_metrics,
    finished,
    repeat,
    serve_until_stopped,
)
from mauve.server.child_protocol import ChildConfig, Ready
from mauve.web.health import Drain
from mauve.wiring.api import dashboard_parts, query_parts
from mauve.wiring.bootstrap import control_parts
from mauve.wiring.cluster import claim_setup_link
from mauve.wiring.ingest import open_keyring
from mauve.wiring.warehouse import open_load_lag, open_warehouse_reader, ping_warehouse

_PRUNE_EVERY_S: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class LoadsElsewhere:
    """The progress of a process that does not load: it is unknown, so the lag check looks at the log."""

    is_catching_up: bool = False
    caught_up_s_ago: float | None = None


@contextmanager
def open_api(
    settings: Settings,
    parts: ControlParts,
    keyring: Keyring,
    progress: Progress,
    others: OtherPaths,
    *,
    registry: CollectorRegistry,
    cache: AnswerCache | None = None,
) -> Iterator[tuple[ServiceApp, list[asyncio.Task[None]]]]:
    """Open the application and start its background tasks."""
    with (
        closing(open_warehouse_reader(settings)) as warehouse,
        open_load_lag(settings, progress) as lag,
        query_parts(settings, keyring, warehouse, parts.uses, cache=cache, is_loading_behind=lag.is_behind) as query,
        dashboard_parts(settings, parts, query) as dashboard,
    ):
        key_use_copy = KeyUseCopy(dashboard.ingest_stats, parts.catalog.keys, parts.clock)
        jobs = [
            repeat(USES_FLUSH_EVERY_S, parts.uses.flush, "credential_uses_not_noted"),
            repeat(USES_FLUSH_EVERY_S, key_use_copy.copy, "key_uses_not_copied"),
            repeat(_PRUNE_EVERY_S, parts.catalog.published.prune, "published_records_not_pruned"),
        ]
        yield (
            ServiceApp(parts, query, dashboard, others, timeout_s=settings.catalog_timeout_s),
            [*(asyncio.create_task(job) for job in jobs), *start_alerts(dashboard.alerts, registry)],
        )


def start_alerts(parts: AlertParts, registry: CollectorRegistry) -> list[asyncio.Task[None]]:
    """Start evaluating and sending, unless alerts are off. A slow receiver does not delay evaluation."""
    if not parts.is_on:
        return []
    runner, outbox = AlertRunner(parts), Outbox(parts, registry)
    evaluating = repeat(RUN_EVERY_S, runner.run_due, "rules_not_evaluated")
    return [asyncio.create_task(evaluating), asyncio.create_task(_send_forever(outbox))]


async def _send_forever(outbox: Outbox) -> None:
    """Send until cancelled, then finish the current batch and return."""
    sending = asyncio.create_task(repeat(SEND_EVERY_S, outbox.send_due, "alerts_not_sent"))
    try:
        await asyncio.shield(sending)
    except asyncio.CancelledError:
        outbox.stop()
        sending.cancel()
        await asyncio.wait({sending})
        raise


def ready_to_serve(config: ChildConfig, settings: Settings, parts: ControlParts, preparation: Preparation) -> Ready:
    if not preparation.is_done:
        return Ready(is_prepared=False)
    return _ready_to_set_up(settings, parts) if config.is_first else Ready()


def _ready_to_set_up(settings: Settings, parts: ControlParts) -> Ready:
    """Report a new set-up link, unless another machine has printed one, which it would replace."""
    if parts.catalog.users.any_exist():
        return Ready()
    host = claim_setup_link(settings, parts.catalog.installation, parts.clock.now_ms(), LINK_LIFETIME_MS)
    if host is not None:
        return Ready(setup_link_printed_by=host)
    link = renew_setup_link(parts)
    return Ready(link.path.reveal() if link else None)


async def run(config: ChildConfig) -> None:
    settings = config.settings()
    preparation = Preparation(config, settings)
    registry = CollectorRegistry()
    expose_metrics(settings, 0, registry)
    with control_parts(settings) as parts, open_keyring(settings, 0) as keyring:
        ready = ready_to_serve(config, settings, parts, preparation)
        others = OtherPaths(
            HealthApp(),
            lambda: {"warehouse": is_reachable(lambda: ping_warehouse(settings)), "keys": keyring.is_current},
            drain=(drain := Drain(settings.drain_s)),
        )
        with open_api(settings, parts, keyring, LoadsElsewhere(), others, registry=registry) as (app, background):
            gauges = EngineGauges(registry, app.engines)
            background.append(asyncio.create_task(repeat(ENGINES_EVERY_S, gauges.refresh, "engines_not_checked")))
            await serve_until_stopped(
                AsgiServer(RequestGuard(app, settings.connections_per_address, drain), (config.host, config.port)),
                ready,
                failure=lambda: preparation.failure,
                drain=drain,
            )
            await finished(background)
