"""A request and a reply, free of any server's own types."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

import msgspec

JSON: Final = {"content-type": "application/json"}
_encoder = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class Request:
    """A request read whole. `body` is None when it was larger than the plane takes, or was cut off."""

    method: str
    path: str
    authorization: str | None
    body: bytes | None


class OpenRequest(Protocol):
    """A request whose body is still with its sender: it can be refused before it is read."""

    @property
    def method(self) -> str: ...

    @property
    def path(self) -> str: ...

    def header(self, name: str) -> str | None:
        """Return a header's value, by its name in lower case.

        One sent twice is joined by a comma, as HTTP says, and then fits no credential and no media type.
        """
        ...

    def header_values(self, name: str) -> list[str]:
        """Return every value of a header that may be sent once only."""
        ...

    @property
    def arrived(self) -> bytes | None:
        """Return the body if it is small and came along with the head."""
        ...

    @property
    def declared_bytes(self) -> int | None:
        """Return how long the body is said to be; None if that is not said."""
        ...

    async def body(self, bytes_max: int, is_room_needed: Callable[[], bool] = ...) -> bytes:
        """Return the body; raise `BodyTooLargeError` if it is larger, `IncompleteBodyError` if it is cut off.

        A body that comes slowly is waited for as long as it is not in the way, else `Busy` is raised.
        """
        ...


class Reply(NamedTuple):
    status: int
    body: bytes = b""
    headers: Mapping[str, str] = MappingProxyType({})


def json_reply(status: HTTPStatus, value: Any) -> Reply:  # noqa: ANN401 - whatever msgspec can encode
    return Reply(status, _encoder.encode(value), JSON)


# Clients send one header over and over.
@lru_cache(maxsize=1024)
def bearer_credential(authorization: str | None) -> str | None:
    """Return what follows `Bearer` in an Authorization header."""
    if authorization is None:
        return None
    if authorization.startswith("Bearer "):  # as nearly everybody writes it
        return authorization[7:].strip(" ")
    scheme, _, credential = authorization.partition(" ")
    return credential.strip(" ") if scheme.lower() == "bearer" else None


def is_json(content_type: str | None) -> bool:
    if content_type == "application/json":
        return True
    return content_type is not None and content_type.partition(";")[0].strip().lower() == "application/json"
