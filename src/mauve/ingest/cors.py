"""CORS: let pages of any origin send events with a publishable key, and nothing else."""

from typing import Final

from mauve.web.messages import JSON, Reply

_ANY_ORIGIN: Final = {"access-control-allow-origin": "*"}
_READABLE: Final = ("retry-after", "x-service-throttle", "x-service-moved", "x-service-moved-items", "x-service-hint")
EVENT_HEADERS: Final = {**JSON, **_ANY_ORIGIN}
PREFLIGHT: Final = Reply(
    204,
    b"",
    {
        **_ANY_ORIGIN,
        "access-control-allow-methods": "POST",
        "access-control-allow-headers": "authorization, content-type, content-encoding",
        "access-control-max-age": "86400",
    },
)


def with_cors(reply: Reply) -> Reply:
    """Let a page read the reply and the headers that concern its sender."""
    readable = ", ".join(name for name in _READABLE if name in reply.headers)
    exposed = {"access-control-expose-headers": readable} if readable else {}
    return reply.with_headers(_ANY_ORIGIN | exposed)
