"""The application on the main port."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from mauve.agents.plane import ALLOWANCE_PATH, PATH, AgentsPlane
from mauve.control import ControlParts
from mauve.control.plane import PREFIX as APPS
from mauve.control.plane import ControlPlane
from mauve.dashboard.dependencies import DashboardParts
from mauve.dashboard.plane import Dashboard
from mauve.openapi.routes import reference_routes
from mauve.query import QueryParts
from mauve.query.plane import PREFIX as METRICS
from mauve.query.plane import QueryPlane
from mauve.stores import ForeignDataError, StoreUnavailableError
from mauve.stores.warehouse import WarehouseUnavailableError
from mauve.web.app import response_from, starlette_app
from mauve.web.asgi import matchable_path, send_reply
from mauve.web.browser_client import is_browser_client_path
from mauve.web.envelopes import wrong_method
from mauve.web.health import PROBE_PATHS, Drain, Probes


@dataclass(frozen=True, slots=True)
class OtherPaths:
    """The handler for paths outside the API and dashboard, with its engines and facts for `/readyz`."""

    app: ASGIApp | None  # None: there are no such paths
    engines: Callable[[], Mapping[str, bool]]
    status: Callable[[], Mapping[str, int]] = dict
    drain: Drain = field(default_factory=Drain)


class ServiceApp:
    """The planes and the dashboard as one ASGI application: the path selects the one that answers.

    Metrics and ingest are raw ASGI, because Starlette makes a cached metric read a sixth more expensive. For an unknown
    path, browsers get a page and programs get the data-plane envelope.
    """

    def __init__(
        self,
        parts: ControlParts,
        query: QueryParts,
        dashboard: DashboardParts,
        others: OtherPaths,
        *,
        timeout_s: float,
    ) -> None:
        self._parts = parts
        self._ledger = query.stores.ledger
        self._other_engines = others.engines
        self._dashboard = Dashboard(dashboard, timeout_s)
        probes = ProbesApp(Probes(self.engines, others.drain, others.status))
        self._other_app = others.app or probes
        service_routes = reference_routes(dashboard.public_url)
        metrics = QueryPlane(query)
        self.control = ControlPlane(parts, timeout_s, query.keyring.refresh)
        service = starlette_app(service_routes, _refuse_method)
        agents = AgentsPlane(query, dashboard.public_url, self)
        # A path, or with a trailing slash everything under it.
        self._apps: Mapping[str, ASGIApp] = {
            METRICS: metrics,
            METRICS.rstrip("/"): metrics,
            APPS: self.control.app,
            APPS.rstrip("/"): self.control.app,
            PATH: agents,
            ALLOWANCE_PATH: agents,
            **dict.fromkeys(PROBE_PATHS, probes),
            **{route.path: service for route in service_routes},
        }

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        app = self._app_for(scope)
        scope["path"] = matchable_path(scope)
        return app(scope, receive, send)  # Awaiting it here would cost an extra coroutine per request.

    def _app_for(self, scope: Scope) -> ASGIApp:
        path: str = scope["path"]
        app = self._apps.get(path) or self._apps.get(path[: path.find("/", len("/v1/")) + 1])
        if app is not None:
            return app
        is_page = not is_browser_client_path(path) and self._dashboard.serves(scope)
        return self._dashboard.app if is_page else self._other_app

    def engines(self) -> dict[str, bool]:
        """Return which engines answer. Blocks while waiting for them."""
        return {
            "catalog": is_reachable(self._parts.catalog.installation.ping),
            "ledger": is_reachable(self._ledger.ping),
            **self._other_engines(),
        }


async def _refuse_method(_: Request, __: Exception) -> Response:
    return response_from(wrong_method("GET"))


def is_reachable(ping: Callable[[], None]) -> bool:
    try:
        ping()
    except (StoreUnavailableError, WarehouseUnavailableError, ForeignDataError):
        return False
    return True


class ProbesApp:
    """The probes as an ASGI application."""

    def __init__(self, probes: Probes) -> None:
        self._probes = probes

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        answer = partial(self._probes.answer, scope["method"], path := matchable_path(scope))
        await send_reply(send, await run_in_threadpool(answer) if path == "/readyz" else answer())
