"""Alerts and digests in the background: one job judges, another sends."""

import asyncio

from prometheus_client import CollectorRegistry

from mauve.alerts.metrics import AlertMetrics
from mauve.alerts.outbox import SEND_EVERY_S, Outbox
from mauve.alerts.parts import AlertParts
from mauve.alerts.runner import JUDGE_EVERY_S, AlertRunner
from mauve.server.child import repeat


def start_alerts(parts: AlertParts, registry: CollectorRegistry) -> list[asyncio.Task[None]]:
    """Start both jobs, unless they are off. A slow receiver delays other messages a little, but no judgment."""
    if not parts.is_on:
        return []
    runner, outbox = AlertRunner(parts), Outbox(parts, AlertMetrics(registry))
    judging = repeat(JUDGE_EVERY_S, runner.judge_due, "rules_not_judged")
    return [asyncio.create_task(judging), asyncio.create_task(_send_forever(outbox))]


async def _send_forever(outbox: Outbox) -> None:
    """Send until cancelled; then begin no further batch, and return when the one in progress is over."""
    sending = asyncio.create_task(repeat(SEND_EVERY_S, outbox.send_due, "alerts_not_sent"))
    try:
        await asyncio.shield(sending)
    except asyncio.CancelledError:
        outbox.stop()
        sending.cancel()
        await asyncio.wait({sending})
        raise
