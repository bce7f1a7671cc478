"""Start the child processes, restart those that die or hang, and stop them all.

The supervisor does nothing else, so little in it can fail. Children stop when it is gone: each holds the reading end of
a pipe from it.
"""

import asyncio
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import IO, Final

import msgspec
import structlog

from mauve.config import Settings
from mauve.server.child_process import ChildProcess, ServeRefusedError
from mauve.server.child_protocol import ChildConfig, ChildRole, Ready
from mauve.stores.data_directory import Holder, clear_holder, hold, make_private_directory, record_holder
from mauve.urls import http_url

INIT: Final = 1
_REAP_EVERY_S: Final = 5.0


async def keep_reaping(own: Callable[[], Collection[int]]) -> None:
    """As process 1, reap orphans forever; otherwise the system does. `own` are children that have other waiters."""
    while os.getpid() == INIT:
        await asyncio.sleep(_REAP_EVERY_S)
        reap(own())


def reap(own: Collection[int]) -> None:
    """Reap ended children up to the first of our own, whose exit code belongs to its waiter."""
    try:
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and ended.si_pid not in own:
            os.waitpid(ended.si_pid, 0)
    except ChildProcessError:
        return  # There are no children at all.


_STOP_GRACE_S: Final = 8.0
_RESTART_DELAYS_S: Final = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0)
_STEADY_AFTER_S: Final = 30.0
_MAIN_PROCESSES: Final[Mapping[str, ChildRole]] = {"all": "core", "api": "api", "loader": "loader"}
_ROLES_WITH_WORKERS: Final = ("all", "ingest")

log = structlog.get_logger()


class Running(msgspec.Struct, frozen=True):
    """The output of `mauve serve` once the service is ready."""

    url: str  # of the main port, or of the ingest port if that is the only one
    ingest_url: str | None
    data: str
    setup_link: str | None
    role: str = "all"
    setup_link_printed_by: str | None = None  # the host name of another machine


def serve(settings: Settings, announce: Callable[[Running], None]) -> None:
    """Run the service until SIGTERM or SIGINT; call `announce` once it is ready."""
    is_new = make_private_directory(settings.data)
    with hold(settings.data) as lock:
        try:
            _serve(settings, lock, announce)
        finally:
            clear_holder(lock, settings.data, remove_unused=is_new)


def _serve(settings: Settings, lock: IO[bytes], announce: Callable[[Running], None]) -> None:
    with ExitStack() as reserved:
        if settings.role != "ingest":
            taken = reserved.enter_context(_reserved(settings.host, settings.port, "--port or MAUVE_PORT"))
            host, port = taken.getsockname()[:2]  # the actual port instead of 0
            settings = replace(settings, host=host, port=port)
        if settings.role in _ROLES_WITH_WORKERS:
            option = "--ingest-port or MAUVE_INGEST_PORT"
            if settings.role != "ingest" and settings.port == settings.ingest_port:
                raise ServeRefusedError(f"port {port} is both the main port and the ingest port: change {option}")
            taken = reserved.enter_context(_reserved(settings.host, settings.ingest_port, option))
            host, port = taken.getsockname()[:2]
            settings = replace(settings, host=host, ingest_port=port)
        url = _url(settings)
        record_holder(lock, Holder(os.getpid(), url, settings.public_url or url))
        asyncio.run(Supervisor(settings, lock, announce).run())


def _url(settings: Settings) -> str:
    """Return the address of the main port, or of the ingest port if that is the only one."""
    return http_url(settings.host, settings.ingest_port if settings.role == "ingest" else settings.port)


