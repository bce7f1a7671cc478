"""Check that the NATS servers are safe to use; create, check, find and delete the log's streams."""

import secrets
import socket
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import msgspec
import structlog

from mauve.core.secret import Secret
from mauve.stores import ForeignDataError, StoreUnavailableError, UnsupportedServerError
from mauve.stores.log.nats.connection import run_with_client
from mauve.stores.log.nats.monitors import (
    MONITOR_S_MAX,
    MONITORS_MAX,
    addresses_in,
    ask_when_started,
    check_server,
    cluster_size,
    monitor_urls_of,
)
from mauve.stores.log.nats.streams import (
    GIVE_UP,
    INSTALLATION,
    STARTING_S_MAX,
    STREAM_ID,
    STREAMS,
    ApiError,
    StreamInfo,
    ask,
    create_stream,
    find_stream,
    first_number,
    is_peer_offline,
    loss_of,
    sequence_of,
    stream_config,
    stream_info,
    stream_name,
    subject_of,
)

if TYPE_CHECKING:
    from nats.aio.client import Client

REPLICAS: Final = 3
_GREETING_BYTES_MAX: Final = 2**16
_PREPARE_S_MAX: Final = 30.0
_RESTORE_S_MAX: Final = 15.0
_ADVICE: Final = "name the monitoring address of every NATS server in MAUVE_STREAM_MONITOR_URL, like http://HOST:8222"

log = structlog.get_logger()
T = TypeVar("T")


class _Greeting(msgspec.Struct, frozen=True):
    """The first message of a server to each client."""

    server_id: str


_greeting: Final = msgspec.json.Decoder(_Greeting)


class StreamPlan(msgspec.Struct, frozen=True):
    installation: str
    bytes_max: int  # of all streams together
    known_ids: Mapping[int, str]  # of the streams that the installation has written to; empty the first time
    loaded: Mapping[int, int] = {}  # the last record of each stream that was loaded


def check_servers(url: Secret, monitor_urls: Sequence[str], *, all_of_them: bool) -> int:
    """Raise unless every server can be used safely; return how many the cluster has.

    Only a server's own monitoring endpoint shows whether it syncs. Once the streams exist, a minority of the servers
    may be down: one failure must not keep the service from starting.
    """
    check_connection(url)
    urls = monitor_urls_of(url, monitor_urls)
    with ThreadPoolExecutor(MONITORS_MAX, thread_name_prefix="nats-monitor") as threads:
        answers = ask_when_started(urls, threads)
        met = set(threads.map(_server_id_at, addresses_in(url)[:MONITORS_MAX])) - {None}
    silent = [address for address, server in zip(urls, answers, strict=True) if server is None]
    servers = {server.server_id: server for server in answers if server is not None}
    for server in servers.values():
        check_server(server)
    size = cluster_size(servers.values()) if servers else len(urls)
    _check_coverage(silent, len(servers), size, all_of_them=all_of_them)
    if len(met - servers.keys()) > len(silent):
        raise UnsupportedServerError(
            "a server of MAUVE_STREAM_URL did not answer on any monitoring endpoint, "
            f"so it is unknown whether it syncs: {_ADVICE}"
        )
    return size


def check_connection(url: Secret) -> None:
    """Raise unless the servers accept our credentials."""

    async def do_nothing(_client: "Client") -> None: ...

    try:
        run_with_client(url, "mauve start", do_nothing, STARTING_S_MAX)
    except StoreUnavailableError as error:
        raise UnsupportedServerError(f"{error}: check MAUVE_STREAM_URL and the servers") from error


def _server_id_at(address: tuple[str, int]) -> str | None:
    """Return the id of the server that clients reach at an address, or None if it does not answer.

    Names are not enough: two clusters may use the same server names.
    """
    try:
        with socket.create_connection(address, timeout=MONITOR_S_MAX) as reached, reached.makefile("rb") as lines:
            greeting = lines.readline(_GREETING_BYTES_MAX)
        return _greeting.decode(greeting.removeprefix(b"INFO ")).server_id
    except (OSError, msgspec.MsgspecError):
        return None


