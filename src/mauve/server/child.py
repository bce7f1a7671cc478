"""The life of a child process: listen, report readiness, stop on SIGTERM or when the supervisor is gone."""

import asyncio
import contextlib
import gc
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Protocol

import msgspec
import structlog
import uvloop
from prometheus_client import CollectorRegistry, Gauge, start_http_server

from mauve.access.vault import VaultError
from mauve.config import SettingError, Settings
from mauve.logs import configure_logs
from mauve.maintenance.errors import MaintenanceFailedError, MaintenanceRefusedError
from mauve.server.child_protocol import (
    HEARTBEAT,
    HEARTBEAT_EVERY_S,
    LOADER_HANGS,
    ChildConfig,
    Ready,
    Refused,
    Report,
    dump_stacks_on_signal,
)
from mauve.stores import ForeignDataError, NewerSchemaError, StoreUnavailableError, UnsupportedServerError
from mauve.stores.data_directory import HeldError
from mauve.stores.log import LogWriter
from mauve.web.health import Drain
from mauve.web.http1.listener import CONNECTIONS_MAX
from mauve.wiring.bootstrap import prepare_unless_down

_RETRY_S: Final = 2.0
_PING_EVERY_S: Final = 5.0
_OPEN_FILES: Final = 2 * CONNECTIONS_MAX  # connections, plus the stores' files
_CHECK_EVERY_S: Final = 0.2
_GARBAGE_THRESHOLD: Final = 50_000
# After an fsync, its thread must not wait the default 5 ms for a busy event loop to yield the interpreter.
_SWITCH_INTERVAL_S: Final = 0.0002
_configs: Final = msgspec.json.Decoder(ChildConfig)

log = structlog.get_logger()


class Server(Protocol):
    """A server that listens on one port."""

    async def open(self) -> None:
        """Return when clients can connect."""
        ...

    def stop(self) -> None:
        """Accept no more connections."""
        ...

    async def closed(self) -> None:
        """Return once the server has stopped and answered every request."""
        ...


class Preparation:
    """Raises if the installation is not servable."""

    def __init__(self, config: ChildConfig, settings: Settings) -> None:
        self._settings = settings
        self._down = _prepared_unless_stopped(settings) if config.is_first else None
        self.failure: str | None = None
        if self._down is not None:
            log.warning("started_degraded", reason=self._down, advice="it recovers when the server is back up")
            threading.Thread(target=self._finish, name="preparation", daemon=True).start()

    @property
    def is_done(self) -> bool:
        return self._down is None

    def _finish(self) -> None:
        while self._down is not None:
            time.sleep(_RETRY_S)
            try:
                self._down = prepare_unless_down(self._settings)
            except Exception as error:  # noqa: BLE001 - the next start reports it
                self.failure = str(error)
                return
        log.info("prepared")


def _prepared_unless_stopped(settings: Settings) -> str | None:
    """Prepare the installation; on SIGTERM, clean up after an incomplete first start and exit."""
    former = signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        return prepare_unless_down(settings)
    finally:
        signal.signal(signal.SIGTERM, former)


class Child:
    """What every child process has: settings, metrics, a prepared installation, background tasks, and one server."""

    def __init__(self, config: ChildConfig) -> None:
        self.config = config
        self.settings = config.settings()
        self.drain = Drain(self.settings.drain_s)
        self.registry = CollectorRegistry()
        self.preparation = Preparation(config, self.settings)
        self._background: list[asyncio.Task[None]] = []
        _expose_metrics(self.settings, config.number, self.registry)

    def start(self, *jobs: Coroutine[Any, Any, None]) -> None:
        """Start background tasks."""
        self._background += [asyncio.create_task(job) for job in jobs]

    async def serve(
        self,
        server: Server,
        engines: Callable[[], Mapping[str, bool]],
        *,
        ready: Ready | None = None,
        log_writer: LogWriter | None = None,
        on_stop: Callable[[], None] = lambda: None,
        is_loader_hung: Callable[[], bool] = lambda: False,
    ) -> None:
        """Serve until stopped. Ping the engines for Prometheus, and restart if the log or the preparation fails."""
        up = Gauge("mauve_engine_up", "Whether an engine answers: 1 or 0", ["engine"], registry=self.registry)

        def ping_engines() -> None:
            for name, is_up in engines().items():
                up.labels(name).set(is_up)

        def failure() -> str | None:
            if log_writer is not None and log_writer.has_failed:
                return "the log can no longer be written: check the disk"
            return self.preparation.failure

        self.start(repeat(_PING_EVERY_S, ping_engines, "engines_not_checked"))
        await serve_until_stopped(
            server,
            ready or Ready(is_prepared=self.preparation.is_done),
            failure,
            on_stop=on_stop,
            drain=self.drain,
            is_loader_hung=is_loader_hung,
        )

    async def finish(self) -> None:
        """Cancel the background tasks and wait for their rounds in progress."""
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)


