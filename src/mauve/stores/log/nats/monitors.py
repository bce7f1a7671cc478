"""Query the monitoring endpoints of NATS servers.

Only they show whether a server syncs before it acknowledges, and which processes are connected.
"""

import http.client
import time
import urllib.request
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

import msgspec

from mauve.core.secret import Secret
from mauve.stores import UnsupportedServerError

VERSION_MIN: Final = (2, 11)
PAYLOAD_BYTES_MIN: Final = 8_000_000
MONITOR_S_MAX: Final = 2.5
MONITORS_MAX: Final = 15  # queried concurrently
_MONITOR_BYTES_MAX: Final = 32 * 2**20
_MONITOR_PORT: Final = 8222
_CLIENT_PORT: Final = 4222
_CLIENTS_MAX: Final = 10_000
_OWN_NAMES: Final = "mauve "  # the prefix of all our connection names
JETSTREAM_S_MAX: Final = 5.0
RETRY_S: Final = 0.5


class _Sync(msgspec.Struct, frozen=True):
    sync_always: bool = False


class _Meta(msgspec.Struct, frozen=True):
    cluster_size: int = 1


class _JetStream(msgspec.Struct, frozen=True):
    config: _Sync | None = None  # None: JetStream is off
    meta: _Meta = _Meta()


class Server(msgspec.Struct, frozen=True):
    server_id: str
    server_name: str
    version: str
    max_payload: int
    jetstream: _JetStream = _JetStream()


class _JetStreamState(msgspec.Struct, frozen=True):
    config: _Sync = _Sync()
    disabled: bool = False
    meta_cluster: _Meta = _Meta()


class ConnectedProcess(msgspec.Struct, frozen=True):
    ip: str = ""
    name: str = ""


class _Connections(msgspec.Struct, frozen=True):
    connections: list[ConnectedProcess] = []


class Connected(NamedTuple):
    processes: list[ConnectedProcess]
    silent: list[str]  # the endpoints that did not answer: their servers may have more


_connections: Final = msgspec.json.Decoder(_Connections)
_server: Final = msgspec.json.Decoder(Server)
_jetstream_state: Final = msgspec.json.Decoder(_JetStreamState)
T = TypeVar("T")


def ask_when_started(urls: Sequence[str], threads: ThreadPoolExecutor) -> list[Server | None]:
    """Query every monitoring endpoint; retry until JetStream is on and the cluster has formed."""
    gives_up_at = time.monotonic() + JETSTREAM_S_MAX
    while True:
        answers = list(threads.map(_ask_monitor, urls))
        servers = {server.server_id: server for server in answers if server is not None}
        is_on = all(server.jetstream.config is not None for server in servers.values())
        if not servers or (is_on and cluster_size(servers.values()) >= len(servers)) or time.monotonic() > gives_up_at:
            return answers
        time.sleep(RETRY_S)


def cluster_size(servers: Collection[Server]) -> int:
    return max(server.jetstream.meta.cluster_size for server in servers)


def _ask_monitor(address: str) -> Server | None:
    """Return the reply of a monitoring endpoint, or None if it does not answer."""
    server = _read(f"{address.rstrip('/')}/varz", _server)
    if server is None or server.jetstream.config is not None:
        return server
    # Other endpoints keep reporting JetStream as off if first queried before it was on. This one does not.
    state = _read(f"{address.rstrip('/')}/jsz", _jetstream_state)
    if state is None or state.disabled:
        return server
    return msgspec.structs.replace(server, jetstream=_JetStream(state.config, state.meta_cluster))


def _read(url: str, decoder: msgspec.json.Decoder[T]) -> T | None:
    try:
        with urllib.request.urlopen(url, timeout=MONITOR_S_MAX) as reply:  # noqa: S310 - a setting
            return decoder.decode(reply.read(_MONITOR_BYTES_MAX))
    except (OSError, http.client.HTTPException, msgspec.MsgspecError):
        return None


def check_server(server: Server) -> None:
    """Raise unless a server syncs before it acknowledges and accepts our message size."""
    if _version_of(server.version) < VERSION_MIN:
        raise UnsupportedServerError(
            f"the NATS server {server.server_name} has version {server.version}: "
            f"MAUVE_STREAM_URL needs {'.'.join(map(str, VERSION_MIN))} or later"
        )
    if server.jetstream.config is None:
        raise UnsupportedServerError(
            f"JetStream is off on the NATS server {server.server_name}: "
            "MAUVE_STREAM_URL needs it, with 'jetstream { sync_interval: always }' in its configuration"
        )
    if not server.jetstream.config.sync_always:
        raise UnsupportedServerError(
            f"the NATS server {server.server_name} acknowledges before it has synced to disk: "
            "MAUVE_STREAM_URL needs 'sync_interval: always' in the jetstream block of its configuration"
        )
    if server.max_payload < PAYLOAD_BYTES_MIN:
        raise UnsupportedServerError(
            f"the NATS server {server.server_name} takes messages of at most {server.max_payload} bytes: "
            "MAUVE_STREAM_URL needs 'max_payload: 8MB' in its configuration"
        )


def _version_of(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("-", maxsplit=1)[0].split(".")[:2] if part.isdigit())


def connected_now(url: Secret, monitor_urls: Sequence[str]) -> Connected:
    urls = monitor_urls_of(url, monitor_urls)
    with ThreadPoolExecutor(len(urls), thread_name_prefix="nats-monitor") as threads:
        answers = list(threads.map(_connections_of, urls))
    found = [each for answer in answers if answer for each in answer.connections if each.name.startswith(_OWN_NAMES)]
    return Connected(found, [at for at, answer in zip(urls, answers, strict=True) if answer is None])


def _connections_of(address: str) -> _Connections | None:
    return _read(f"{address.rstrip('/')}/connz?limit={_CLIENTS_MAX}", _connections)


def monitor_urls_of(url: Secret, monitor_urls: Sequence[str]) -> list[str]:
    hosts = [f"[{host}]" if ":" in host else host for host, _ in addresses_in(url)]
    return list(monitor_urls or [f"http://{host}:{_MONITOR_PORT}" for host in hosts])[:MONITORS_MAX]


def addresses_in(url: Secret) -> list[tuple[str, int]]:
    parts = [urlsplit(each.strip()) for each in url.reveal().split(",")]
    return [(each.hostname or "", each.port or _CLIENT_PORT) for each in parts]
