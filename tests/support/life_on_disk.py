"""A life of the service's parts in one process: it recovers, prints what it finds, then sends until it is killed.

It uses the real log, ledger, loader and warehouse, as wired. Lines on standard output: `found` with everything stored,
`sent N` before a batch is sent, `acked N` after it. Run `python -m support.life_on_disk DATA LIFE`, then write a line
to standard input when it may begin, so that its slow imports are done before.
"""

import asyncio
import json
import os
import random
import sqlite3
import sys
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Any

from prometheus_client import CollectorRegistry

from mauve.config import Settings, settings_from
from mauve.core.batch import packed_header
from mauve.core.events import Activity
from mauve.core.window import Window
from mauve.ingest import IngestParts
from mauve.load.runner import LoadMetrics, LoadRunner
from mauve.logs import configure_logs
from mauve.stores.ledger import Entry, Payment
from mauve.stores.warehouse.chdb import ChdbConnection
from mauve.wiring.bootstrap import prepare
from mauve.wiring.ingest import ingest_parts
from mauve.wiring.paths import ledger_path, warehouse_path
from mauve.wiring.warehouse import open_load_parts, open_warehouse_reader
from support.service import cut_batch

PROJECT = "proj_1"
ALL_DAYS = Window(date(2020, 1, 1), date(2100, 1, 1))
SENDERS = 4


def tell(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def payment_of(batch: dict[str, Any], now_ms: int) -> Payment:
    return Payment(
        org_id="org_1",
        project=PROJECT,
        id=batch["payment"],
        digest=b"same",
        claimed_at=None,
        amount=batch["amount"],
        currency="eur",
        earned=True,
        user=None,
        occurred_at=now_ms,
        received_at=now_ms,
        payload=b"{}",
    )


async def send(parts: IngestParts, life: int, number: int) -> None:
    batch, now_ms = cut_batch(life, number), time.time_ns() // 1_000_000
    header = packed_header(PROJECT, "org_1", now_ms, now_ms * 1000, len(batch["events"]))
    items = json.dumps(batch["events"]).encode()
    tell(f"sent {number}")
    if batch["payment"] is None:
        await parts.log.append([header, items])
    else:
        await parts.ledger.record(Entry(payments=[payment_of(batch, now_ms)], events=header + items))
    tell(f"acked {number}")


async def send_forever(parts: IngestParts, life: int, numbers: Iterator[int]) -> None:
    for number in numbers:
        await send(parts, life, number)
        if random.random() < 0.1:
            await send(parts, life, number)  # Its client did not get the answer, and retries.


async def live(settings: Settings, life: int) -> None:
    prepare(settings)
    registry = CollectorRegistry()
    loading = LoadRunner(lambda: open_load_parts(settings), LoadMetrics(registry))
    async with (
        ingest_parts(settings, 0, registry) as one,
        ingest_parts(settings, 1, CollectorRegistry()) as two,
    ):
        await asyncio.to_thread(loading.step)
        tell(f"found {json.dumps(await asyncio.to_thread(found, settings))}")
        numbers = iter(range(10**9))
        senders = [asyncio.create_task(send_forever(parts, life, numbers)) for parts in (one, two) * (SENDERS // 2)]
        while not any(sender.done() for sender in senders):
            await asyncio.to_thread(loading.step)


def found(settings: Settings) -> dict[str, object]:
    """Return everything stored, and what readers see of it."""
    reader = open_warehouse_reader(settings)
    connection = ChdbConnection(warehouse_path(settings.data))
    read = connection.read
    unprojected = "SETTINGS optimize_use_projections = 0, output_format_json_quote_64bit_integers = 0"
    return {
        "rows": read("SELECT id, name, user, counted, toString(seq) FROM mauve.events", {}),
        "names": reader.event_names(PROJECT, ALL_DAYS, 1000),
        "names_of_rows": read(f"SELECT name, sum(counted) FROM mauve.events GROUP BY name {unprojected}", {}),
        "mau": reader.users([PROJECT], [Activity.ACTIVE, Activity.SIGNUP], ALL_DAYS, None).get(PROJECT, 0),
        "dau": reader.users_by_day([PROJECT], Activity.ACTIVE, ALL_DAYS),
        "usage": _ledger(settings, "SELECT coalesce(sum(events), 0) FROM usage")[0][0],
        "payments": _ledger(settings, "SELECT id, amount FROM payments"),
        "totals": _ledger(settings, "SELECT total FROM day_totals"),
        "today": datetime.now(UTC).date().isoformat(),
    }


def _ledger(settings: Settings, sql: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(ledger_path(settings.data))
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


if __name__ == "__main__":
    _settings = settings_from({"MAUVE_DATA": sys.argv[1], "MAUVE_SEGMENT_MB": "3"})
    configure_logs("json")
    sys.stdin.readline()
    asyncio.run(live(_settings, int(sys.argv[2])))
