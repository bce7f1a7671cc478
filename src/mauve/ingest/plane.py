"""The ingest plane's answers, free of any server: the same behind the workers' own port and the main one."""

from typing import Final

from mauve.access.keyring import Keyring
from mauve.core.problems import Code, Problem, unauthorized, unknown_path
from mauve.web.envelopes import data_reply, wrong_method
from mauve.web.health import health, readiness
from mauve.web.messages import Reply, Request, bearer_credential

BODY_BYTES_MAX: Final = 1024 * 1024


class IngestPlane:
    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring

    def answer(self, request: Request) -> Reply:
        match request.path:
            case "/v1/events" | "/v1/objects":
                return self._ingest(request) if request.method == "POST" else wrong_method("POST")
            case "/healthz":
                return health(request)
            case "/readyz":
                return readiness(request, {"edge": self._keyring.is_current})
            case _:
                return data_reply(unknown_path())

    def _ingest(self, request: Request) -> Reply:
        if self._keyring.key_for(bearer_credential(request.authorization)) is None:
            return data_reply(unauthorized())
        return data_reply(Problem(Code.NOT_STORED, "events are not taken in yet: nothing was stored, retry later"))
