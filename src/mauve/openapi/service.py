"""What tells of the service itself: its health, and this reference."""

from typing import Final

from mauve.openapi.operation import Answer, Operation, Parameter, Schema, other_method, ref
from mauve.web.health import health, readiness
from mauve.web.messages import JSON, Reply

TAG: Final = "The service"
REVALIDATED: Final = {"cache-control": "no-cache"}
HTML: Final = {
    "content-type": "text/html; charset=utf-8",
    "content-security-policy": "default-src 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
_IF_NONE_MATCH: Final = Parameter(
    "If-None-Match", "header", "The `ETag` of the version that you have.", {"type": "string"}
)
_ENGINES: Final = {"catalog": True, "ledger": True, "warehouse": True, "edge": True, "log": True}


def _document(path: str, name: str, *, summary: str, text: str, found: Reply, schema: Schema) -> Operation:
    kept = {**REVALIDATED, "etag": '"7d0c…"'}
    return Operation(
        method="GET",
        path=path,
        name=name,
        tag=TAG,
        summary=summary,
        text=text,
        parameters=(_IF_NONE_MATCH,),
        answers=(
            Answer("found", "Here it is.", found._replace(headers={**found.headers, **kept}), schema),
            Answer("unchanged", "You have the current version.", Reply(304, headers=kept)),
            other_method("GET"),
        ),
    )


ROUTES: Final = (
    Operation(
        method="GET",
        path="/healthz",
        name="checkHealth",
        tag=TAG,
        summary="Ask whether the process is up",
        text="Says nothing of the engines behind it.",
        answers=(Answer("up", "It is.", health("GET"), ref("Health")), other_method("GET")),
    ),
    Operation(
        method="GET",
        path="/readyz",
        name="checkReadiness",
        tag=TAG,
        summary="Ask whether the engines can be reached",
        text="For load balancers and monitors.",
        answers=(
            Answer(
                "ready",
                "All of them can.",
                readiness("GET", _ENGINES, backlog_bytes=0, load_lag_ms=180),
                ref("Readiness"),
            ),
            other_method("GET"),
            Answer(
                "not_ready",
                "At least one cannot.",
                readiness("GET", {**_ENGINES, "catalog": False}, backlog_bytes=4096, load_lag_ms=2200),
                ref("Readiness"),
            ),
        ),
    ),
    _document(
        "/openapi.json",
        "readReference",
        summary="Read this reference as OpenAPI 3.1",
        text="For programs: generate a client, or test against it.",
        found=Reply(200, b'{"openapi":"3.1.0"}', JSON),
        schema={"type": "object"},
    ),
    _document(
        "/docs",
        "showReference",
        summary="Read this reference as a page",
        text="For people.",
        found=Reply(200, b"<!doctype html>", HTML),
        schema={"type": "string"},
    ),
)
