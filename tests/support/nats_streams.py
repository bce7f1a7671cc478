"""What tests do to the streams of the log behind the service's back."""

import json
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any, TypeVar

from nats.aio.client import Client

from mauve.core.secret import Secret
from mauve.stores import StoreUnavailableError
from mauve.stores.log.nats.connection import LoopThread, close, connect
from mauve.stores.log.nats.streams import STREAMS, ApiError, StreamInfo, ask, stream_info, stream_name
from support.nats import Nats
from support.service import PATIENCE_S, eventually

T = TypeVar("T")


def request(servers: Nats, subject: str, body: object = None) -> dict[str, Any]:
    """Ask JetStream, and return its answer."""

    async def work(client: Client) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(await ask(client, subject, body))
        return answer

    return _run(servers, work)


def info_of(servers: Nats, stream: int) -> StreamInfo:
    return _run(servers, lambda client: stream_info(client, stream))


def publish(servers: Nats, subject: str, content: bytes) -> None:
    async def work(client: Client) -> None:
        await client.request(subject, content, timeout=5)

    _run(servers, work)


def delete_streams(servers: Nats, streams: Iterable[int] = STREAMS) -> None:
    async def work(client: Client) -> None:
        for stream in streams:
            try:
                await ask(client, f"STREAM.DELETE.{stream_name(stream)}")
            except ApiError as error:
                assert "not found" in str(error)  # noqa: PT017 - of a test's own tool

    _run(servers, work)


def purge_streams(servers: Nats) -> None:
    async def work(client: Client) -> None:
        for stream in STREAMS:
            await ask(client, f"STREAM.PURGE.{stream_name(stream)}")

    _run(servers, work)


def _run(servers: Nats, work: Callable[[Client], Awaitable[T]]) -> T:
    async def main() -> T:
        client = await connect(Secret(servers.url), "test")
        try:
            return await work(client)
        finally:
            await close(client)

    def answer() -> list[T] | None:
        with suppress(StoreUnavailableError):  # A cluster that has just lost servers elects leaders first.
            return [thread.run(main(), PATIENCE_S)]
        return None

    thread = LoopThread("test")
    try:
        return eventually(answer)[0]
    finally:
        thread.close()
