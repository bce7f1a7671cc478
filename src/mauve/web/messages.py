"""Requests and replies of the data planes, independent of any server."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

import msgspec

JSON: Final = {"content-type": "application/json"}
_encoder = msgspec.json.Encoder()


class OpenRequest(Protocol):
    """A request whose body has not been read: it can be refused before that."""

    @property
    def method(self) -> str: ...

    @property
    def path(self) -> str: ...

    @property
    def query(self) -> bytes:
        """Return what follows the question mark; empty if there is none."""
        ...

    def header(self, name: str) -> str | None:
        """Return a header's value, by its lowercase name.

        A header sent twice is joined with a comma, as HTTP says, and so matches no credential and no media type.
        """
        ...

    def header_values(self, name: str) -> list[str]:
        """Return every value of a header that may be sent only once."""
        ...

    @property
    def buffered_body(self) -> bytes | None:
        """Return the body if it is small and arrived with the head."""
        ...

    @property
    def declared_bytes(self) -> int | None:
        """Return the declared size of the body, if there is one."""
        ...

    async def body(self, bytes_max: int, should_evict: Callable[[], bool] = ...) -> bytes:
        """Return the body; raise `BodyTooLargeError` if it is larger, `IncompleteBodyError` if it is cut off.

        Raise `Busy` for a slow body if `should_evict` says that others need its room.
        """
        ...


class Reply(NamedTuple):
    status: int
    body: bytes = b""
    headers: Mapping[str, str] = MappingProxyType({})

    def with_headers(self, added: Mapping[str, str]) -> "Reply":
        return Reply(self.status, self.body, {**self.headers, **added})


def json_reply(status: HTTPStatus, value: Any) -> Reply:  # noqa: ANN401 - anything that msgspec can encode
    return Reply(status, _encoder.encode(value), JSON)


def bearer_credential(authorization: str | None) -> str | None:
    """Return what follows `Bearer` in an Authorization header."""
    if authorization is None:
        return None
    return _cached(authorization) if len(authorization) <= _CACHED_CHARACTERS_MAX else _parsed(authorization)


def _parsed(authorization: str) -> str | None:
    if authorization.startswith("Bearer "):  # the usual spelling
        return authorization[7:].strip(" ")
    scheme, _, credential = authorization.partition(" ")
    return credential.strip(" ") if scheme.lower() == "bearer" else None


# Clients send the same header again and again. Longer ones are not credentials of ours, and would take memory.
_CACHED_CHARACTERS_MAX: Final = 128
_cached: Final = lru_cache(maxsize=1024)(_parsed)


def is_json(content_type: str | None) -> bool:
    if content_type == "application/json":
        return True
    return content_type is not None and content_type.partition(";")[0].strip().lower() == "application/json"
