"""What is left of an installation's streams after a loss, and deleting it."""

from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from mauve.core.secret import Secret
from mauve.stores import ForeignDataError, StoreUnavailableError
from mauve.stores.nats.connection import LoopThread, close, connect
from mauve.stores.nats.groups import first_number
from mauve.stores.nats.servers import find_stream
from mauve.stores.nats.streams import INSTALLATION, STREAMS, ApiError, ask, stream_name

_CALL_S_MAX: Final = 15.0
T = TypeVar("T")


def stream_ends(url: Secret, installation: str) -> dict[int, int]:
    """Return, for each stream that exists, a number that none of its records exceeds and every later one will.

    Raise `ForeignDataError` if a stream belongs to another installation.
    """

    async def look() -> dict[int, int]:
        client = await connect(url, "mauve restore")
        try:
            found = {stream: await find_stream(client, stream) for stream in STREAMS}
        finally:
            await close(client)
        for stream, info in found.items():
            if info is not None and info.config.metadata.get(INSTALLATION) != installation:
                raise ForeignDataError(
                    f"the stream {stream_name(stream)} at MAUVE_STREAM_URL belongs to another installation: "
                    "name other NATS servers or another NATS account"
                )
        return {stream: first_number(info.state.last_seq + 1) - 1 for stream, info in found.items() if info is not None}

    return _run(look())


def drop_streams(url: Secret, installation: str) -> None:
    """Delete the streams of this installation, with every record that was not loaded."""

    async def drop() -> None:
        client = await connect(url, "mauve restore")
        try:
            for stream in STREAMS:
                info = await find_stream(client, stream)
                if info is not None and info.config.metadata.get(INSTALLATION) == installation:
                    await ask(client, f"STREAM.DELETE.{stream_name(stream)}")
        finally:
            await close(client)

    _run(drop())


def _run(work: Coroutine[Any, Any, T]) -> T:
    loop = LoopThread("nats-restore")
    try:
        return loop.run(work, _CALL_S_MAX)
    except ApiError as error:
        raise StoreUnavailableError(f"JetStream refused: {error}") from error
    finally:
        loop.close()
