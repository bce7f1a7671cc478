"""The streams of the log, and the requests about them."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mauve.stores import StoreUnavailableError

if TYPE_CHECKING:
    from nats.aio.client import Client

STREAMS: Final = (240, 241, 242)  # Three, with leaders on three servers: while one is elected the others go on.
INSTALLATION: Final = "mauve-installation"
STREAM_ID: Final = "mauve-stream-id"
API: Final = "$JS.API"
API_S_MAX: Final = 5.0
DUPLICATE_WINDOW_S: Final = 300  # far longer than a writer sends a group again
NOT_FOUND: Final = 404


class ApiError(Exception):
    """JetStream refused a request."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class StreamState(msgspec.Struct, frozen=True):
    first_seq: int = 0
    last_seq: int = 0
    messages: int = 0
    bytes: int = 0
    last_ts: datetime = datetime.min.replace(tzinfo=UTC)


class StreamConfig(msgspec.Struct, frozen=True):
    metadata: dict[str, str] = {}
    num_replicas: int = 1
    storage: str = ""
    retention: str = ""
    discard: str = ""
    max_bytes: int = -1
    max_age: int = 0
    max_msgs: int = -1
    duplicate_window: int = 0
    allow_direct: bool = False

    def is_like(self, wanted: Mapping[str, Any]) -> bool:
        """Return whether a stream has what matters of a configuration. The server adds metadata of its own."""
        fields = set(self.__struct_fields__) - {"metadata"}
        return all(getattr(self, name) == wanted[name] for name in fields)


class Peer(msgspec.Struct, frozen=True):
    name: str


class Cluster(msgspec.Struct, frozen=True):
    leader: str = ""
    replicas: list[Peer] = []


class StreamInfo(msgspec.Struct, frozen=True):
    config: StreamConfig
    state: StreamState
    cluster: Cluster = Cluster()


class _Refusal(msgspec.Struct, frozen=True):
    code: int = 500
    description: str = ""


class _Reply(msgspec.Struct, frozen=True):
    error: _Refusal | None = None


_info_decoder: Final = msgspec.json.Decoder(StreamInfo)
_reply_decoder: Final = msgspec.json.Decoder(_Reply)


def stream_name(stream: int) -> str:
    return f"MAUVE-{stream}"


def subject_of(stream: int) -> str:
    return f"mauve.log.{stream}"


def stream_config(stream: int, metadata: Mapping[str, str], replicas: int, bytes_max: int) -> dict[str, Any]:
    """Return the configuration of a stream: nothing leaves it except what the loader has loaded."""
    return {
        "name": stream_name(stream),
        "subjects": [subject_of(stream)],
        "retention": "limits",
        "storage": "file",
        "discard": "new",
        "num_replicas": replicas,
        "max_bytes": bytes_max,
        "max_age": 0,
        "max_msgs": -1,
        "max_msg_size": -1,
        "max_consumers": -1,
        "duplicate_window": DUPLICATE_WINDOW_S * 10**9,
        "allow_direct": True,
        "metadata": dict(metadata),
    }


async def ask(client: "Client", subject: str, body: object = None, timeout_s: float = API_S_MAX) -> bytes:
    """Return JetStream's reply; raise `ApiError` if it refused, `StoreUnavailableError` if there is none."""
    from nats.errors import Error  # noqa: PLC0415 - an extra

    content = b"" if body is None else msgspec.json.encode(body)
    try:
        message = await client.request(f"{API}.{subject}", content, timeout=timeout_s)
    except (Error, OSError, TimeoutError) as error:
        raise StoreUnavailableError("JetStream does not answer: it may be without a quorum") from error
    refusal = _reply_decoder.decode(message.data).error
    if refusal is not None:
        raise ApiError(refusal.code, refusal.description)
    return message.data


async def stream_info(client: "Client", stream: int) -> StreamInfo:
    """Return what the stream's leader knows about it."""
    return _info_decoder.decode(await ask(client, f"STREAM.INFO.{stream_name(stream)}"))


async def purge(client: "Client", stream: int, keep_from: int) -> None:
    """Delete the messages before a sequence."""
    await ask(client, f"STREAM.PURGE.{stream_name(stream)}", {"seq": keep_from})