def _check_coverage(silent: Sequence[str], checked: int, size: int, *, all_of_them: bool) -> None:
    """Raise unless enough servers reported their sync mode: all at first, later a majority."""
    if checked == size and not silent:
        return
    if all_of_them or checked * 2 <= size:
        if silent:
            raise UnsupportedServerError(
                f"the NATS monitoring endpoint {silent[0]} does not answer, so it is unknown whether it syncs: "
                f"start it, or {_ADVICE}"
            ) from StoreUnavailableError(f"{silent[0]} does not answer")
        raise UnsupportedServerError(f"{checked} of {size} NATS servers reported whether they sync: {_ADVICE}")
    log.warning("nats_servers_not_checked", checked=checked, servers=size, silent=list(silent))


def prepare_streams(url: Secret, servers: int, plan: StreamPlan) -> dict[int, str]:
    """Create the streams, or check that they are this installation's; return the id of each."""
    replicas = REPLICAS if servers >= REPLICAS else 1
    try:
        return run_with_client(url, "mauve start", lambda client: _prepare(client, replicas, plan), _PREPARE_S_MAX)
    except StoreUnavailableError as error:
        raise UnsupportedServerError(f"NATS at MAUVE_STREAM_URL cannot be used: {error}") from error
    except ApiError as error:
        if is_peer_offline(error):
            raise UnsupportedServerError(
                f"NATS at MAUVE_STREAM_URL refused new streams: {error}; start every server of the cluster"
            ) from error
        raise UnsupportedServerError(
            f"NATS at MAUVE_STREAM_URL refused streams of {plan.bytes_max // 2**20} MB in total: {error}; "
            "give its servers more storage, or lower MAUVE_BACKLOG_MB"
        ) from error


async def _prepare(client: "Client", replicas: int, plan: StreamPlan) -> dict[int, str]:
    before = {stream: await find_stream(client, stream) for stream in STREAMS}
    lost = _lost_streams(before, plan)
    for stream in lost:
        await _detach(client, stream, before[stream])
    infos = {
        stream: await _prepared(client, stream, info, replicas, plan)
        for stream, info in before.items()
        if stream not in lost
    }
    if replicas > 1 and any(before[stream] is None for stream in infos):
        await _spread_leaders(client, infos)
    return {**plan.known_ids, **{stream: info.config.metadata[STREAM_ID] for stream, info in infos.items()}}


def _lost_streams(found: Mapping[int, StreamInfo | None], plan: StreamPlan) -> list[int]:
    """Return and report the streams that cannot be used; raise `ForeignDataError` if none is left."""
    for stream, info in found.items():
        _check_owner(stream, info, plan.installation)
    losses = {
        stream: loss
        for stream, info in found.items()
        if (loss := loss_of(info, plan.known_ids.get(stream), plan.loaded.get(stream, 0)))
    }
    if len(losses) == len(found):
        listed = ", ".join(f"{stream_name(stream)} {loss}" for stream, loss in losses.items())
        raise ForeignDataError(
            f"no stream of this installation is left at MAUVE_STREAM_URL ({listed}): "
            "name the servers that hold them, or restore them from a backup of NATS, or give up their events "
            "with 'mauve restore --servers --new-streams'"
        )
    for stream, loss in losses.items():
        log.error("log_stream_lost", stream=stream_name(stream), reason=loss, advice=f"the others are used; {GIVE_UP}")
    return list(losses)


def _check_owner(stream: int, info: StreamInfo | None, installation: str) -> None:
    metadata = {} if info is None else info.config.metadata
    if info is not None and (metadata.get(INSTALLATION) != installation or STREAM_ID not in metadata):
        raise ForeignDataError(
            f"the stream {stream_name(stream)} at MAUVE_STREAM_URL belongs to another installation: "
            "name other NATS servers or another NATS account, or the servers of this installation"
        )


