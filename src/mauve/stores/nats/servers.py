"""Check at the start that the NATS servers can be used safely, and create or check the streams of the log."""

import asyncio
import secrets
import socket
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import msgspec
import structlog

from mauve.core.secret import Secret
from mauve.stores import ForeignDataError, StoreUnavailableError, UnsupportedServerError
from mauve.stores.nats.connection import LoopThread, close, connect
from mauve.stores.nats.groups import sequence_of
from mauve.stores.nats.monitors import MONITOR_S_MAX, ask_when_met, check_server, cluster_size
from mauve.stores.nats.streams import (
    INSTALLATION,
    NOT_FOUND,
    STREAM_ID,
    STREAMS,
    ApiError,
    StreamInfo,
    ask,
    is_peer_offline,
    once_placed,
    stream_config,
    stream_info,
    stream_name,
)

if TYPE_CHECKING:
    from nats.aio.client import Client

REPLICAS: Final = 3
_MONITOR_PORT: Final = 8222
_MONITORS_MAX: Final = 15  # asked at once
_CLIENT_PORT: Final = 4222
_GREETING_BYTES_MAX: Final = 2**16
_PREPARE_S_MAX: Final = 30.0
_RETRY_S: Final = 0.5
_STARTING_S_MAX: Final = 12.0  # A cluster that has just been started elects a leader first.

_QUICK_CONNECT_S_MAX: Final = 2.0
_QUICK_ANSWER_S_MAX: Final = 1.5
_QUICK_S_MAX: Final = 4.0
_IF_LOST: Final = "if there is none, give up its records with 'mauve restore --servers --new-streams'"
_ADVICE: Final = "name the monitoring address of every NATS server in MAUVE_STREAM_MONITOR_URL, like http://HOST:8222"

log = structlog.get_logger()


class _Greeting(msgspec.Struct, frozen=True):
    """What a server tells each client first."""

    server_id: str


_greeting: Final = msgspec.json.Decoder(_Greeting)


class StreamPlan(msgspec.Struct, frozen=True):
    """What the streams of an installation have to be."""

    installation: str
    bytes_max: int  # of all streams together
    known_ids: Mapping[int, str]  # of the streams that the installation has written to; empty the first time
    loaded: Mapping[int, int] = {}  # the last record of each stream that was loaded


def check_answer(url: Secret) -> None:
    """Raise `StoreUnavailableError` unless JetStream answers now."""

    async def check() -> None:
        client = await connect(url, "mauve command", _QUICK_CONNECT_S_MAX)
        try:
            await ask(client, "INFO", timeout_s=_QUICK_ANSWER_S_MAX)
        finally:
            await close(client)

    loop = LoopThread("nats-check")
    try:
        loop.run(check(), _QUICK_S_MAX)
    except ApiError as error:
        raise StoreUnavailableError(f"JetStream refused: {error}") from error
    finally:
        loop.close()


def check_servers(url: Secret, monitor_urls: Sequence[str], *, all_of_them: bool) -> int:
    """Raise unless every server can be used safely; return how many the cluster has.

    Only a server's own monitoring endpoint tells whether it syncs. Once the streams exist a minority of the servers may
    be down: a failure of one must not keep the service from starting.
    """
    _check_connection(url)
    urls = monitor_urls_of(url, monitor_urls)
    with ThreadPoolExecutor(_MONITORS_MAX, thread_name_prefix="nats-monitor") as threads:
        answers = ask_when_met(urls, threads)
        met = set(threads.map(_server_id_at, _addresses(url)[:_MONITORS_MAX])) - {None}
    silent = [address for address, server in zip(urls, answers, strict=True) if server is None]
    servers = {server.server_id: server for server in answers if server is not None}
    for server in servers.values():
        check_server(server)
    size = cluster_size(servers.values()) if servers else len(urls)
    _check_coverage(silent, len(servers), size, all_of_them=all_of_them)
    if len(met - servers.keys()) > len(silent):
        raise UnsupportedServerError(
            "a server of MAUVE_STREAM_URL is none of those whose monitoring endpoints answered, "
            f"so nothing says whether it syncs: {_ADVICE}"
        )
    return size


