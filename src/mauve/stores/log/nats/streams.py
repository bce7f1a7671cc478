"""The streams of the log, and the requests about them."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from mauve.stores import StoreUnavailableError

if TYPE_CHECKING:
    from nats.aio.client import Client

STREAMS: Final = (240, 241, 242)  # Three, with leaders on three servers: during one election, the others keep working.
RECORDS_MAX: Final = 64  # of one message
INSTALLATION: Final = "mauve-installation"
STREAM_ID: Final = "mauve-stream-id"
API: Final = "$JS.API"
API_S_MAX: Final = 5.0
AGAIN_S: Final = 0.5  # A leader answers in milliseconds, and one is elected within 9 s.
# A leader contacts its followers at least every two seconds and steps down if one follows another leader. Followers
# without contact for 4 s elect a new one.
LEADER_CONTACT_S_MAX: Final = 2.5
PLACED_S_MAX: Final = 12.0  # A leader discovers newly started servers within a few seconds.
STARTING_S_MAX: Final = 12.0  # A newly started cluster elects a leader first.
_PEER_OFFLINE: Final = "peer offline"
NO_ANSWER: Final = "JetStream does not answer: it may have lost its quorum"
DUPLICATE_WINDOW_S: Final = 300  # far longer than a writer resends a group
NOT_FOUND: Final = 404
MISSING: Final = "is missing"
GIVE_UP: Final = (
    "restore it from a backup of NATS, or stop the service and give up its events "
    "with 'mauve restore --servers --new-streams'"
)
_UNAVAILABLE: Final = 503
_PART_FILLED: Final = 2.5  # at least two fifths of the storage: a trim leaves a little less than half


class ApiError(Exception):
    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class StreamState(msgspec.Struct, frozen=True):
    first_seq: int = 0
    last_seq: int = 0
    messages: int = 0
    bytes: int = 0
    first_ts: datetime = datetime.min.replace(tzinfo=UTC)
    last_ts: datetime = datetime.min.replace(tzinfo=UTC)
    deleted: frozenset[int] = frozenset()  # if asked for


class StreamConfig(msgspec.Struct, frozen=True):
    metadata: dict[str, str] = {}
    subjects: list[str] = []
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
        """Return whether a stream matches the relevant parts of a configuration. The server adds its own metadata."""
        fields = set(self.__struct_fields__) - {"metadata"}
        return all(getattr(self, name) == wanted[name] for name in fields)


class Peer(msgspec.Struct, frozen=True):
    """A server that has a copy of the stream, as its leader sees it."""

    name: str
    current: bool = False
    active: int = 0  # nanoseconds since the last contact; in some releases 0 if there was none

    @property
    def is_in_contact(self) -> bool:
        had_contact = self.current or self.active > 0
        return had_contact and self.active <= LEADER_CONTACT_S_MAX * 1e9


class Cluster(msgspec.Struct, frozen=True):
    name: str = ""  # none if there is a single server
    leader: str = ""
    replicas: list[Peer] = []

    def is_led(self, copies: int) -> bool:
        """Return whether the reply is from a leader with a quorum.

        Followers also answer some seconds after losing their leader, and may lag. A partitioned leader may have been
        replaced.
        """
        if not self.name:
            return True
        followers = sum(peer.is_in_contact for peer in self.replicas)
        return bool(self.leader) and 2 * (followers + 1) > max(len(self.replicas) + 1, copies)


class StreamInfo(msgspec.Struct, frozen=True):
    config: StreamConfig
    state: StreamState
    cluster: Cluster = Cluster()


class _Refusal(msgspec.Struct, frozen=True):
    code: int = 500
    description: str = ""


class _Reply(msgspec.Struct, frozen=True):
    error: _Refusal | None = None


T = TypeVar("T")
_info_decoder: Final = msgspec.json.Decoder(StreamInfo)
_reply_decoder: Final = msgspec.json.Decoder(_Reply)


def stream_name(stream: int) -> str:
    return f"MAUVE-{stream}"


def subject_of(stream: int) -> str:
    return f"mauve.log.{stream}"


def sequence_of(number: int) -> int:
    """Return the sequence of the message that holds a record. The number also has its place in the message."""
    return number // RECORDS_MAX


def first_number(sequence: int) -> int:
    return sequence * RECORDS_MAX


def stream_config(stream: int, metadata: Mapping[str, str], replicas: int, bytes_max: int) -> dict[str, Any]:
    """Return the configuration of a stream: only loaded messages are ever removed."""
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
        raise StoreUnavailableError(NO_ANSWER) from error
    refusal = _reply_decoder.decode(message.data).error
    if refusal is not None:
        raise ApiError(refusal.code, refusal.description)
    return message.data


def is_peer_offline(refusal: Exception) -> bool:
    """Return whether a stream was refused because a server of the cluster is down or just started."""
    return _PEER_OFFLINE in str(refusal)


async def create_stream(client: "Client", stream: int, config: Mapping[str, Any]) -> None:
    """Create a stream, retrying while the cluster's leader has not discovered a newly started server."""
    gives_up_at = time.monotonic() + PLACED_S_MAX
    while True:
        try:
            await ask(client, f"STREAM.CREATE.{stream_name(stream)}", config)
        except ApiError as error:
            if not is_peer_offline(error) or time.monotonic() > gives_up_at:
                raise
            await asyncio.sleep(AGAIN_S)
        else:
            return