async def _detach(client: "Client", stream: int, info: StreamInfo | None) -> None:
    """Detach writers from a stream that replaced another one: its numbers were already used."""
    if info is None:
        return
    config = stream_config(stream, info.config.metadata, info.config.num_replicas, info.config.max_bytes)
    unused = {**config, "subjects": [f"{subject_of(stream)}.unused"]}
    await ask(client, f"STREAM.UPDATE.{stream_name(stream)}", unused)


async def _prepared(
    client: "Client", stream: int, info: StreamInfo | None, replicas: int, plan: StreamPlan
) -> StreamInfo:
    if info is None:
        info = await _created(client, stream, replicas, plan)
    own = {name: info.config.metadata[name] for name in (INSTALLATION, STREAM_ID)}
    wanted = stream_config(stream, own, max(replicas, info.config.num_replicas), plan.bytes_max // len(STREAMS))
    if not info.config.is_like(wanted):
        await ask(client, f"STREAM.UPDATE.{stream_name(stream)}", wanted)
    return info


async def _created(client: "Client", stream: int, replicas: int, plan: StreamPlan) -> StreamInfo:
    metadata = {INSTALLATION: plan.installation, STREAM_ID: secrets.token_hex(8)}
    config = stream_config(stream, metadata, replicas, plan.bytes_max // len(STREAMS))
    if stream in plan.loaded:  # It replaces a lost one: number its records after those.
        config["first_seq"] = sequence_of(plan.loaded[stream]) + 1
    try:
        await create_stream(client, stream, config)
    except (ApiError, StoreUnavailableError):
        found = await find_stream(client, stream)  # Another machine may have created it at the same time.
        if found is None:
            raise
        return found
    return await stream_info(client, stream)


async def _spread_leaders(client: "Client", infos: Mapping[int, StreamInfo]) -> None:
    """Place the leaders of new streams on different servers, so that one failure stops only one stream."""
    cluster = next(iter(infos.values())).cluster
    names = sorted({cluster.leader, *(peer.name for peer in cluster.replicas)} - {""})
    for place, (stream, info) in enumerate(infos.items()):
        wanted = names[place % len(names)]
        if info.cluster.leader == wanted:
            continue
        try:
            body = {"placement": {"preferred": wanted}}
            await ask(client, f"STREAM.LEADER.STEPDOWN.{stream_name(stream)}", body)
            await find_stream(client, stream)  # It has a leader again.
        except (ApiError, StoreUnavailableError) as error:
            log.warning("stream_leader_not_moved", stream=stream_name(stream), reason=str(error))


class FoundStream(NamedTuple):
    end: int | None  # All existing records are at or below it, all later ones above; None: no such stream.
    loss: str | None  # why it cannot be used; None: it can


def find_streams(
    url: Secret, installation: str, known_ids: Mapping[int, str], last_numbers: Mapping[int, int]
) -> dict[int, FoundStream]:
    """Return the state of each stream. `last_numbers` holds the last record of each that was loaded or stored.

    Raise `ForeignDataError` if a stream belongs to another installation.
    """

    async def look(client: "Client") -> dict[int, StreamInfo | None]:
        return {stream: await find_stream(client, stream) for stream in STREAMS}

    found = {}
    for stream, info in _run_restore(url, look).items():
        _check_owner(stream, info, installation)
        end = None if info is None else first_number(info.state.last_seq + 1) - 1
        found[stream] = FoundStream(end, loss_of(info, known_ids.get(stream), last_numbers.get(stream, 0)))
    return found


def drop_streams(url: Secret, streams: Collection[int]) -> None:
    """Delete streams of this installation, with every record in them."""

    async def drop(client: "Client") -> None:
        for stream in streams:
            if await find_stream(client, stream) is not None:
                await ask(client, f"STREAM.DELETE.{stream_name(stream)}")

    _run_restore(url, drop)


def _run_restore(url: Secret, work: Callable[["Client"], Coroutine[Any, Any, T]]) -> T:
    try:
        return run_with_client(url, "mauve restore", work, _RESTORE_S_MAX)
    except ApiError as error:
        raise StoreUnavailableError(f"JetStream refused: {error}") from error
