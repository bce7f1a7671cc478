"""`/healthz` reports whether the process is up, `/readyz` whether it can reach its engines."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from mauve.web.envelopes import wrong_method
from mauve.web.messages import Reply, json_reply

_SAFE_METHODS: Final = frozenset({"GET", "HEAD"})


def health(method: str) -> Reply:
    return json_reply(HTTPStatus.OK, {"ok": True}) if method in _SAFE_METHODS else wrong_method("GET")


def readiness(method: str, engines: Mapping[str, bool], **facts: int) -> Reply:
    """Report which engines can be reached; ready means all of them."""
    if method not in _SAFE_METHODS:
        return wrong_method("GET")
    ready = all(engines.values())
    status = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
    states = {name: "ok" if usable else "unreachable" for name, usable in engines.items()}
    return json_reply(status, {"ok": ready, "engines": states, **facts})
