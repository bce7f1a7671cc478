"""The app of one run on a cluster: its organizations with small limits, its credentials, and a signed-in user."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any

import httpx2 as httpx

from mauve.config import settings_from
from mauve.control import ControlParts, operator
from mauve.control.people import create_user
from mauve.core.credential import Scope
from mauve.core.user import Role
from mauve.wiring.bootstrap import control_parts
from support.billing import SECRET_A, SECRET_B, sample_bytes, signed_a, signed_b
from support.cluster import Cluster, Node
from support.service import bearer, eventually

ALLOWANCE = 16
CEILING = 8  # reads per minute, of another organization
BROWSER = {"accept": "text/html", "sec-fetch-site": "same-origin"}
WEBHOOKS = {"biller_a": SECRET_A, "biller_b": SECRET_B}
_MANY = 100_000


@dataclass(frozen=True)
class App:
    """The app of one run, and what its clients know."""

    token: str
    app_id: str
    project: str
    key: str
    day: str  # the day that dated events claim
    limited_key: str  # of another organization, which may read only a few times a minute
    session: dict[str, str]  # the cookie of a user who signed in on the first api machine
    address: str  # of the browser; password attempts are limited by address, too


def create_app(cluster: Cluster, seed: int, data: str) -> App:
    """Create organizations, apps, webhooks and a session, and wait until every node knows them."""
    url, name = cluster.apis[0].api_url, f"Run {seed}"
    with control_parts(settings_from(cluster.settings | {"MAUVE_DATA": data})) as parts:
        org_id, token = _organization(parts, name, agent_queries=ALLOWANCE, reads_per_minute=_MANY)
        _, limited = _organization(parts, f"{name} limited", reads_per_minute=CEILING)
        _, link = create_user(parts, org_id, f"run-{seed}-{time.time_ns()}@example.com", Role.OWNER)
    created = eventually(lambda: _created(url, token, name))
    limited_key = eventually(lambda: _created(url, limited, name))["sk_key"]
    for provider, secret in WEBHOOKS.items():
        path = f"{url}/v1/apps/{created['app_id']}/webhooks/{provider}"
        eventually(partial(_saves, path, secret, token))
    app = App(
        token,
        created["app_id"],
        created["public_id"],
        created["sk_key"],
        checked_day(datetime.now(UTC)).isoformat(),
        limited_key,
        eventually(lambda: _signed_in(f"{url}{link.path.reveal()}")),
        f"198.51.{seed // 250}.{seed % 250 + 1}",
    )
    eventually(lambda: all(_knows(node, app) for node in cluster.nodes.values()))
    eventually(lambda: all(_may_read(node, app) for node in cluster.apis))
    return app


def checked_day(now: datetime) -> date:
    """Return the day for which `dau` is checked: no event without a time falls on it, not with a clock an hour slow."""
    return (now - timedelta(days=2)).date()


def refuses_deliveries(node: Node, app: App) -> bool:
    """Return whether a node takes a delivery that was signed just now for a replayed one. Nothing is stored of it."""
    path, content = f"/v1/webhooks/biller_a/{app.project}", sample_bytes("stripe_unmapped_invoice_payment_succeeded")
    headers = {"content-type": "application/json", **signed(path, content)}
    return httpx.post(f"{node.ingest_url}{path}", content=content, headers=headers).status_code == 401


def signed(path: str, content: bytes) -> dict[str, str]:
    sign: Callable[..., dict[str, str]] = signed_a if "biller_a" in path else signed_b
    return sign(content, at=int(time.time()))


def _organization(parts: ControlParts, name: str, **limits: int) -> tuple[str, str]:
    org_id = operator.create_organization(parts, name).org_id
    operator.change_limits(parts, org_id, limits)
    return org_id, operator.mint_token(parts, org_id, "run", Scope)[1].reveal()


def _created(url: str, token: str, name: str) -> dict[str, Any] | None:
    reply = httpx.post(f"{url}/v1/apps", json={"name": name}, headers=bearer(token))
    return reply.json() if reply.status_code == 201 else None


def _saves(path: str, secret: str, token: str) -> bool:
    return httpx.put(path, json={"secret": secret}, headers=bearer(token)).status_code == 204


def _signed_in(link: str) -> dict[str, str]:
    """Choose a password, which signs the user in; return the cookie."""
    reply = httpx.post(link, data={"password": "a long password"}, headers=BROWSER)
    return dict(reply.cookies) if reply.status_code == 303 else {}


def _knows(node: Node, app: App) -> bool:
    """Return whether a node accepts the app's key and finds its webhooks, without storing anything."""
    base = f"{node.ingest_url}/v1"
    statuses = [httpx.post(f"{base}/webhooks/{each}/{app.project}", json={}).status_code for each in WEBHOOKS]
    return statuses == [401, 401] and httpx.post(f"{base}/objects", json=1, headers=bearer(app.key)).status_code == 400


def _may_read(node: Node, app: App) -> bool:
    """Return whether a node knows both organizations' credentials, with a question that is refused and not counted."""
    url = f"{node.api_url}/v1/metrics/mau?date_from=garbage"
    asked = [(app.limited_key, ""), (app.token, f"&project={app.project}")]
    return all(httpx.get(f"{url}{more}", headers=bearer(each)).status_code == 400 for each, more in asked)
