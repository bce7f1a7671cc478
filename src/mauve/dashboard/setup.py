"""The page behind a one-time link."""

import html
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final

from mauve.control.operator import find_link
from mauve.control.parts import ControlParts
from mauve.stores.unavailable import StoreUnavailableError
from mauve.web.messages import Reply, Request

_HEADERS: Final = {
    "content-type": "text/html; charset=utf-8",
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


def is_link_path(path: str) -> bool:
    return path.startswith(("/setup/", "/password/"))


def link_page(parts: ControlParts, request: Request) -> Reply:
    """Tell whether the link can be used. Looking at it does not use it up."""
    try:
        link = find_link(parts, request.path.rpartition("/")[2])
    except StoreUnavailableError:
        return _page(HTTPStatus.SERVICE_UNAVAILABLE, "Try again in a moment", "The catalog does not answer now.")
    if link is None:
        return _page(
            HTTPStatus.NOT_FOUND,
            "This link does not work",
            "It was used, replaced or has expired. Start the service again for a new set-up link, or ask the "
            "operator for a new invitation.",
        )
    until = datetime.fromtimestamp(link.expires_at / 1000, UTC).strftime("%d %B %Y, %H:%M UTC")
    return _page(
        HTTPStatus.OK,
        "Mauve is running",
        f"This link is valid until {until}. Signing in with a browser is not part of this release: until it is, "
        "use the command line. Make an organization with 'mauve org create NAME' and a control token with "
        "'mauve token mint --org ORG --scopes apps:read,apps:write,keys:read,keys:write'.",
    )


def _page(status: HTTPStatus, title: str, text: str) -> Reply:
    page = (
        f'<!doctype html><html lang="en"><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width"><title>{html.escape(title)}</title>'
        f"<h1>{html.escape(title)}</h1><p>{html.escape(text)}</p></html>"
    )
    return Reply(status, page.encode(), _HEADERS)
