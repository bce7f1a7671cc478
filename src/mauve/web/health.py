"""`/healthz` tells whether the process is up, `/readyz` whether it can reach its engines."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from mauve.web.envelopes import wrong_method
from mauve.web.messages import Reply, json_reply

_READING: Final = frozenset({"GET", "HEAD"})


def health(method: str) -> Reply:
    return json_reply(HTTPStatus.OK, {"ok": True}) if method in _READING else wrong_method("GET")


def readiness(method: str, engines: Mapping[str, bool], **facts: int) -> Reply:
    """Tell which engines can be used; ready means all of them."""
    if method not in _READING:
        return wrong_method("GET")
    ready = all(engines.values())
    status = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
    states = {name: "ok" if usable else "unreachable" for name, usable in engines.items()}
    return json_reply(status, {"ok": ready, "engines": states, **facts})