class Supervisor:
    def __init__(self, settings: Settings, lock: IO[bytes], announce: Callable[[Running], None]) -> None:
        self._settings = settings  # with actual port numbers
        self._lock = lock
        self._announce = announce
        self._stopping = asyncio.Event()
        self._running: dict[str, ChildProcess] = {}

    async def run(self) -> None:
        """Start the first process, which prepares the installation, then the workers."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._request_stop)
        first, *others = self._children()
        reaping = asyncio.ensure_future(keep_reaping(self._pids))
        try:
            ready = await self._until_ready(await self._start(first, is_first=True))
            await asyncio.gather(*[self._until_ready(await self._start(config)) for config in others])
            if ready is not None and not self._stopping.is_set():
                self._announce(self._running_at(ready))
            is_prepared = ready is None or ready.is_prepared
            keeping = [self._keep_running(config) for config in others]
            await asyncio.gather(self._keep_running(first, is_first=not is_prepared), *keeping)
        finally:
            if not self._stopping.is_set():  # A process was refused before the service was in use.
                self._cut_drain_short()
            await self._stop_children()
            reaping.cancel()

    def _request_stop(self) -> None:
        """Stop; on a second request, do not wait for clients to move to other machines."""
        if self._stopping.is_set():
            self._cut_drain_short()
        self._stopping.set()

    def _cut_drain_short(self) -> None:
        for child in self._running.values():
            child.cut_drain_short()

    def _pids(self) -> set[int]:
        return {child.process.pid for child in self._running.values()}

    def _children(self) -> list[ChildConfig]:
        role = self._settings.role
        main = _MAIN_PROCESSES.get(role)
        workers = range(1, self._settings.workers + 1) if role in _ROLES_WITH_WORKERS else ()
        return [
            *([] if main is None else [self._config_for(main, 0)]),
            *(self._config_for("ingest", number) for number in workers),
        ]

    async def _keep_running(self, config: ChildConfig, *, is_first: bool = False) -> None:
        """Restart a child whenever it dies, after a longer delay each time it dies early.

        Raise if a child that has not prepared the installation yet (`is_first`) is refused.
        """
        child = self._running[config.name]
        deaths = 0
        while True:
            started_at = time.monotonic()
            await self._first_of(child.ended(), self._stopping.wait())
            if self._stopping.is_set():
                return
            deaths = 0 if time.monotonic() - started_at > _STEADY_AFTER_S else deaths
            delay_s = _RESTART_DELAYS_S[min(deaths, len(_RESTART_DELAYS_S) - 1)]
            deaths += 1
            log.warning("process_died", child=child.name, exit_code=child.process.returncode, restart_in_s=delay_s)
            await self._first_of(asyncio.sleep(delay_s), self._stopping.wait())
            if self._stopping.is_set():
                return
            child = await self._start(config, is_first=is_first)
            try:
                ready = await self._until_ready(child)
                is_first = is_first and ready is not None and not ready.is_prepared
            except ServeRefusedError as error:
                if is_first:
                    raise
                log.warning("process_not_started", child=config.name, reason=str(error))

    async def _start(self, config: ChildConfig, *, is_first: bool = False) -> ChildProcess:
        passed = msgspec.structs.replace(config, is_first=is_first)
        child = await ChildProcess.start(passed, self._lock, self._settings.hang_s)
        self._running[child.name] = child
        return child

    async def _until_ready(self, child: ChildProcess) -> Ready | None:
        """Return a child's report, or None if a stop is requested first."""
        await self._first_of(report := asyncio.ensure_future(child.ready()), self._stopping.wait())
        return None if self._stopping.is_set() else report.result()

    def _running_at(self, ready: Ready) -> Running:
        settings, url = self._settings, _url(self._settings)
        has_workers = settings.role in _ROLES_WITH_WORKERS
        base = (settings.public_url or url).rstrip("/")
        return Running(
            url=url,
            ingest_url=http_url(settings.host, settings.ingest_port) if has_workers else None,
            data=str(settings.data.absolute()),
            setup_link=None if ready.setup_path is None else base + ready.setup_path,
            role=settings.role,
            setup_link_printed_by=ready.setup_link_printed_by,
        )

    async def _stop_children(self) -> None:
        self._stopping.set()
        children = self._running.values()
        for child in children:
            child.terminate()
        gone = asyncio.gather(*(child.process.wait() for child in children))
        try:
            await asyncio.wait_for(gone, self._settings.drain_s + _STOP_GRACE_S)
        except TimeoutError:
            log.warning("stop_forced", advice="a process did not finish in time and was killed")
            for child in children:
                child.kill()

    def _config_for(self, role: ChildRole, number: int) -> ChildConfig:
        return ChildConfig(
            role=role,
            number=number,
            data=str(self._settings.data.absolute()),
            host=self._settings.host,
            port=self._settings.port,
            ingest_port=self._settings.ingest_port,
        )

    async def _first_of(self, *awaitables: Awaitable[object]) -> None:
        waiting = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for future in waiting:
            future.cancel()


@contextmanager
def _reserved(host: str, port: int, option: str) -> Iterator[socket.socket]:
    """Reserve a port for the children, which share it; refuse a port that is already in use."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError:
        raise ServeRefusedError(
            f"{host} is not an address of this machine: choose another --host or MAUVE_HOST"
        ) from None
    with socket.socket(family, kind, protocol) as reserved:
        try:
            with socket.socket(family, kind, protocol) as probe:
                # Without SO_REUSEPORT, to fail if another program is listening there.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            reserved.bind(address)
        except OSError as error:
            reason = os.strerror(error.errno or 0).lower()
            raise ServeRefusedError(
                f"cannot listen on {host} port {port}: {reason}; "
                f"stop the program that listens there, or choose another port with {option}"
            ) from None
        yield reserved


def is_free(host: str, port: int) -> bool:
    """Return whether no program is listening on the port."""
    try:
        with _reserved(host, port, ""):
            return True
    except ServeRefusedError:
        return False
