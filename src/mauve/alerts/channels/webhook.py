"""Post a notice to a webhook, and only there.

A tenant chooses the address, so it must not lead into our own network: the name is resolved once, every address is
checked, and the connection goes to a checked address, so that a second answer of the DNS cannot redirect it. Redirects
are not followed, proxies of the environment are not used, and no text of the response is kept or shown.
"""

import base64
import http.client
import io
import secrets
import socket
import ssl
from collections.abc import Mapping
from functools import cached_property
from http import HTTPStatus
from typing import Any, Final

from mauve.alerts.channels import SEND_S_MAX, Notice, SendFailed, Target
from mauve.alerts.channels.connection import (
    Deadline,
    Endpoint,
    Resolve,
    check_resolved,
    connected,
    endpoint_from,
    resolve,
)
from mauve.alerts.channels.formats import BODIES
from mauve.core.clock import Clock, SystemClock
from mauve.core.standard_webhooks import SECRET_PREFIX, decoded_key, signature_of

RESPONSE_BYTES_MAX: Final = 64 * 1024
_TEMPORARY: Final = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS}


def new_secret() -> str:
    """Return a random signing secret as Standard Webhooks writes it."""
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


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
        body = BODIES[target.kind](notice)
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
        """Return the headers of Standard Webhooks: the id stays the same, the timestamp is that of the attempt."""
        if target.kind != "webhook":
            return {}
        if not target.secret:
            raise SendFailed("The webhook has no signing secret. Remove it and add it again.", retry=False)
        now_s = str(self._clock.now_ms() // 1000)
        signature = base64.b64encode(signature_of(decoded_key(target.secret), notice.id, now_s, body)).decode()
        return {"webhook-id": notice.id, "webhook-timestamp": now_s, "webhook-signature": f"v1,{signature}"}

    def _post(self, endpoint: Endpoint, body: bytes, headers: Mapping[str, str], deadline: Deadline) -> int:
        """Return the status of the response. Its body is never read."""
        host, port, tls = endpoint.host, endpoint.port, self._tls if endpoint.is_tls else None
        addresses = self._resolve(host, deadline)
        if not self._allow_private:
            check_resolved(addresses)
        connection = http.client.HTTPConnection(host, port)
        connection.response_class = _BoundedResponse
        with connected(addresses, port, deadline, host, tls=tls) as connection.sock:
            own = {"host": endpoint.host_header, "connection": "close"}
            connection.request("POST", endpoint.path, body, {**headers, **own})
            return connection.getresponse().status

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context()  # Not at the start: reading the system's certificates takes a while.


class _BoundedReader(io.RawIOBase):
    """Reads from a socket up to the limit, then acts as if the other side had closed it."""

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
    match status // 100:
        case 2:
            return
        case 3:
            raise SendFailed(f"The receiver redirects ({status}). Enter the address that it redirects to.", retry=False)
        case 4 if status not in _TEMPORARY:
            raise SendFailed(f"The receiver refused the message ({status}). Check the address.", retry=False)
    raise SendFailed(f"The receiver could not take the message ({status}). It is sent again later.", retry=True)


def _reason_of(error: Exception, deadline: Deadline) -> str:
    if deadline.is_over or isinstance(error, TimeoutError):
        return "The receiver did not answer in time. It is tried again later."
    match error:
        case socket.gaierror():
            return "The host of the address was not found. Check the address."
        case ssl.SSLCertVerificationError():
            return "The receiver's certificate is not valid for the address. Renew it."
        case http.client.HTTPException():
            return "The receiver's answer is not valid HTTP. Check the address."
    return "The receiver could not be reached. Check that it is running, and the address."
