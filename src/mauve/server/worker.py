"""An ingest worker: only the ingest plane, on its own port. It does not depend on other processes."""

from mauve.ingest.plane import IngestPlane
from mauve.ingest.stats import write_stats_forever
from mauve.server.child import Child
from mauve.web.http1.listener import Listener
from mauve.wiring.ingest import ingest_parts


async def run(child: Child) -> None:
    settings = child.settings
    async with ingest_parts(settings, child.config.number, child.registry) as parts:
        plane = IngestPlane(parts, child.drain)
        child.start(parts.caps.refresh_forever(), write_stats_forever(parts))
        address = (settings.host, settings.ingest_port)
        listener = Listener(plane.answer, address, settings.connections_per_address, child.drain, plane.begin)
        await child.serve(listener, plane.engines, log_writer=parts.log)
        await child.finish()