def _check_connection(url: Secret) -> None:
    """Raise unless the servers accept our credentials."""

    async def check() -> None:
        await close(await connect(url, "mauve start"))

    loop = LoopThread("nats-start")
    try:
        loop.run(check(), _STARTING_S_MAX)
    except StoreUnavailableError as error:
        raise UnsupportedServerError(f"{error}: check MAUVE_STREAM_URL and the servers") from error
    finally:
        loop.close()


def monitor_urls_of(url: Secret, monitor_urls: Sequence[str]) -> list[str]:
    """Return the monitoring address of each server."""
    return list(monitor_urls or _default_monitors(url))[:_MONITORS_MAX]


def _default_monitors(url: Secret) -> list[str]:
    hosts = [host for host, _ in _addresses(url)]
    return [f"http://[{host}]:{_MONITOR_PORT}" if ":" in host else f"http://{host}:{_MONITOR_PORT}" for host in hosts]


def _addresses(url: Secret) -> list[tuple[str, int]]:
    parts = [urlsplit(each.strip()) for each in url.reveal().split(",")]
    return [(each.hostname or "", each.port or _CLIENT_PORT) for each in parts]


def _server_id_at(address: tuple[str, int]) -> str | None:
    """Return the id of the server that clients reach at an address, or None if it does not greet.

    A server name does not tell: those of two clusters may be the same.
    """
    try:
        with socket.create_connection(address, timeout=MONITOR_S_MAX) as reached, reached.makefile("rb") as lines:
            greeting = lines.readline(_GREETING_BYTES_MAX)
        return _greeting.decode(greeting.removeprefix(b"INFO ")).server_id
    except (OSError, msgspec.MsgspecError):
        return None


def _check_coverage(silent: Sequence[str], checked: int, size: int, *, all_of_them: bool) -> None:
    """Raise unless enough servers said how they sync: all at first, later a majority."""
    if checked == size and not silent:
        return
    if all_of_them or checked * 2 <= size:
        if silent:
            raise UnsupportedServerError(
                f"the NATS monitoring endpoint {silent[0]} does not answer, so nothing says whether it syncs: "
                f"start it, or {_ADVICE}"
            ) from StoreUnavailableError(f"{silent[0]} does not answer")
        raise UnsupportedServerError(f"{checked} of {size} NATS servers said whether they sync: {_ADVICE}")
    log.warning("nats_servers_not_checked", checked=checked, servers=size, silent=list(silent))


def prepare_streams(url: Secret, servers: int, plan: StreamPlan) -> dict[int, str]:
    """Create the streams, or check that they are this installation's; return the id of each."""
    loop = LoopThread("nats-start")
    try:
        return loop.run(_prepare(url, servers, plan), _PREPARE_S_MAX)
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
    finally:
        loop.close()


async def _prepare(url: Secret, servers: int, plan: StreamPlan) -> dict[int, str]:
    client = await connect(url, "mauve start")
    try:
        replicas = REPLICAS if servers >= REPLICAS else 1
        before = [await find_stream(client, stream) for stream in STREAMS]
        infos = [
            await _prepared(client, stream, info, replicas, plan) for stream, info in zip(STREAMS, before, strict=True)
        ]
        if None in before and replicas > 1:
            await _spread_leaders(client, infos)
        return {stream: info.config.metadata[STREAM_ID] for stream, info in zip(STREAMS, infos, strict=True)}
    finally:
        await close(client)


