"""Find the lost streams of an installation, and delete their remains."""

from collections.abc import Collection, Coroutine, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from mauve.core.secret import Secret
from mauve.stores import ForeignDataError, StoreUnavailableError
from mauve.stores.log.nats.connection import LoopThread, close, connect
from mauve.stores.log.nats.groups import first_number, sequence_of
from mauve.stores.log.nats.streams import (
    INSTALLATION,
    STREAM_ID,
    STREAMS,
    ApiError,
    StreamInfo,
    ask,
    find_stream,
    stream_name,
)

GIVE_UP: Final = (
    "restore it from a backup of NATS, or stop the service and give up its events "
    "with 'mauve restore --servers --new-streams'"
)
MISSING: Final = "is missing"
_CALL_S_MAX: Final = 15.0
T = TypeVar("T")


class FoundStream(NamedTuple):
    end: int | None  # All existing records are at or below it, all later ones above; None: no such stream.
    loss: str | None  # why it cannot be used; None: it can


def loss_of(info: StreamInfo | None, known_id: str | None, last_number: int) -> str | None:
    """Return why a stream is not the one that records were loaded from; None if it is.

    Any other stream would reuse the numbers of loaded records, and its records would never be loaded.
    """
    if info is None:
        return None if known_id is None else MISSING
    if known_id is not None and info.config.metadata.get(STREAM_ID) != known_id:
        return "was created again"
    return "is older than what was loaded from it" if info.state.last_seq < sequence_of(last_number) else None


def find_streams(
    url: Secret, installation: str, known_ids: Mapping[int, str], last_numbers: Mapping[int, int]
) -> dict[int, FoundStream]:
    """Return the state of each stream. `last_numbers` holds the last record of each that was loaded or stored.

    Raise `ForeignDataError` if a stream belongs to another installation.
    """

    async def look() -> dict[int, StreamInfo | None]:
        client = await connect(url, "mauve restore")
        try:
            return {stream: await find_stream(client, stream) for stream in STREAMS}
        finally:
            await close(client)

    found = {}
    for stream, info in _run(look()).items():
        if info is not None and info.config.metadata.get(INSTALLATION) != installation:
            raise ForeignDataError(
                f"the stream {stream_name(stream)} at MAUVE_STREAM_URL belongs to another installation: "
                "name other NATS servers or another NATS account"
            )
        end = None if info is None else first_number(info.state.last_seq + 1) - 1
        found[stream] = FoundStream(end, loss_of(info, known_ids.get(stream), last_numbers.get(stream, 0)))
    return found


def drop_streams(url: Secret, streams: Collection[int]) -> None:
    """Delete streams of this installation, with every record in them."""

    async def drop() -> None:
        client = await connect(url, "mauve restore")
        try:
            for stream in streams:
                if await find_stream(client, stream) is not None:
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
