"""CORS: let pages of any origin send events with a publishable key, and nothing else."""

from typing import Final

from mauve.web.messages import JSON, Reply

_ANY_ORIGIN: Final = {"access-control-allow-origin": "*"}
_EXPOSED: Final = {"access-control-expose-headers": "retry-after, x-service-throttle"}
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
    """Let a page read the reply and its Retry-After."""
    exposed = _EXPOSED if "retry-after" in reply.headers else {}
    return reply._replace(headers={**reply.headers, **_ANY_ORIGIN, **exposed})
