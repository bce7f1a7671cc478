"""Control plane, query plane and dashboard: part of the core, or a separate process."""

import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Final

from mauve.access.keyring import Keyring
from mauve.access.uses import USES_FLUSH_EVERY_S, KeyUseCopy
from mauve.alerts.outbox import SEND_EVERY_S, Outbox
from mauve.alerts.runner import RUN_EVERY_S, AlertRunner
from mauve.control import ControlParts
from mauve.control.people import LINK_LIFETIME_MS, renew_setup_link
from mauve.load.lag import Progress
from mauve.query.answer_cache import AnswerCache
from mauve.server.app import OtherPaths, ServiceApp, is_reachable
from mauve.server.asgi_server import AsgiServer
from mauve.server.child import Child, repeat
from mauve.server.child_protocol import Ready
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
    child: Child,
    parts: ControlParts,
    keyring: Keyring,
    progress: Progress,
    others: OtherPaths,
    *,
    cache: AnswerCache | None = None,
) -> Iterator[ServiceApp]:
    """Open the application and start its background tasks."""
    settings = child.settings
    with (
        closing(open_warehouse_reader(settings)) as warehouse,
        open_load_lag(settings, progress) as lag,
        query_parts(settings, keyring, warehouse, parts.uses, cache=cache, is_loading_behind=lag.is_behind) as query,
        dashboard_parts(settings, parts, query) as dashboard,
    ):
        key_use_copy = KeyUseCopy(dashboard.ingest_stats, parts.catalog.keys, parts.clock)
        child.start(
            repeat(USES_FLUSH_EVERY_S, parts.uses.flush, "credential_uses_not_noted"),
            repeat(USES_FLUSH_EVERY_S, key_use_copy.copy, "key_uses_not_copied"),
            repeat(_PRUNE_EVERY_S, parts.catalog.published.prune, "published_records_not_pruned"),
        )
        if dashboard.alerts.is_on:
            runner, outbox = AlertRunner(dashboard.alerts), Outbox(dashboard.alerts, child.registry)
            # Two jobs: a slow receiver does not delay evaluation.
            child.start(repeat(RUN_EVERY_S, runner.run_due, "rules_not_evaluated"), _send_forever(outbox))
        yield ServiceApp(parts, query, dashboard, others, timeout_s=settings.catalog_timeout_s)


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


def ready_to_serve(child: Child, parts: ControlParts) -> Ready:
    """Return the report, with a new set-up link if needed, unless another machine has printed one."""
    if not child.preparation.is_done:
        return Ready(is_prepared=False)
    if not child.config.is_first or parts.catalog.users.any_exist():
        return Ready()
    host = claim_setup_link(child.settings, parts.catalog.installation, parts.clock.now_ms(), LINK_LIFETIME_MS)
    if host is not None:
        return Ready(setup_link_printed_by=host)
    link = renew_setup_link(parts)
    return Ready(link.path.reveal() if link else None)


async def run(child: Child) -> None:
    settings = child.settings
    with control_parts(settings) as parts, open_keyring(settings, 0) as keyring:

        def engines() -> dict[str, bool]:
            return {"warehouse": is_reachable(lambda: ping_warehouse(settings)), "keys": keyring.is_current}

        ready = ready_to_serve(child, parts)
        with open_api(child, parts, keyring, LoadsElsewhere(), OtherPaths(None, engines, drain=child.drain)) as app:
            await child.serve(AsgiServer(app, settings, child.drain), app.engines, ready=ready)
            await child.finish()
