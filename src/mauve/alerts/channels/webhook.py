"""Post a notice to a webhook, and only there.

A tenant chooses the address, so it must not lead into our own network: the name is resolved once, every address is
checked, and the connection goes to a checked address, so that a second answer of the DNS cannot redirect it. Redirects
are not followed, proxies of the environment not used, and no text of the response is kept or shown.
"""

import http.client
import io
import socket
import ssl
from collections.abc import Callable, Mapping
from functools import cached_property
from http import HTTPStatus
from typing import Any, Final

from mauve.alerts.channels import discord, signed_json, slack
from mauve.alerts.channels.addresses import Endpoint, check_resolved, endpoint_from
from mauve.alerts.channels.connection import Deadline, Resolve, connect, resolve
from mauve.alerts.channels.sender import SEND_S_MAX, SendFailed, Target
from mauve.alerts.notice import Notice
from mauve.core.clock import Clock, SystemClock

RESPONSE_BYTES_MAX: Final = 64 * 1024
_BODIES: Final[Mapping[str, Callable[[Notice], bytes]]] = {
    "webhook": signed_json.body_of,
    "slack": slack.body_of,
    "discord": discord.body_of,
}
KINDS: Final = tuple(_BODIES)
_PASSING: Final = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS}


class WebhookSender:
    def __init__(
        self,
        *,
        allow_private: bool,
        clock: Clock | None = None,
        resolve: Resolve = resolve,
        send_s_max: float = SEND_S_MAX,
    ) -> None:
        self._allow_private = allow_private
        self._clock = clock or SystemClock()
        self._resolve = resolve
        self._send_s_max = send_s_max

    def send(self, target: Target, notice: Notice) -> None:
        deadline = Deadline(self._send_s_max)
        body = _BODIES[target.kind](notice)
        headers = {"content-type": "application/json", "user-agent": "Mauve", **self._signature(target, notice, body)}
        try:
            endpoint = endpoint_from(target.address, allow_private=self._allow_private)
            status = self._post(endpoint, body, headers, deadline)
        except (OSError, http.client.HTTPException) as error:  # First: an invalid certificate is a ValueError too.
            raise SendFailed(_reason_of(error, deadline), retry=True) from error
        except ValueError as error:
            raise SendFailed(str(error), retry=False) from None
        _check_status(status)

    def _signature(self, target: Target, notice: Notice, body: bytes) -> Mapping[str, str]:
        if target.kind != "webhook":
            return {}
        if not target.secret:
            raise SendFailed("The webhook has no signing secret. Remove it and add it again.", retry=False)
        return signed_json.signature_headers(target.secret, notice, body, self._clock.now_ms() // 1000)

    def _post(self, endpoint: Endpoint, body: bytes, headers: Mapping[str, str], deadline: Deadline) -> int:
        """Return the status of the response. Its body is never read."""
        addresses = self._resolve(endpoint.host, endpoint.port, deadline)
        if not self._allow_private:
            check_resolved([each.ip for each in addresses])
        tls = self._tls if endpoint.is_tls else None
        with connect(addresses, deadline) as plain, deadline.ending(plain):
            connection = http.client.HTTPConnection(endpoint.host, endpoint.port)
            connection.response_class = _BoundedResponse
            secured = plain if tls is None else tls.wrap_socket(plain, server_hostname=endpoint.host)
            with secured as connection.sock:
                connection.request(
                    "POST", endpoint.path, body, {**headers, "host": endpoint.host_header, "connection": "close"}
                )
                return connection.getresponse().status

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context()  # Not at the start: reading the system's certificates takes a while.


class _BoundedReader(io.RawIOBase):
    """Reads from a socket until the limit, then as if the other side had closed it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._left = RESPONSE_BYTES_MAX

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any writable bytes
        count = self._connection.recv_into(memoryview(buffer)[: self._left]) if self._left else 0
        self._left -= count
        return count


class _BoundedResponse(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **named: Any) -> None:  # noqa: ANN401 - passed on
        super().__init__(sock, *args, **named)
        self.fp.close()
        self.fp = io.BufferedReader(_BoundedReader(sock))


def _check_status(status: int) -> None:
    if 200 <= status < 300:  # noqa: PLR2004 - the range that HTTP defines
        return
    if 300 <= status < 400:  # noqa: PLR2004 - the same
        raise SendFailed(f"The receiver redirects ({status}). Enter the address that it redirects to.", retry=False)
    if 400 <= status < 500 and status not in _PASSING:  # noqa: PLR2004 - the same
        raise SendFailed(f"The receiver refused the message ({status}). Check the address.", retry=False)
    raise SendFailed(f"The receiver could not take the message ({status}). It is sent again later.", retry=True)


def _reason_of(error: Exception, deadline: Deadline) -> str:
    if deadline.is_over or isinstance(error, TimeoutError):
        return "The receiver did not answer in time. It is tried again later."
    if isinstance(error, socket.gaierror):
        return "The host of the address was not found. Check the address."
    if isinstance(error, ssl.SSLCertVerificationError):
        return "The receiver's certificate is not valid for the address. Renew it."
    if isinstance(error, http.client.HTTPException):
        return "The receiver's answer is not valid HTTP. Check the address."
    return "The receiver could not be reached. Check that it is running, and the address."
