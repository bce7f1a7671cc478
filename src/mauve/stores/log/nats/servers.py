"""Check at startup that the NATS servers are safe to use, and create or check the log's streams."""

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
from mauve.stores.log.nats.connection import LoopThread, close, connect
from mauve.stores.log.nats.groups import sequence_of
from mauve.stores.log.nats.lost_streams import GIVE_UP, loss_of
from mauve.stores.log.nats.monitors import MONITOR_S_MAX, ask_when_met, check_server, cluster_size
from mauve.stores.log.nats.streams import (
    INSTALLATION,
    STARTING_S_MAX,
    STREAM_ID,
    STREAMS,
    ApiError,
    StreamInfo,
    ask,
    find_stream,
    is_peer_offline,
    once_placed,
    stream_config,
    stream_info,
    stream_name,
    subject_of,
)

if TYPE_CHECKING:
    from nats.aio.client import Client

REPLICAS: Final = 3
_MONITOR_PORT: Final = 8222
_MONITORS_MAX: Final = 15  # queried concurrently
_CLIENT_PORT: Final = 4222
_GREETING_BYTES_MAX: Final = 2**16
_PREPARE_S_MAX: Final = 30.0

_QUICK_CONNECT_S_MAX: Final = 2.0
_QUICK_ANSWER_S_MAX: Final = 1.5
_QUICK_S_MAX: Final = 4.0
_ADVICE: Final = "name the monitoring address of every NATS server in MAUVE_STREAM_MONITOR_URL, like http://HOST:8222"

log = structlog.get_logger()


class _Greeting(msgspec.Struct, frozen=True):
    """The first message of a server to each client."""

    server_id: str


_greeting: Final = msgspec.json.Decoder(_Greeting)


class StreamPlan(msgspec.Struct, frozen=True):
    """The required streams of an installation."""

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

    Only a server's own monitoring endpoint shows whether it syncs. Once the streams exist, a minority of the servers
    may be down: one failure must not keep the service from starting.
    """
    check_connection(url)
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
            "a server of MAUVE_STREAM_URL did not answer on any monitoring endpoint, "
            f"so it is unknown whether it syncs: {_ADVICE}"
        )
    return size


def check_connection(url: Secret) -> None:
    """Raise unless the servers accept our credentials."""

    async def check() -> None:
        await close(await connect(url, "mauve start"))

    loop = LoopThread("nats-start")
    try:
        loop.run(check(), STARTING_S_MAX)
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
    finally:
        await close(client)


def _lost_streams(found: Mapping[int, StreamInfo | None], plan: StreamPlan) -> list[int]:
    """Return and report the streams that cannot be used; raise `ForeignDataError` if none is left."""
    for stream, info in found.items():
        if info is not None and _is_foreign(info, plan):
            raise ForeignDataError(
                f"the stream {stream_name(stream)} at MAUVE_STREAM_URL belongs to another installation: "
                "name other NATS servers or another NATS account, or the servers of this installation"
            )
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


def _is_foreign(info: StreamInfo, plan: StreamPlan) -> bool:
    return info.config.metadata.get(INSTALLATION) != plan.installation or STREAM_ID not in info.config.metadata


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
        await once_placed(lambda: ask(client, f"STREAM.CREATE.{stream_name(stream)}", config), ApiError)
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
