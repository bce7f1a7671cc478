"""The ingest plane's answers, free of any server: the same behind the workers' own port and the main one."""

from http import HTTPStatus
from typing import Final

from mauve.access.keyring import Keyring
from mauve.core.problems import Code, Problem, unauthorized, unknown_path
from mauve.web.envelopes import data_reply
from mauve.web.messages import Reply, Request, bearer_credential, json_reply

BODY_BYTES_MAX: Final = 1024 * 1024


class IngestPlane:
    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring

    def answer(self, request: Request) -> Reply:
        match request.path:
            case "/v1/events" | "/v1/objects":
                return self._ingest(request)
            case "/healthz":
                return json_reply(HTTPStatus.OK, {"ok": True})
            case "/readyz":
                return self._readiness()
            case _:
                return data_reply(unknown_path())

    def _readiness(self) -> Reply:
        ready = self._keyring.is_current
        status = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
        return json_reply(status, {"ok": ready, "engines": {"edge": "ok" if ready else "unreachable"}})

    def _ingest(self, request: Request) -> Reply:
        if request.method != "POST":
            problem = Problem(Code.METHOD_NOT_ALLOWED, "only POST is answered here")
            reply = data_reply(problem)
            return Reply(reply.status, reply.body, {**reply.headers, "allow": "POST"})
        if self._keyring.key_for(bearer_credential(request.authorization)) is None:
            return data_reply(unauthorized())
        return data_reply(Problem(Code.NOT_STORED, "events are not taken in yet: nothing was stored, retry later"))
