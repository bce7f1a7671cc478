"""The application on the main port."""

from asyncio import to_thread
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from mauve.agents.plane import ALLOWANCE_PATH, PATH, AgentsPlane
from mauve.control import ControlParts
from mauve.control.plane import PREFIX as APPS
from mauve.control.plane import ControlPlane
from mauve.core.problems import unknown_path
from mauve.dashboard.dependencies import DashboardParts
from mauve.dashboard.plane import Dashboard
from mauve.openapi.routes import reference_routes
from mauve.query import QueryParts
from mauve.query.plane import PREFIX as METRICS
from mauve.query.plane import QueryPlane
from mauve.stores import ForeignDataError, StoreUnavailableError
from mauve.stores.warehouse import WarehouseUnavailableError
from mauve.web.app import response_from, starlette_app
from mauve.web.asgi import AsgiRequest, matchable_path, send_reply
from mauve.web.browser_client import is_browser_client_path
from mauve.web.envelopes import data_reply, wrong_method
from mauve.web.health import Drain, drain_state, health, readiness


@dataclass(frozen=True, slots=True)
class OtherPaths:
    """The handler for paths outside the API and dashboard, with its engines and facts for `/readyz`."""

    app: ASGIApp
    engines: Callable[[], Mapping[str, bool]]
    status: Callable[[], Mapping[str, int]] = dict
    drain: Drain = field(default_factory=Drain)


class ServiceApp:
    """The planes and the dashboard as one ASGI application: the path selects the one that answers.

    Control plane, dashboard, reference and readiness are Starlette applications. Metrics and ingest are raw ASGI,
    because Starlette makes a cached metric read a sixth more expensive. For an unknown path, browsers get a page and
    programs get the data-plane envelope.
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
        self._others = others
        self._dashboard = Dashboard(dashboard, timeout_s)
        probes = [Route("/readyz", self._readiness), Route("/drainz", self._drain_state)]
        service_routes = [*probes, *reference_routes(dashboard.public_url)]
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
        return self._dashboard.app if is_page else self._others.app

    def _readiness(self, request: Request) -> Response:
        """Report on the engines. Starlette runs this in a thread because it is not a coroutine."""
        is_draining = self._others.drain.is_on
        facts = self._others.status()
        return response_from(readiness(request.method, self.engines(), is_draining=is_draining, **facts))

    async def _drain_state(self, request: Request) -> Response:
        return response_from(drain_state(request.method, is_draining=self._others.drain.is_on))

    def engines(self) -> dict[str, bool]:
        """Return which engines answer. Blocks while waiting for them."""
        return {
            "catalog": is_reachable(self._parts.catalog.installation.ping),
            "ledger": is_reachable(self._ledger.ping),
            **self._others.engines(),
        }


async def _refuse_method(_: Request, __: Exception) -> Response:
    return response_from(wrong_method("GET"))


def is_reachable(ping: Callable[[], None]) -> bool:
    try:
        ping()
    except (StoreUnavailableError, WarehouseUnavailableError, ForeignDataError):
        return False
    return True


class HealthApp:
    """Serves only `/healthz`, `/drainz` and, if it has engines to report on, `/readyz`."""

    def __init__(
        self,
        engines: Callable[[], Mapping[str, bool]] | None = None,
        status: Callable[[], Mapping[str, int]] = dict,
        drain: Drain | None = None,
    ) -> None:
        self._engines = engines
        self._status = status
        self._drain = drain or Drain()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = AsgiRequest(scope, receive)
        path = matchable_path(scope)
        if path == "/healthz":
            reply = health(request.method)
        elif path == "/drainz":
            reply = drain_state(request.method, is_draining=self._drain.is_on)
        elif path == "/readyz" and self._engines is not None:
            engines = await to_thread(self._engines)
            reply = readiness(request.method, engines, is_draining=self._drain.is_on, **self._status())
        else:
            reply = data_reply(unknown_path())
        await send_reply(send, reply)
