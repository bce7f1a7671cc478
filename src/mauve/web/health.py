"""`/healthz` tells whether the process is up, `/readyz` whether it can reach its engines."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from mauve.web.envelopes import wrong_method
from mauve.web.messages import Reply, Request, json_reply

_READING: Final = frozenset({"GET", "HEAD"})


def health(request: Request) -> Reply:
    return json_reply(HTTPStatus.OK, {"ok": True}) if request.method in _READING else wrong_method("GET")


def readiness(request: Request, engines: Mapping[str, bool]) -> Reply:
    """Tell which engines can be reached; ready means all of them."""
    if request.method not in _READING:
        return wrong_method("GET")
    ready = all(engines.values())
    status = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
    states = {name: "ok" if reachable else "unreachable" for name, reachable in engines.items()}
    return json_reply(status, {"ok": ready, "engines": states})
