"""What every child process does: listen, report that it is ready, stop when told or when left alone."""

import asyncio
import contextlib
import gc
import os
import resource
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Protocol

import msgspec
import structlog
import uvloop
from prometheus_client import CollectorRegistry, start_http_server

from mauve.access.vault import VaultError
from mauve.config import SettingError, Settings
from mauve.logs import configure_logs
from mauve.server.child_protocol import BEAT, ChildOrders, Ready, Refused, Report
from mauve.server.heartbeat import BEAT_EVERY_S
from mauve.server.stacks import write_when_told
from mauve.stores import NewerSchemaError, StoreUnavailableError
from mauve.stores.data_directory import HeldError
from mauve.web.http1.listener import CONNECTIONS_MAX

_OPEN_FILES: Final = 2 * CONNECTIONS_MAX  # connections, and the stores' files besides
_RECHECK_EVERY_S: Final = 0.2
_GARBAGE_THRESHOLD: Final = 50_000
# A sync that is done must not wait the usual 5 ms for a busy event loop to let its thread go on.
_SWITCH_INTERVAL_S: Final = 0.0002

log = structlog.get_logger()


def main(run: Callable[[ChildOrders], Coroutine[Any, Any, None]]) -> None:
    """Run a child under the orders in the first argument."""
    orders = msgspec.json.decode(sys.argv[1], type=ChildOrders)
    try:
        settings = orders.settings()
        configure_logs(settings.log, process=orders.name)
        if orders.stacks_fd is not None:
            write_when_told(orders.stacks_fd)
        allow_open_files()
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        uvloop.run(run(orders))
    except (HeldError, VaultError, NewerSchemaError, SettingError, StoreUnavailableError) as error:
        report(Refused(str(error)))
        sys.exit(1)
    except Exception:
        log.exception("process_failed")
        sys.exit(1)


def allow_open_files() -> None:
    """Raise this process's own limit on open files: what is usual is less than the connections that are taken."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def report(what: Report) -> None:
    """Tell the supervisor. It reads one line."""
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.buffer.write(msgspec.json.encode(what) + b"\n")
        sys.stdout.buffer.flush()


class Server(Protocol):
    """What listens."""

    async def open(self) -> None:
        """Return when clients can connect."""
        ...

    def stop(self) -> None:
        """Take nobody in any more."""
        ...

    async def closed(self) -> None:
        """Return when it was stopped and everybody has been answered."""
        ...


async def serve_until_stopped(server: Server, ready: Ready, has_failed: Callable[[], bool]) -> None:
    """Serve until SIGTERM, until the supervisor is gone, or until a restart is needed; finish what is in flight."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, server.stop)
    loop.add_signal_handler(signal.SIGINT, lambda: None)  # the supervisor decides, also on Ctrl-C
    loop.add_reader(sys.stdin.fileno(), _stop_when_alone, loop, server)
    await server.open()
    _spare_the_collector()
    report(ready)
    watching = asyncio.create_task(_stop_when_failed(server, has_failed))
    os.set_blocking(sys.stdout.fileno(), False)  # Nobody waits for a supervisor that does not read.
    _beat(loop)
    await server.closed()
    watching.cancel()


def _beat(loop: asyncio.AbstractEventLoop) -> None:
    """Show the supervisor every second, to the end, that the event loop goes round."""
    with contextlib.suppress(OSError):
        os.write(sys.stdout.fileno(), BEAT)
    loop.call_later(BEAT_EVERY_S, _beat, loop)


def _spare_the_collector() -> None:
    """Keep the garbage collector away from what lives as long as the process, and from running at every batch."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GARBAGE_THRESHOLD, 20, 20)


async def _stop_when_failed(server: Server, has_failed: Callable[[], bool]) -> None:
    while not has_failed():  # noqa: ASYNC110 - the log is no part of asyncio
        await asyncio.sleep(_RECHECK_EVERY_S)
    log.error("restart_needed", reason="the log cannot be written any more", advice="look at the disk")
    server.stop()


def expose_metrics(settings: Settings, number: int, registry: CollectorRegistry) -> None:
    """Let Prometheus read this process's figures, on loopback, if a port was chosen."""
    if not settings.metrics_port:
        return
    port = settings.metrics_port + number
    try:
        start_http_server(port, addr="127.0.0.1", registry=registry)
    except OSError as error:
        reason = os.strerror(error.errno or 0).lower()
        raise SettingError(
            f"cannot listen on 127.0.0.1 port {port} for metrics: {reason}; choose another MAUVE_METRICS_PORT"
        ) from None


async def repeat(every_s: float, work: Callable[[], object], failure: str) -> None:
    """Do the work again and again, in a thread of its own; a failure is logged and does not end it."""
    with ThreadPoolExecutor(1, thread_name_prefix=failure) as thread:
        while True:
            round_ = asyncio.get_running_loop().run_in_executor(thread, work)
            try:
                # Not cut short when we stop: the round that is under way is finished.
                await asyncio.shield(round_)
            except asyncio.CancelledError:
                await asyncio.wait({round_})
                raise
            except Exception as error:  # noqa: BLE001 - whatever it was, the next round may succeed
                log.warning(failure, reason=str(error), advice=f"trying again in {every_s} s")
            await asyncio.sleep(every_s)


async def finished(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Stop repeating, and return when the rounds under way are over."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _stop_when_alone(loop: asyncio.AbstractEventLoop, server: Server) -> None:
    if os.read(sys.stdin.fileno(), 1):  # Nothing is ever sent; the end of the file is the news.
        return
    loop.remove_reader(sys.stdin.fileno())
    server.stop()
