"""Query the monitoring endpoints of NATS servers: only they show whether a server syncs before it acknowledges."""

import http.client
import time
import urllib.request
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

import msgspec

from mauve.stores import UnsupportedServerError

VERSION_MIN: Final = (2, 11)
PAYLOAD_BYTES_MIN: Final = 8_000_000
MONITOR_S_MAX: Final = 2.5
_MONITOR_BYTES_MAX: Final = 2**20
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
    """A server's reply on its monitoring endpoint."""

    server_id: str
    server_name: str
    version: str
    max_payload: int
    jetstream: _JetStream = _JetStream()


class _JetStreamState(msgspec.Struct, frozen=True):
    config: _Sync = _Sync()
    disabled: bool = False
    meta_cluster: _Meta = _Meta()


_server: Final = msgspec.json.Decoder(Server)
_jetstream_state: Final = msgspec.json.Decoder(_JetStreamState)
T = TypeVar("T")


def ask_when_met(urls: Sequence[str], threads: ThreadPoolExecutor) -> list[Server | None]:
    """Query every monitoring endpoint; retry until the cluster has formed."""
    gives_up_at = time.monotonic() + JETSTREAM_S_MAX
    while True:
        answers = list(threads.map(ask_when_started, urls))
        servers = {server.server_id: server for server in answers if server is not None}
        if not servers or cluster_size(servers.values()) >= len(servers) or time.monotonic() > gives_up_at:
            return answers
        time.sleep(RETRY_S)


def cluster_size(servers: Collection[Server]) -> int:
    return max(server.jetstream.meta.cluster_size for server in servers)


def ask_when_started(address: str) -> Server | None:
    """Query a monitoring endpoint; retry if JetStream is off, because a starting server answers before it is on."""
    gives_up_at = time.monotonic() + JETSTREAM_S_MAX
    while (server := _ask_monitor(address)) is not None and server.jetstream.config is None:
        if time.monotonic() > gives_up_at:
            break
        time.sleep(RETRY_S)
    return server


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
