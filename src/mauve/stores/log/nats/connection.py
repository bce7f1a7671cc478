"""How a process connects to NATS, from its own event loop or from threads."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import unquote, urlsplit

import structlog

from mauve.core.secret import Secret
from mauve.stores import StoreUnavailableError, UnsupportedServerError

if TYPE_CHECKING:
    from nats.aio.client import Client

CONNECT_S_MAX: Final = 8.0  # for the first connection; long enough to skip two hung servers
CALL_S_MAX: Final = 6.0
_CONNECT_AGAIN_S_MAX: Final = 1.0  # for servers that recently failed to answer
_SILENT_S: Final = 10.0
_RECONNECT_S_MAX: Final = 12.0  # after which another client tries as well
_LIMITS: Final[dict[str, Any]] = {
    "connect_timeout": 2,  # for each server
    "ping_interval": 1,  # Disconnect after two unanswered pings.
    "max_outstanding_pings": 2,
    "reconnect_time_wait": 0.5,
    "max_reconnect_attempts": -1,  # forever
    "flush_timeout": 2,
    "pending_size": 0,  # Queue nothing while there is no connection.
}
_WRONG_PASSWORD: Final = "wrong user or password"  # noqa: S105 - the reason, not a password
_CLOSE_S_MAX: Final = 2.0

_silent_at: Final[dict[str, float]] = {}  # by URL: when its servers last failed to answer
log = structlog.get_logger()
T = TypeVar("T")


class Connection:
    """A connection to the servers of a URL, used from one event loop. It reconnects forever.

    While disconnected, requests fail immediately instead of being queued: a message sent after its sender gave up
    would be stored unnoticed.
    """

    def __init__(self, url: Secret, name: str) -> None:
        self._url = url
        self._name = name
        self._client: Client | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._lost_at: float | None = None
        self._is_closed = False

    async def client(self) -> "Client":
        """Return the client once it has connected; raise `StoreUnavailableError` on failure."""
        connecting = self._connect()
        if connecting is not None and (self._client is None or self._client.is_closed):
            await asyncio.shield(connecting)
        return self.connected()

    def connected(self) -> "Client":
        """Return the client if connected; otherwise, connect in the background and raise an error immediately."""
        self._connect()
        if self._client is None or not self._client.is_connected:
            raise StoreUnavailableError("NATS cannot be reached")
        return self._client

    @property
    def is_connected(self) -> bool:
        return self._client is not None and self._client.is_connected

    async def close(self) -> None:
        """Close the connection permanently; later calls fail and do not reconnect."""
        self._is_closed = True
        try:
            if self._connecting is not None:
                self._connecting.cancel()
                await asyncio.wait({self._connecting})
        finally:
            if self._client is not None:
                await close(self._client)

    def _connect(self) -> asyncio.Task[None] | None:
        """Connect unless a client is connected or reconnecting.

        A client closes permanently if a server refuses it, and its reconnection may end with an unexpected error.
        """
        if self._client is not None and self._client.is_connected:
            self._lost_at = None
            return None
        if self._is_closed:
            return None
        now = time.monotonic()
        self._lost_at = now if self._lost_at is None else self._lost_at
        if self._client is not None and not self._client.is_closed and now - self._lost_at < _RECONNECT_S_MAX:
            return None
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.create_task(self._open())
            self._connecting.add_done_callback(_forget_failure)
        return self._connecting

    async def _open(self) -> None:
        former, self._client = self._client, await connect(self._url, self._name)
        if former is not None:
            await close(former)


def _forget_failure(task: asyncio.Task[None]) -> None:
    """Mark a failure as retrieved: each caller that needs the connection gets its own error."""
    if not task.cancelled():
        task.exception()


async def connect(url: Secret, name: str) -> "Client":
    """Return a connected client, or raise `StoreUnavailableError`. No error contains a password.

    A process opens several connections at startup: only the first one waits for servers that are down.
    """
    client = _new_client()
    is_silent = time.monotonic() - _silent_at.get(url.reveal(), -_SILENT_S) < _SILENT_S
    reason = "no server answered in time"

    async def note(error: Exception) -> None:
        nonlocal reason
        reason = _reason(error)
        if reason == _WRONG_PASSWORD:  # Retrying would not help.
            connecting.cancel()

    async def report(event: str) -> None:
        if not client.is_closed:
            log.warning(event, connection=name, reason=reason)

    connecting = asyncio.ensure_future(
        client.connect(
            **_servers(url),
            name=name,
            error_cb=note,
            disconnected_cb=partial(report, "nats_disconnected"),
            reconnected_cb=partial(report, "nats_reconnected"),
            **_LIMITS,
        )
    )
    try:
        await asyncio.wait({connecting}, timeout=_CONNECT_AGAIN_S_MAX if is_silent else CONNECT_S_MAX)
        if connecting.done() and not connecting.cancelled() and connecting.exception() is None:
            return client
    except asyncio.CancelledError:
        await _give_up(client, connecting)
        raise
    await _give_up(client, connecting)
    if not is_silent:
        _silent_at[url.reveal()] = time.monotonic()
    raise StoreUnavailableError(f"NATS cannot be reached: {reason}")


async def _give_up(client: "Client", connecting: asyncio.Future[None]) -> None:
    connecting.cancel()
    try:
        await asyncio.wait({connecting}, timeout=_CLOSE_S_MAX)
    finally:
        await close(client)


async def close(client: "Client") -> None:
    """Close a client, even if its server is unresponsive or this call is cancelled."""
    try:
        with contextlib.suppress(Exception):
            await asyncio.wait_for(client.close(), _CLOSE_S_MAX)
    finally:
        client._transport.end()  # type: ignore[union-attr]  # noqa: SLF001 - see `_new_client`


class LoopThread:
    """An event loop in its own thread, for callers that are not coroutines."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float = CALL_S_MAX) -> T:
        """Return the result of a coroutine; raise `StoreUnavailableError` if it takes too long."""
        running = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return running.result(timeout_s)
        except (FutureTimeoutError, TimeoutError) as error:
            running.cancel()
            raise StoreUnavailableError("NATS did not answer in time") from error

    def close(self) -> None:
        if self._loop.is_closed():
            return
        with contextlib.suppress(StoreUnavailableError):
            self.run(_cancel_others(), _CLOSE_S_MAX)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def run_with_client(url: Secret, name: str, work: Callable[["Client"], Coroutine[Any, Any, T]], timeout_s: float) -> T:
    """Run a coroutine with a client of its own, from a thread."""

    async def connect_and_run() -> T:
        client = await connect(url, name)
        try:
            return await work(client)
        finally:
            await close(client)

    loop = LoopThread("nats-once")
    try:
        return loop.run(connect_and_run(), timeout_s)
    finally:
        loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def _new_client() -> "Client":
    try:
        from nats.aio.client import Client  # noqa: PLC0415 - an extra that only MAUVE_STREAM_URL needs

        from mauve.stores.log.nats.transport import AbortingTransport  # noqa: PLC0415 - as above
    except ImportError:
        message = "MAUVE_STREAM_URL needs the package nats-py: install mauve[nats]"
        raise UnsupportedServerError(message) from None
    client = Client()
    client._transport = AbortingTransport()  # type: ignore[no-untyped-call]  # noqa: SLF001 - it takes no other
    return client


def _servers(url: Secret) -> dict[str, Any]:
    """Return the addresses without credentials, and the credentials of the first that has any.

    The addresses of servers that NATS discovers have no credentials.
    """
    parts = [urlsplit(each.strip()) for each in url.reveal().split(",")]
    options: dict[str, Any] = {
        "servers": [f"{each.scheme}://{each.netloc.rpartition('@')[2]}" for each in parts],
    }
    for each in parts:
        if each.username and each.password is None:
            return options | {"token": unquote(each.username)}
        if each.username:
            return options | {"user": unquote(each.username), "password": unquote(each.password or "")}
    return options


def _reason(error: BaseException) -> str:
    if "authorization" in str(error).lower():
        return _WRONG_PASSWORD
    if isinstance(error, TimeoutError):
        return "no server answered in time"
    return str(error).removeprefix("nats: ").strip(" '") or type(error).__name__