async def ask_leader(client: "Client", subject: str, body: object = None) -> bytes:
    """Return the reply of a stream's leader to a request that may be sent twice; raise the errors of `ask`."""
    return await again_until_answered(partial(_ask_leader_once, client, subject, body))


async def _ask_leader_once(client: "Client", subject: str, body: object, seconds: float) -> bytes:
    try:
        return await ask(client, subject, body, seconds)
    except ApiError as error:
        if error.code == _UNAVAILABLE:  # The other servers report that there is no leader.
            raise StoreUnavailableError(f"JetStream refused: {error}") from error
        raise


async def again_until_answered(attempt: Callable[[float], Coroutine[Any, Any, T]]) -> T:
    """Return the first result of staggered attempts: requests are lost while a stream has no leader."""
    ends_at, reason = time.monotonic() + API_S_MAX, NO_ANSWER
    waiting: set[asyncio.Task[T]] = set()
    try:
        while (left_s := ends_at - time.monotonic()) > 0:
            waiting.add(asyncio.create_task(attempt(left_s)))
            done, waiting = await asyncio.wait(waiting, timeout=AGAIN_S, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                try:
                    return task.result()
                except StoreUnavailableError as error:
                    reason = str(error)
            if done:
                await asyncio.sleep(AGAIN_S)  # It may have failed immediately.
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    raise StoreUnavailableError(reason)


async def stream_info(client: "Client", stream: int, *, with_deleted: bool = False) -> StreamInfo:
    name, body = stream_name(stream), {"deleted_details": with_deleted}

    async def attempt(seconds: float) -> StreamInfo:
        info = _info_decoder.decode(await _ask_leader_once(client, f"STREAM.INFO.{name}", body, seconds))
        if not info.cluster.is_led(info.config.num_replicas):
            raise StoreUnavailableError(f"NATS: the stream {name} has no leader with a quorum")
        return info

    return await again_until_answered(attempt)


async def find_stream(client: "Client", stream: int) -> StreamInfo | None:
    """Return a stream, or None if it does not exist. Wait for a newly started cluster."""
    gives_up_at = time.monotonic() + STARTING_S_MAX
    while True:
        try:
            return await stream_info(client, stream)
        except ApiError as error:
            if error.code == NOT_FOUND:
                return None
            if time.monotonic() > gives_up_at:
                raise StoreUnavailableError(str(error)) from error
        except StoreUnavailableError:
            if time.monotonic() > gives_up_at:
                raise
        await asyncio.sleep(AGAIN_S)


async def purge(client: "Client", stream: int, keep_from: int) -> None:
    await ask_leader(client, f"STREAM.PURGE.{stream_name(stream)}", {"seq": keep_from})


def first_that_fits(info: StreamInfo) -> int:
    """Return the first of the newest messages that fill half of the storage, assuming messages of similar size."""
    state, half = info.state, info.config.max_bytes // 2
    if info.config.max_bytes <= 0 or state.bytes <= half:
        return state.first_seq
    return state.last_seq + 1 - state.messages * half // state.bytes


def fills_its_part(info: StreamInfo) -> bool:
    """Return whether a stream fills about half of its storage, the share for loaded messages."""
    return info.state.bytes * _PART_FILLED > info.config.max_bytes > 0


def loss_of(info: StreamInfo | None, known_id: str | None, last_number: int) -> str | None:
    """Return why a stream is not the one that records were loaded from; None if it is.

    Any other stream would reuse the numbers of loaded records, and its records would never be loaded.
    """
    if info is None:
        return None if known_id is None else MISSING
    if known_id is not None and info.config.metadata.get(STREAM_ID) != known_id:
        return "was created again"
    return "is older than what was loaded from it" if info.state.last_seq < sequence_of(last_number) else None
