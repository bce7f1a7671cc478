"""What every child process does: listen, report that it is ready, stop when told or when left alone."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Final

import msgspec
import structlog
import uvloop
from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.server.embed import Server

from mauve.access.vault import VaultError
from mauve.config import SettingError
from mauve.logs import configure_logs
from mauve.server.orders import Orders, Ready, Refused, Report
from mauve.stores.unavailable import NewerSchemaError, StoreUnavailableError

_BACKLOG: Final = 2048
_HEADER_READ_TIMEOUT_MS: Final = 15_000  # also closes a connection that is kept alive and says nothing
_CONNECT_EVERY_S: Final = 0.01

log = structlog.get_logger()


def main(run: Callable[[Orders], Coroutine[Any, Any, None]]) -> None:
    """Run a child under the orders in the first argument."""
    orders = msgspec.json.decode(sys.argv[1], type=Orders)
    try:
        settings = orders.settings()
        configure_logs(settings.log, process=orders.name)
        uvloop.run(run(orders))
    except (VaultError, NewerSchemaError, SettingError, StoreUnavailableError) as error:
        report(Refused(str(error)))
        sys.exit(1)


def report(what: Report) -> None:
    """Tell the supervisor. It reads one line."""
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.buffer.write(msgspec.json.encode(what) + b"\n")
        sys.stdout.buffer.flush()


async def serve_until_stopped(app: Any, interface: Interfaces, host: str, port: int, ready: Ready) -> None:  # noqa: ANN401 - an ASGI or RSGI application
    """Serve until SIGTERM, or until the supervisor is gone; finish what is in flight first."""
    server = Server(
        app,
        address=host,
        port=port,
        interface=interface,
        backlog=_BACKLOG,
        http1_settings=HTTP1Settings(header_read_timeout=_HEADER_READ_TIMEOUT_MS),
        # HTTP/1 alone: with HTTP/2 allowed, a connection that says nothing is never closed.
        http=HTTPModes.http1,
        websockets=False,
        log_enabled=False,
    )
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, server.stop)
    loop.add_signal_handler(signal.SIGINT, lambda: None)  # the supervisor decides, also on Ctrl-C
    loop.add_reader(sys.stdin.fileno(), _stop_when_alone, loop, server)
    serving = asyncio.ensure_future(server.serve())
    await _until_listening(host, port, serving)
    report(ready)
    await serving


async def repeat(every_s: float, work: Callable[[], object], failure: str) -> None:
    """Do the work again and again in a thread; a failure is logged and does not end it."""
    while True:
        try:
            await asyncio.to_thread(work)
        except Exception as error:  # noqa: BLE001 - whatever it was, the next round may succeed
            log.warning(failure, reason=str(error), advice=f"trying again in {every_s} s")
        await asyncio.sleep(every_s)


def _stop_when_alone(loop: asyncio.AbstractEventLoop, server: Server) -> None:
    if os.read(sys.stdin.fileno(), 1):  # Nothing is ever sent; the end of the file is the news.
        return
    loop.remove_reader(sys.stdin.fileno())
    server.stop()


async def _until_listening(host: str, port: int, serving: "asyncio.Future[None]") -> None:
    while not serving.done():
        try:
            _, writer = await asyncio.open_connection(host, port)
        except OSError:
            await asyncio.sleep(_CONNECT_EVERY_S)
        else:
            writer.close()
            return
    await serving