def main(run: Callable[[Child], Coroutine[Any, Any, None]]) -> None:
    config = _configs.decode(sys.argv[1])
    try:
        configure_logs(config.settings().log, process=config.name)
        if config.stacks_fd is not None:
            dump_stacks_on_signal(config.stacks_fd)
        allow_open_files()
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        uvloop.run(run(Child(config)))
    except (HeldError, MaintenanceRefusedError, VaultError, SettingError, StoreUnavailableError) as error:
        report(Refused(str(error)))
        sys.exit(1)
    except (ForeignDataError, MaintenanceFailedError, NewerSchemaError, UnsupportedServerError) as error:
        report(Refused(str(error), exit_code=1))
        sys.exit(1)
    except Exception:
        log.exception("process_failed")
        sys.exit(1)


def allow_open_files() -> None:
    """Raise the limit on open files, whose usual default is lower than the number of connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def report(what: Report) -> None:
    """Send the supervisor its only report."""
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.buffer.write(msgspec.json.encode(what) + b"\n")
        sys.stdout.buffer.flush()


async def serve_until_stopped(
    server: Server,
    ready: Ready,
    failure: Callable[[], str | None],
    *,
    on_stop: Callable[[], None] = lambda: None,
    drain: Drain | None = None,
    is_loader_hung: Callable[[], bool] = lambda: False,
) -> None:
    """Serve until SIGTERM, until the supervisor is gone, or until a restart is needed; finish requests in flight.

    After SIGTERM, requests are still answered while clients move to other machines. The supervisor cuts that short by
    closing standard input, not with a second SIGTERM, because service managers also signal every process. `on_stop` is
    called as soon as a stop is requested.
    """
    loop, draining = asyncio.get_running_loop(), drain or Drain()

    def begin_to_stop() -> None:
        if not draining.is_on:
            draining.is_on = True
            on_stop()
            loop.call_later(draining.seconds, server.stop)

    def stop() -> None:
        begin_to_stop()
        server.stop()

    loop.add_signal_handler(signal.SIGTERM, begin_to_stop)
    loop.add_signal_handler(signal.SIGINT, lambda: None)  # The supervisor also handles Ctrl-C.
    loop.add_reader(sys.stdin.fileno(), _stop_when_orphaned, loop, stop)
    await server.open()
    _tune_garbage_collector()
    report(ready)
    watching = asyncio.create_task(_stop_when_failed(stop, failure))
    os.set_blocking(sys.stdout.fileno(), False)  # Never block on a supervisor that does not read.
    _send_heartbeat(loop, is_loader_hung)
    await server.closed()
    watching.cancel()


def _send_heartbeat(loop: asyncio.AbstractEventLoop, is_loader_hung: Callable[[], bool]) -> None:
    """Report to the supervisor every second that the event loop is alive, and whether the loader hangs."""
    with contextlib.suppress(OSError):
        os.write(sys.stdout.fileno(), LOADER_HANGS if is_loader_hung() else HEARTBEAT)
    loop.call_later(HEARTBEAT_EVERY_S, _send_heartbeat, loop, is_loader_hung)


def _tune_garbage_collector() -> None:
    """Exempt long-lived objects from garbage collection, and keep it from running on every batch."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GARBAGE_THRESHOLD, 20, 20)


async def _stop_when_failed(stop: Callable[[], None], failure: Callable[[], str | None]) -> None:
    while (reason := failure()) is None:  # noqa: ASYNC110 - the log is not part of asyncio
        await asyncio.sleep(_CHECK_EVERY_S)
    log.error("restart_needed", reason=reason)
    stop()


def _expose_metrics(settings: Settings, number: int, registry: CollectorRegistry) -> None:
    """Serve this process's metrics to Prometheus, if a port is configured."""
    if not settings.metrics_port:
        return
    port = settings.metrics_port + number
    try:
        start_http_server(port, addr=settings.metrics_host, registry=registry)
    except OSError as error:
        reason = os.strerror(error.errno or 0).lower()
        raise SettingError(
            f"cannot listen on {settings.metrics_host} port {port} for metrics: {reason}; "
            "choose another MAUVE_METRICS_PORT or MAUVE_METRICS_HOST"
        ) from None


async def repeat(every_s: float, work: Callable[[], object], failure: str) -> None:
    """Repeat the work forever in its own thread. Log failures and continue."""
    with ThreadPoolExecutor(1, thread_name_prefix=failure) as thread:
        while True:
            round_ = asyncio.get_running_loop().run_in_executor(thread, work)
            try:
                # On cancellation, finish the round in progress.
                await asyncio.shield(round_)
            except asyncio.CancelledError:
                await asyncio.wait({round_})
                raise
            except Exception as error:  # noqa: BLE001 - the next round may succeed
                log.warning(failure, reason=str(error), advice=f"retrying in {every_s} s")
            await asyncio.sleep(every_s)


def _stop_when_orphaned(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
    if os.read(sys.stdin.fileno(), 1):  # Nothing is ever sent; only end-of-file matters.
        return
    loop.remove_reader(sys.stdin.fileno())
    stop()
