"""Render templates into responses, with the headers that every page carries, and serve their assets.

The names of style sheets, scripts and icons contain a hash of their content, so browsers may cache them forever.
"""

import hashlib
import inspect
import re
from collections.abc import Mapping
from functools import cache
from http import HTTPStatus
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple
from urllib.parse import urlencode

import jinja2
from starlette.responses import RedirectResponse, Response

from mauve.core import text as plain_text
from mauve.core.app import App, Environment
from mauve.core.biller import BILLER_NAMES, Provider
from mauve.core.credential import Scope
from mauve.core.organization import Standing
from mauve.core.user import Permission, Role
from mauve.dashboard import text as wording
from mauve.dashboard.charts.chart import spark
from mauve.dashboard.charts.figures import DRAWN_CURRENCIES_MAX
from mauve.dashboard.charts.periods import LENGTHS
from mauve.dashboard.context import Context, MemberContext, address, environment_of, environment_parameters

ASSETS: Final = "/static/"
_STATIC: Final = Path(__file__).parent / "static"
_HASH_CHARACTERS: Final = 12
_ASSET_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_UNSHOWN: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")  # control characters, which a form may contain
_TEMPLATES: Final = Path(__file__).parent / "templates"
_POLICY: Final = "default-src 'self'; object-src 'none'; frame-ancestors 'none'; form-action 'self'; base-uri 'none'"
SECURITY_HEADERS: Final = {
    "cache-control": "no-store",
    "content-security-policy": _POLICY,
    "cross-origin-opener-policy": "same-origin",
    # Not no-referrer: browsers would then send `Origin: null` with our own forms.
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
}
_HTML: Final = {"content-type": "text/html; charset=utf-8", **SECURITY_HEADERS}
# Notices shown after a change, by their name in the address. Pages never show other text from the address.
NOTICES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "saved": "Saved.",
        "app-archived": "The app is archived. Its keys and webhooks stop working within seconds.",
        "app-restored": "The app is restored. Its keys and webhooks work again within seconds.",
        "key-revoked": "The key is revoked. It stops working within seconds.",
        "token-revoked": "The token is revoked. It stops working within seconds.",
        "secret-saved": "The signing secret is saved, encrypted. It will not be shown again.",
        "test-prepared": "The test environment is ready. Give its addresses to your billers, then save their secrets.",
        "role-changed": "The role is changed.",
        "member-removed": "The member is removed and signed out everywhere.",
        "password-changed": "The password is changed. You are signed out everywhere else.",
        "session-ended": "That browser is signed out.",
        "rule-created": "The rule is added. It is evaluated within a minute.",
        "rule-deleted": "The rule is deleted.",
        "channel-created": "The channel is added. Send a test to see whether it works.",
        "channel-deleted": "The channel is deleted.",
        "test-queued": "The test is sent within seconds: the history below shows the result.",
        "refreshed": "Refreshed. The API returns the same numbers.",
        "refreshed-early": "Refreshed, but Mauve is still loading events that have arrived: refresh again in a moment.",
        "partly-refreshed": "Some numbers could not be read in time and are unchanged. Try again in a moment.",
        "signed-out": "You are signed out.",
        "signed-out-everywhere": "You are signed out in every browser.",
    }
)


class _Asset(NamedTuple):
    url: str
    content: bytes
    content_type: str


def asset_url(name: str) -> str:
    return _assets()[name].url


def asset_response(url: str) -> Response | None:
    asset = next((each for each in _assets().values() if each.url == url), None)
    if asset is None:
        return None
    headers = {
        "content-type": asset.content_type,
        "cache-control": "public, max-age=31536000, immutable",
        "x-content-type-options": "nosniff",
    }
    return Response(asset.content, headers=headers)


@cache
def _assets() -> dict[str, _Asset]:
    return {path.name: _asset(path) for path in sorted(_STATIC.iterdir()) if path.suffix in _ASSET_TYPES}


def _asset(path: Path) -> _Asset:
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()[:_HASH_CHARACTERS]
    return _Asset(f"{ASSETS}{path.stem}.{digest}{path.suffix}", content, _ASSET_TYPES[path.suffix])


def page(context: Context, template: str, status: HTTPStatus = HTTPStatus.OK, **shown: object) -> Response:
    """Return a page. A refused form takes its status from the refusal."""
    headers = _HTML
    if context.form_error is not None:
        status = context.form_error.status
        wait_s = context.form_error.retry_after_s
        headers = _HTML if wait_s is None else {**_HTML, "retry-after": str(wait_s)}
    text = (
        _templates()
        .get_template(template)
        .render(
            context=context,
            person=context.person,
            may=context.may,
            now_ms=context.now_ms,
            notice=NOTICES.get(context.asked("done")),
            **shown,
        )
    )
    return Response(_UNSHOWN.sub("\ufffd", text), status, headers)


def project_page(context: MemberContext, template: str, app: App, **shown: object) -> Response:
    """Return a page about the app's project in the selected environment."""
    environment, query = environment_of(context), environment_parameters(context)
    return page(context, template, HTTPStatus.OK, app=app, environment=environment, environment_query=query, **shown)


def see_other(path: str, **query: str) -> Response:
    """Redirect the browser to a page; `done` names the notice to show there."""
    location = f"{path}?{urlencode(query)}" if query else path
    return RedirectResponse(location, HTTPStatus.SEE_OTHER, SECURITY_HEADERS)


@cache
def _templates() -> jinja2.Environment:
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.globals |= {
        "address": address,
        "asset": asset_url,
        "LENGTHS": LENGTHS,
        "DRAWN_CURRENCIES_MAX": DRAWN_CURRENCIES_MAX,
        "spark": spark,
        "BILLERS": BILLER_NAMES,
        "Permission": Permission,
        "Environment": Environment,
        "Provider": Provider,
        "Role": Role,
        "Scope": Scope,
        "Standing": Standing,
        "clock_hours": [f"{hour:02}:00" for hour in range(24)],
    }
    templates.filters["zip"] = zip
    for module in (plain_text, wording):
        templates.filters |= dict(inspect.getmembers(module, inspect.isfunction))
    return templates
