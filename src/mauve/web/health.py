"""What monitors and balancers ask.

`/healthz` reports whether the process is up, `/readyz` whether it can reach its engines and is not about to stop,
`/drainz` only the latter: a machine whose engines are down for all machines still answers what it can.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from mauve.web.envelopes import is_safe_method, wrong_method
from mauve.web.messages import Reply, json_reply


class Drain:
    """While it is on, everything is answered, `/readyz` with 503, and each reply closes its connection."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.is_on = False

    def begin(self) -> None:
        self.is_on = True


_DRAINING: Final = "this process is about to stop: use another one"


def health(method: str) -> Reply:
    return json_reply(HTTPStatus.OK, {"ok": True}) if is_safe_method(method) else wrong_method("GET")


def drain_state(method: str, *, is_draining: bool) -> Reply:
    """Report whether the process takes requests, whatever its engines do: for balancers."""
    if not is_safe_method(method):
        return wrong_method("GET")
    if is_draining:
        return json_reply(HTTPStatus.SERVICE_UNAVAILABLE, {"ok": False, "reason": _DRAINING})
    return json_reply(HTTPStatus.OK, {"ok": True})


def _failing(engines: Mapping[str, bool]) -> str:
    names = ", ".join(name for name, usable in engines.items() if not usable)
    return f"cannot use {names}: run 'mauve doctor' to see why"


def readiness(method: str, engines: Mapping[str, bool], *, is_draining: bool = False, **facts: int) -> Reply:
    """Report which engines can be reached; ready means all of them, in a process that is not about to stop."""
    if not is_safe_method(method):
        return wrong_method("GET")
    ready = all(engines.values()) and not is_draining
    status = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
    states = {name: "ok" if usable else "unreachable" for name, usable in engines.items()}
    reason = {} if ready else {"reason": _DRAINING if is_draining else _failing(engines)}
    return json_reply(status, {"ok": ready, "engines": states, **facts, **reason})
