"""An ingest worker: only the ingest plane, on its own port. It does not depend on other processes."""

import asyncio

from prometheus_client import CollectorRegistry

from mauve.ingest.plane import IngestPlane
from mauve.ingest.stats import write_stats_forever
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
from mauve.server.child_protocol import ChildConfig, Ready
from mauve.web.health import Drain
from mauve.web.http1.listener import Listener
from mauve.wiring.ingest import ingest_parts


async def run(config: ChildConfig) -> None:
    settings = config.settings()
    preparation = Preparation(config, settings)
    registry = CollectorRegistry()
    expose_metrics(settings, config.number, registry)
    async with ingest_parts(settings, config.number, registry) as parts:
        counting = asyncio.create_task(parts.caps.refresh_forever())
        noting = asyncio.create_task(write_stats_forever(parts))
        drain = Drain(settings.drain_s)
        plane = IngestPlane(parts, drain)
        gauges = EngineGauges(registry, plane.engines)
        checking = asyncio.create_task(repeat(ENGINES_EVERY_S, gauges.refresh, "engines_not_checked"))
        await serve_until_stopped(
            Listener(
                plane.answer,
                (config.host, config.ingest_port),
                settings.connections_per_address,
                drain,
                plane.begin,
            ),
            Ready(is_prepared=preparation.is_done),
            failure=lambda: preparation.failure or log_failure(parts.log),
            drain=drain,
        )
        await finished([counting, noting, checking])
