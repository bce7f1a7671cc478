"""Requests for reads and changes: one connection each, and a few retries where they are safe."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from functools import partial, wraps
from threading import Thread
from time import sleep, time
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, TypeVar, cast
from weakref import WeakKeyDictionary

from mauve_metrics._advice import about_call
from mauve_metrics._answers import Answer, backoff_s
from mauve_metrics._http import Connection, checked_credential, origin_from
from mauve_metrics._version import USER_AGENT
from mauve_metrics.errors import RATE_LIMIT, MauveError, RateLimited, Unavailable, error_from

if TYPE_CHECKING:
    from typing import Concatenate, ParamSpec  # since Python 3.10

    P = ParamSpec("P")

Value = TypeVar("Value")

RETRIES = 2
_WAIT_S_MAX = 60.0  # Longer waits are the caller's decision.
_SUCCESS = range(200, 300)
_ASYNC_REQUESTS_MAX = 16  # at a time, for each client and event loop: each has a thread and a socket


class Reply(NamedTuple):
    content: Any  # decoded JSON; None without a body
    headers: Mapping[str, str]


class Caller:
    """Makes requests with one credential. Safe to use from several threads."""

    def __init__(self, credential: str, url: str, timeout: float, expected: str) -> None:
        self._credential = checked_credential("the credential", credential)
        self._expected = expected  # the kinds of credentials, for messages
        self._headers = {
            "authorization": f"Bearer {self._credential}",
            "user-agent": USER_AGENT,
            "connection": "close",
        }
        self._origin = origin_from(url)
        self._timeout = timeout

    def call(self, method: str, path: str, parse: Callable[[Reply], Value], body: object = None) -> Value:
        """Return the parsed reply, or raise the error. Never retry a POST: it may have taken effect."""
        attempt = 1
        while True:
            try:
                return parse(self._call_once(method, path, body))
            except (RateLimited, Unavailable) as error:
                wait_s = _wait_s(error, method, attempt)
                if wait_s is None:
                    raise
            sleep(wait_s)
            attempt += 1

    def _call_once(self, method: str, path: str, body: object) -> Reply:
        connection = Connection(self._origin, self._headers)
        content = None if body is None else json.dumps(body).encode()
        headers = {} if body is None else {"content-type": "application/json"}
        answer = connection.request(method, path, content, headers, self._timeout)
        connection.close()
        if answer.status not in _SUCCESS:
            raise error_from(answer, time(), about_call(answer, self._origin.url, self._expected, self._credential))
        return Reply(_decoded(answer, self._origin.url), answer.headers)


class AsyncCaller(Caller):
    """The same for asyncio: waits in the event loop, and sends each request from its own thread.

    Never uses the loop's executor: calls that wait there would delay the program's own work.
    """

    def __init__(self, credential: str, url: str, timeout: float, expected: str) -> None:
        super().__init__(credential, url, timeout, expected)
        self._slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

    async def call_async(self, method: str, path: str, parse: Callable[[Reply], Value], body: object = None) -> Value:
        slots = self._slots.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(_ASYNC_REQUESTS_MAX))
        attempt = 1
        while True:
            try:
                async with slots:
                    reply = await _in_thread(partial(self._call_once, method, path, body))
                return parse(reply)
            except (RateLimited, Unavailable) as error:
                wait_s = _wait_s(error, method, attempt)
                if wait_s is None:
                    raise
            await asyncio.sleep(wait_s)
            attempt += 1

    call = cast("Any", call_async)  # The methods of `Metrics` and `Control` return what this returns.


async def _in_thread(function: Callable[[], Value]) -> Value:
    future: Future[Value] = Future()
    future.set_running_or_notify_cancel()  # A canceled task leaves the request to its timeout.

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:  # noqa: BLE001 - raised where it is awaited
            future.set_exception(error)

    Thread(target=run, name="mauve-call", daemon=True).start()
    return await asyncio.wrap_future(future)


def _wait_s(error: RateLimited | Unavailable, method: str, attempt: int) -> float | None:
    """Return the wait before the next attempt, or None if there should be no further attempt."""
    if method == "POST" or attempt > RETRIES:
        return None
    if error.retry_after is not None:
        return error.retry_after if error.retry_after <= _WAIT_S_MAX else None
    if isinstance(error, RateLimited) and error.code != RATE_LIMIT:
        return None
    return backoff_s(attempt, _WAIT_S_MAX, random.uniform) / 2


def _decoded(answer: Answer, url: str) -> Any:  # noqa: ANN401 - JSON
    if not answer.body:
        return None
    message = f"the answer is not JSON: check that {url} is the main address of the service"
    try:
        return json.loads(answer.body)
    except ValueError:
        raise MauveError(message, status=answer.status) from None
    except RecursionError:
        raise Unavailable(message, status=answer.status, code=None, retry_after=None) from None


def awaited(call: Callable[Concatenate[Any, P], Value]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, Value]]:
    """Return the same method for a client whose `_caller` is an `AsyncCaller`."""

    async def run(self: Any, /, *arguments: P.args, **options: P.kwargs) -> Value:  # noqa: ANN401 - either client
        return await cast("Coroutine[Any, Any, Value]", call(self, *arguments, **options))

    return wraps(call)(run)