async def find_stream(client: "Client", stream: int) -> StreamInfo | None:
    """Return a stream, or None if it does not exist. Wait for a cluster that has just been started."""
    gives_up_at = asyncio.get_running_loop().time() + _STARTING_S_MAX
    while True:
        try:
            return await stream_info(client, stream)
        except ApiError as error:
            if error.code == NOT_FOUND:
                return None
            if asyncio.get_running_loop().time() > gives_up_at:
                raise StoreUnavailableError(str(error)) from error
        except StoreUnavailableError:
            if asyncio.get_running_loop().time() > gives_up_at:
                raise
        await asyncio.sleep(_RETRY_S)


async def _prepared(
    client: "Client", stream: int, info: StreamInfo | None, replicas: int, plan: StreamPlan
) -> StreamInfo:
    if info is None:
        _refuse_lost_stream(stream, plan)
        info = await _created(client, stream, replicas, plan)
    metadata = info.config.metadata
    if metadata.get(INSTALLATION) != plan.installation or STREAM_ID not in metadata:
        raise ForeignDataError(
            f"the stream {stream_name(stream)} at MAUVE_STREAM_URL belongs to another installation: "
            "name other NATS servers or another NATS account, or the servers of this installation"
        )
    if plan.known_ids.get(stream, metadata[STREAM_ID]) != metadata[STREAM_ID]:
        _refuse_lost_stream(stream, plan)
    _refuse_older_copy(stream, info, plan)
    own = {name: metadata[name] for name in (INSTALLATION, STREAM_ID)}
    wanted = stream_config(stream, own, max(replicas, info.config.num_replicas), plan.bytes_max // len(STREAMS))
    if not info.config.is_like(wanted):
        await ask(client, f"STREAM.UPDATE.{stream_name(stream)}", wanted)
    return info


def _refuse_lost_stream(stream: int, plan: StreamPlan) -> None:
    if stream in plan.known_ids:
        raise ForeignDataError(
            f"the stream {stream_name(stream)} at MAUVE_STREAM_URL is not the one that this installation wrote to: "
            f"name the servers that hold it, or restore it from a backup of NATS; {_IF_LOST}"
        )


def _refuse_older_copy(stream: int, info: StreamInfo, plan: StreamPlan) -> None:
    """Refuse a stream that would give new records the numbers of loaded ones: they would never be loaded."""
    if info.state.last_seq < sequence_of(plan.loaded.get(stream, 0)):
        raise ForeignDataError(
            f"the stream {stream_name(stream)} at MAUVE_STREAM_URL holds less than was loaded from it, "
            f"so it is an older copy: restore a newer one; {_IF_LOST}"
        )


async def _created(client: "Client", stream: int, replicas: int, plan: StreamPlan) -> StreamInfo:
    metadata = {INSTALLATION: plan.installation, STREAM_ID: secrets.token_hex(8)}
    config = stream_config(stream, metadata, replicas, plan.bytes_max // len(STREAMS))
    if stream in plan.loaded:  # It replaces a lost one: its records are numbered after those.
        config["first_seq"] = sequence_of(plan.loaded[stream]) + 1
    try:
        await once_placed(lambda: ask(client, f"STREAM.CREATE.{stream_name(stream)}", config), ApiError)
    except (ApiError, StoreUnavailableError):
        found = await find_stream(client, stream)  # Another machine may have created it at the same time.
        if found is None:
            raise
        return found
    return await stream_info(client, stream)


async def _spread_leaders(client: "Client", infos: Sequence[StreamInfo]) -> None:
    """Give each new stream a leader on another server, so that a failure stops one of them only."""
    names = sorted({infos[0].cluster.leader, *(peer.name for peer in infos[0].cluster.replicas)} - {""})
    for place, (stream, info) in enumerate(zip(STREAMS, infos, strict=True)):
        wanted = names[place % len(names)]
        if info.cluster.leader == wanted:
            continue
        try:
            body = {"placement": {"preferred": wanted}}
            await ask(client, f"STREAM.LEADER.STEPDOWN.{stream_name(stream)}", body)
            await find_stream(client, stream)  # It has a leader again.
        except (ApiError, StoreUnavailableError) as error:
            log.warning("stream_leader_not_moved", stream=stream_name(stream), reason=str(error))
