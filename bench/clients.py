"""The Python client, beside two others that send to the same stub: the cost of a call, throughput, memory.

The others are installed into a temporary environment; without a network the run says that it left them out.
"""

import json
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.driver import app_key
from bench.report import Figure, at_most
from bench.service import service

SOURCES = Path(__file__).parents[1] / "clients/python/src"
QUEUE = 10_000
CALLS = 8_000  # fewer than the queue holds
ROUNDS = 5
OTHERS = ("posthog", "segment-analytics-python")
DEAD = "http://127.0.0.1:1"

# Each opens a client and says how to queue an event and how to wait until all are sent.
MAUVE = """
from mauve_metrics import Mauve
client = Mauve(key, url=url, max_queue=queue, compress=False)
def track(n): client.track("report_opened", user=f"user {n}", props={"plan": "pro", "count": n})
def finish(): assert client.flush(600) and client.stats.dropped == 0, client.stats
"""
POSTHOG = """
from posthog import Posthog
client = Posthog(key, host=url, max_queue_size=queue, flush_at=500, flush_interval=1.0)
def track(n): client.capture("report_opened", distinct_id=f"user {n}", properties={"plan": "pro", "count": n})
def finish(): client.flush()
"""
SEGMENT = """
from segment.analytics.client import Client
client = Client(key, host=url, max_queue_size=queue, upload_size=500, upload_interval=1.0)
def track(n): client.track(f"user {n}", "report_opened", {"plan": "pro", "count": n})
def finish(): client.flush()
"""

PROGRAM = """
import json, logging, os, sys, time
url, key, mode = sys.argv[1:4]
queue, calls = map(int, sys.argv[4:6])
logging.disable(logging.CRITICAL)
%s
def resident_kb():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmRSS")).split()[1])
track(0)
before, began, worked = resident_kb(), time.perf_counter(), time.thread_time()
for n in range(calls):
    track(n)
called = time.thread_time() - worked  # of this thread: what the machine does besides does not count
grown = resident_kb() - before
if mode == "rate":
    finish()
done = time.perf_counter() - began
print(json.dumps({"call_us": called / calls * 1e6, "rate": calls / done, "queue_kb": grown}), flush=True)
os._exit(0)
"""

STUB = """
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        body = b'{"status":1,"success":true}'
        self.send_response(202 if self.path == "/v1/events" else 200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    do_GET = do_POST
    def log_message(self, *_): pass
server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


def measure() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder, stub() as url:
        python = _install_others(Path(folder))
        libraries = {"mauve-metrics": (sys.executable, MAUVE)}
        if python is None:
            yield Figure("other clients", "left out: they could not be installed")
        else:
            libraries |= {"posthog": (python, POSTHOG), "segment": (python, SEGMENT)}
        costs = {}
        for name, (interpreter, program) in libraries.items():
            runs = [_run(interpreter, program, url, "sk_live_bench") for _ in range(ROUNDS)]
            costs[name] = min(done["call_us"] for done in runs)
            yield Figure(f"{name}: one call on the caller's thread", f"{costs[name]:.1f} us")
            yield Figure(f"{name}: to a stub", f"{max(done['rate'] for done in runs):,.0f} events/s")
            full = _run(interpreter, program, DEAD, "sk_live_bench", "memory")
            yield Figure(f"{name}: memory of {CALLS:,} queued events", f"{full['queue_kb'] / 1024:.1f} MB")
        if python is not None:
            own, *others = costs.values()
            ratio = own / min(others)
            floor = at_most(ratio, 1, "of the cheaper other client")
            yield Figure("mauve-metrics: the cost of a call", f"{own:.1f} us", ratio, floor)
    with service("--workers", "1") as running:
        url, key = f"http://127.0.0.1:{running.ingest_port}", app_key(running)
        rate = max(_run(sys.executable, MAUVE, url, key)["rate"] for _ in range(ROUNDS))
        yield Figure("mauve-metrics to one ingest worker", f"{rate:,.0f} events/s")


def _run(python: str, program: str, url: str, key: str, mode: str = "rate") -> dict[str, float]:
    command = [python, "-P", "-c", PROGRAM % program, url, key, mode, str(QUEUE), str(CALLS)]
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=600)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def _install_others(folder: Path) -> str | None:
    venv.create(folder / "venv", with_pip=True)
    python = str(folder / "venv/bin/python")
    command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *OTHERS]
    return python if subprocess.run(command, capture_output=True, check=False).returncode == 0 else None


@contextmanager
def stub() -> Iterator[str]:
    """Run a server that accepts everything in a process of its own."""
    with subprocess.Popen([sys.executable, "-P", "-c", STUB], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()
