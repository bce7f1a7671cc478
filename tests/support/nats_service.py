"""A service whose log is on NATS, for tests."""

import base64
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx

from mauve.config import settings_from
from mauve.stores.sql.processes import SqlAcceptedCounts
from mauve.wiring.databases import open_catalog_database
from support.nats import Nats
from support.service import SERVERS, Service, bearer, eventually, mauve_json, running

WORKERS = 2


@contextmanager
def service_on(servers: Nats, tmp_path: Path, **settings: str) -> Iterator[tuple[Service, str, dict[str, Any]]]:
    data = tmp_path / "data"
    SERVERS[data] = servers.settings() | {"MAUVE_MASTER_KEY": base64.b64encode(bytes(32)).decode()} | settings
    with running(data, "--workers", str(WORKERS)) as service:
        org = mauve_json(data, "org", "create", "Acme")["org_id"]
        scopes = "apps:write,keys:write,keys:read"
        token = mauve_json(data, "token", "mint", "--org", org, "--scopes", scopes)["token"]
        app = eventually(lambda: created_app(service, token))
        yield service, org, app


def created_app(service: Service, token: str) -> dict[str, Any] | None:
    reply = httpx.post(f"{service.url}/v1/apps", headers=bearer(token), json={"name": "An app"})
    return reply.json() if reply.status_code == 201 else None


def shared_events(data: Path) -> int:
    """Return how many events the processes share that are not loaded."""
    settings = settings_from({"MAUVE_DATA": str(data), **SERVERS[data]})
    with closing(open_catalog_database(settings)) as database:
        others = SqlAcceptedCounts(database, "observer.0").others()
    return sum(sum(counts.sums(0).values()) for _, counts in others)
