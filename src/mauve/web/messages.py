"""A request and a reply, free of any server's own types."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

import msgspec

JSON: Final = {"content-type": "application/json"}
_encoder = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class Request:
    """What a plane needs of a request. `body` is None when it was larger than the plane takes."""

    method: str
    path: str
    authorization: str | None
    body: bytes | None


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


def json_reply(status: HTTPStatus, value: Any) -> Reply:  # noqa: ANN401 - whatever msgspec can encode
    return Reply(status, _encoder.encode(value), JSON)


def bearer_credential(authorization: str | None) -> str | None:
    """Return what follows `Bearer` in an Authorization header."""
    if authorization is None:
        return None
    scheme, _, credential = authorization.partition(" ")
    return credential.strip(" ") if scheme.lower() == "bearer" else None
