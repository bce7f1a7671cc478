"""What monitors and load balancers ask.

`/healthz` reports whether the process is up, `/readyz` whether it can reach its engines and is not about to stop,
`/drainz` only the latter: a machine whose engines are down for all machines still answers what it can.
"""

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final

from mauve.core.problems import unknown_path
from mauve.web.envelopes import data_reply, is_safe_method, wrong_method
from mauve.web.messages import Reply, json_reply

PROBE_PATHS: Final = frozenset({"/healthz", "/drainz", "/readyz"})
_ABOUT_TO_STOP: Final = "this process is about to stop: use another one"
UP: Final = json_reply(HTTPStatus.OK, {"ok": True})
DRAINING: Final = json_reply(HTTPStatus.SERVICE_UNAVAILABLE, {"ok": False, "reason": _ABOUT_TO_STOP})


class Drain:
    """While it is on, everything is answered, `/readyz` with 503, and each reply closes its connection."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.is_on = False


class Probes:
    def __init__(
        self,
        engines: Callable[[], Mapping[str, bool]],
        drain: Drain,
        status: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self._engines = engines
        self._drain = drain
        self._status = status

    def answer(self, method: str, path: str) -> Reply:
        """Return the reply; for `/readyz`, wait until every engine has answered."""
        if path not in PROBE_PATHS:
            return data_reply(unknown_path())
        if not is_safe_method(method):
            return wrong_method("GET")
        if path == "/readyz":
            return readiness(self._engines(), is_draining=self._drain.is_on, **self._status())
        return DRAINING if path == "/drainz" and self._drain.is_on else UP


def readiness(engines: Mapping[str, bool], *, is_draining: bool = False, **facts: int) -> Reply:
    """Report which engines can be reached; ready means all of them, in a process that is not about to stop."""
    failing = ", ".join(name for name, usable in engines.items() if not usable)
    states = {name: "ok" if usable else "unreachable" for name, usable in engines.items()}
    body: dict[str, object] = {"ok": not failing and not is_draining, "engines": states, **facts}
    if body["ok"]:
        return json_reply(HTTPStatus.OK, body)
    reason = _ABOUT_TO_STOP if is_draining else f"cannot use {failing}: run 'mauve doctor' to see why"
    return json_reply(HTTPStatus.SERVICE_UNAVAILABLE, {**body, "reason": reason})
