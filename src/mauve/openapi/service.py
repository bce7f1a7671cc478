"""The operations of the service itself: its health, and this reference."""

from typing import Final

from mauve.openapi.operation import Operation, Parameter, Response, Schema, method_not_allowed, ref
from mauve.web.health import drain_state, health, readiness
from mauve.web.messages import JSON, Reply

TAG: Final = "The service"
REVALIDATED: Final = {"cache-control": "no-cache"}
HTML: Final = {
    "content-type": "text/html; charset=utf-8",
    "content-security-policy": "default-src 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
PLAIN: Final = {"content-type": "text/plain; charset=utf-8", "x-content-type-options": "nosniff"}
_IF_NONE_MATCH: Final = Parameter("If-None-Match", "header", "The `ETag` of the version you have.", {"type": "string"})
_ENGINES: Final = {"catalog": True, "ledger": True, "warehouse": True, "edge": True, "log": True}


def _static(path: str, id_: str, *, summary: str, description: str, found: Reply, schema: Schema) -> Operation:
    caching = {**REVALIDATED, "etag": '"7d0c…"'}
    return Operation(
        method="GET",
        path=path,
        id=id_,
        tag=TAG,
        summary=summary,
        description=description,
        parameters=(_IF_NONE_MATCH,),
        responses=(
            Response("found", "The current version.", found._replace(headers={**found.headers, **caching}), schema),
            Response("unchanged", "Your version is current.", Reply(304, headers=caching)),
            method_not_allowed("GET"),
        ),
    )


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/healthz",
        id="checkHealth",
        tag=TAG,
        summary="Check that the process is up",
        description="Does not check the engines.",
        responses=(Response("up", "The process is up.", health("GET"), ref("Health")), method_not_allowed("GET")),
    ),
    Operation(
        method="GET",
        path="/drainz",
        id="checkDrain",
        tag=TAG,
        summary="Check that the process takes requests",
        description="For load balancers. Does not check the engines: a process without one still answers what it can.",
        responses=(
            Response("up", "The process takes requests.", drain_state("GET", is_draining=False), ref("Health")),
            method_not_allowed("GET"),
            Response("draining", "The process is about to stop.", drain_state("GET", is_draining=True), ref("Drain")),
        ),
    ),
    Operation(
        method="GET",
        path="/readyz",
        id="checkReadiness",
        tag=TAG,
        summary="Check that the engines can be reached",
        description="For load balancers and monitors. Before a process stops it returns 503 here for some seconds.",
        responses=(
            Response(
                "ready",
                "All engines can be reached.",
                readiness("GET", _ENGINES, backlog_bytes=0, load_lag_ms=180),
                ref("Readiness"),
            ),
            method_not_allowed("GET"),
            Response(
                "not_ready",
                "At least one engine cannot be used, or the process is about to stop: `reason` says which.",
                readiness("GET", {**_ENGINES, "catalog": False}, backlog_bytes=4096, load_lag_ms=2200),
                ref("Readiness"),
            ),
        ),
    ),
    _static(
        "/openapi.json",
        "readReference",
        summary="Read this reference as OpenAPI 3.1",
        description="For programs: generate a client from it, or test against it.",
        found=Reply(200, b'{"openapi":"3.1.0"}', JSON),
        schema={"type": "object"},
    ),
    _static(
        "/docs",
        "showReference",
        summary="Read this reference as a page",
        description="For people.",
        found=Reply(200, b"<!doctype html>", HTML),
        schema={"type": "string"},
    ),
    _static(
        "/llms.txt",
        "readOverview",
        summary="Read what this service is, for language models",
        description="A short text in Markdown with links to this reference and, if they are installed, the guides.",
        found=Reply(200, b"# Mauve", PLAIN),
        schema={"type": "string"},
    ),
)
