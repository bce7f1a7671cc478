"""Read over HTTP. In process, the client's transport is the application itself, so every rule of the API holds."""

from datetime import date
from typing import Any, Final, TypeVar

import httpx2
import msgspec
from starlette.types import ASGIApp

from mauve.agents.reader import Allowance, ListedApp, Query, Reading, RefusedError, Reserve, Row
from mauve.core.secret import Secret

_REPLY_BYTES_MAX: Final = 2 * 1024 * 1024  # To decode more would hold the event loop.
_APPS_BYTES_MAX: Final = 8 * 1024 * 1024  # The operator decides how many apps there are.
_TIMEOUT_S: Final = 30.0

T = TypeVar("T")


class MetricBody(msgspec.Struct, frozen=True):
    date_from: date
    date_to: date
    data: list[Row]


_allowance: Final = msgspec.json.Decoder(Allowance)
_apps: Final = msgspec.json.Decoder(list[ListedApp])
_metric: Final = msgspec.json.Decoder(MetricBody)
_fields: Final = msgspec.json.Decoder(dict[str, Any])


def _reserve_any(_: int) -> None:
    """Let everything pass: a service at an address limits the requests itself."""


def remote_client(url: str, token: Secret) -> httpx2.AsyncClient:
    """Return a client of the service at an address."""
    return httpx2.AsyncClient(base_url=url, headers=_headers(token), timeout=_TIMEOUT_S)


def local_client(app: ASGIApp, token: Secret) -> httpx2.AsyncClient:
    """Return a client of the application in this process. It reads no environment and no certificates."""
    transport = httpx2.ASGITransport(app)
    return httpx2.AsyncClient(
        transport=transport, base_url="http://localhost", headers=_headers(token), timeout=None, trust_env=False
    )


def _headers(token: Secret) -> dict[str, str]:
    return {"authorization": f"Bearer {token.reveal()}", "accept": "application/json", "accept-encoding": "identity"}


class HttpReader:
    """Reads with one control token.

    - Each method but `reserve` is one request, bounded in time and size, and raises `RefusedError` if it is refused.
    - Only `metric` spends anything, and only if no cache answers.
    """

    def __init__(self, client: httpx2.AsyncClient, reserve: Reserve = _reserve_any) -> None:
        self._client = client
        self.reserve = reserve  # raises `RefusedError` if this number of reads is over the limit, cached ones included

    async def allowance(self) -> Allowance:
        body, _ = await self._get("/mcp/allowance", {}, _REPLY_BYTES_MAX)
        return _decoded(body, _allowance)

    async def apps(self) -> list[ListedApp]:
        body, _ = await self._get("/v1/apps", {}, _APPS_BYTES_MAX)
        return _decoded(body, _apps)

    async def metric(self, query: Query) -> Reading:
        given = {"project": query.project, "name": query.name, "date_from": query.date_from, "date_to": query.date_to}
        parameters = {name: str(value) for name, value in given.items() if value is not None}
        body, headers = await self._get(f"/v1/metrics/{query.metric}", parameters, _REPLY_BYTES_MAX, spent=1)
        found = _decoded(body, _metric)
        cache = headers.get("x-cache", "uncached")
        age_s = 0 if cache == "miss" else _whole(headers.get("x-cache-age"))
        cut_at = _whole(headers.get("x-service-truncated"))
        return Reading(found.date_from, found.date_to, found.data, cache, age_s, cut_at)

    async def _get(
        self, path: str, parameters: dict[str, str], bytes_max: int, spent: int = 0
    ) -> tuple[bytes, httpx2.Headers]:
        """Return the body and the headers. `spent` is what a request that fails may have cost."""
        try:
            async with self._client.stream("GET", path, params=parameters) as response:
                body = await _bounded(response, bytes_max, spent)
        except httpx2.HTTPError as error:
            reason = f"the service does not answer ({type(error).__name__}): check its address, then retry"
            raise RefusedError(reason, retry_after_s=5, spent=spent) from None
        if response.status_code != httpx2.codes.OK:
            raise _refusal_of(response, body, spent)
        return body, response.headers


async def _bounded(response: httpx2.Response, bytes_max: int, spent: int) -> bytes:
    kept = bytearray()
    async for chunk in response.aiter_bytes():
        kept += chunk
        if len(kept) > bytes_max:
            raise RefusedError("the answer is too large: ask for fewer days, or for another metric", spent=spent)
    return bytes(kept)


def _decoded(body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise _no_service() from None


def _no_service() -> RefusedError:
    return RefusedError("the reply is not that of a Mauve service of this release: check the address, and upgrade")


def _refusal_of(response: httpx2.Response, body: bytes, spent: int) -> RefusedError:
    status, throttle = response.status_code, response.headers.get("x-service-throttle", "")
    message = _message_in(body)
    if status == httpx2.codes.UNAUTHORIZED:
        return RefusedError("the control token is not accepted, perhaps it was revoked: mint one on the Tokens page")
    if throttle.startswith("allowance:"):
        return RefusedError(message, stop_until=response.headers.get("x-service-reset"))
    retry_after_s = _whole(response.headers.get("retry-after"))
    if status >= httpx2.codes.INTERNAL_SERVER_ERROR:
        return RefusedError(message, retry_after_s=retry_after_s or 5, spent=spent)
    return RefusedError(message, retry_after_s=retry_after_s)


def _message_in(body: bytes) -> str:
    """Return the message of either envelope."""
    try:
        error = _fields.decode(body).get("error")
    except (msgspec.DecodeError, UnicodeDecodeError):
        error = None
    if isinstance(error, dict):
        error = error.get("message")
    return error if isinstance(error, str) else str(_no_service())


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None
