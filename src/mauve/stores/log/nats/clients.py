"""Which processes are connected to NATS, according to its servers' monitoring endpoints."""

import http.client
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

import msgspec

from mauve.core.secret import Secret
from mauve.stores.log.nats.servers import monitor_urls_of

_ANSWER_S_MAX: Final = 5.0
_CLIENTS_MAX: Final = 10_000
_BYTES_MAX: Final = 32 * 2**20
_OWN_NAMES: Final = "mauve "  # the prefix of all our connection names


class Client(msgspec.Struct, frozen=True):
    ip: str = ""
    name: str = ""


class _Clients(msgspec.Struct, frozen=True):
    connections: list[Client] = []


_clients: Final = msgspec.json.Decoder(_Clients)


class Connected(NamedTuple):
    """The connections of Mauve's processes."""

    clients: list[Client]
    silent: list[str]  # the endpoints that did not answer: their servers may have more


def connected_now(url: Secret, monitor_urls: Sequence[str]) -> Connected:
    urls = monitor_urls_of(url, monitor_urls)
    with ThreadPoolExecutor(len(urls), thread_name_prefix="nats-monitor") as threads:
        answers = list(threads.map(_clients_at, urls))
    ours = [client for clients in answers for client in clients or () if client.name.startswith(_OWN_NAMES)]
    return Connected(ours, [at for at, clients in zip(urls, answers, strict=True) if clients is None])


def addresses_of(name: str, url: Secret, monitor_urls: Sequence[str]) -> list[str]:
    """Return the address of each connection with this name. Servers that do not answer are left out."""
    return [client.ip for client in connected_now(url, monitor_urls).clients if client.name == name]


def _clients_at(address: str) -> list[Client] | None:
    """Return the connections of a server, or None if it does not answer."""
    try:
        request = f"{address.rstrip('/')}/connz?limit={_CLIENTS_MAX}"
        with urllib.request.urlopen(request, timeout=_ANSWER_S_MAX) as reply:  # noqa: S310 - a setting
            return _clients.decode(reply.read(_BYTES_MAX)).connections
    except (OSError, http.client.HTTPException, msgspec.MsgspecError):
        return None
