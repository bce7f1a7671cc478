"""Kill the loader between two steps of a load; the next one counts every event exactly once.

Proves: interrupted-load.
"""

import asyncio
import json
import signal
import subprocess
import sys

import pytest
from prometheus_client import CollectorRegistry

from mauve.core.batch import packed_header
from mauve.wiring.ingest import ingest_parts
from support.service import clean_environment

# In a separate process: it is killed, and the embedded engine opens only one path per process.
LOAD = """
import json, os, signal, sys
from prometheus_client import CollectorRegistry
from mauve.config import settings_from
from mauve.load.runner import LoadMetrics, LoadRunner
from mauve.stores.warehouse.chdb import ChdbConnection
from mauve.stores.warehouse.warehouse import ChdbWarehouse
from mauve.stores.ledger.loading import LoadLedger
from mauve.wiring.databases import open_load_ledger
from mauve.wiring.paths import warehouse_path
from mauve.wiring.warehouse import open_load_parts

settings = settings_from({"MAUVE_DATA": sys.argv[1]})
owner, _, name = sys.argv[2].partition(".")
if owner:
    die = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    setattr({"ChdbWarehouse": ChdbWarehouse, "LoadLedger": LoadLedger}[owner], name, die)
runner = LoadRunner(lambda: open_load_parts(settings), LoadMetrics(CollectorRegistry()))
runner.step()
rows = ChdbConnection(warehouse_path(settings.data)).rows("SELECT count(), sum(counted) FROM mauve.events")
with open_load_ledger(settings) as ledger:
    print(json.dumps({"rows": rows[0], "usage": ledger.usage("2027-01"), "intent": repr(ledger.intent())}))
runner.close()
"""
RECEIVED_AT = 1_800_000_000_000  # in January 2027


def load(settings, dies_at=""):
    program = [sys.executable, "-c", LOAD, str(settings.data), dies_at]
    return subprocess.run(program, env=clean_environment(), capture_output=True, text=True, check=False)


def send(settings, *ids):
    async def append():
        async with ingest_parts(settings, 1, CollectorRegistry()) as parts:
            for place, id_ in enumerate(ids):
                header = packed_header("proj_1", "org_1", RECEIVED_AT, RECEIVED_AT * 1000 + place, 2)
                await parts.log.append([header, b'[{"name":"view","id":"%d"},{"name":"view"}]' % id_])

    asyncio.run(append())


@pytest.mark.parametrize("step", ["ChdbWarehouse.commit", "LoadLedger.finish"], ids=["before storing", "before finish"])
def test_a_loader_killed_between_two_steps_leaves_exact_counts(settings, step):
    send(settings, 1, 2, 1)
    assert load(settings, step).returncode == -signal.SIGKILL
    send(settings, 2, 3)
    done = load(settings)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {"rows": [10, 8], "usage": {"org_1": 8}, "intent": "None"}
