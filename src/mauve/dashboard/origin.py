"""The origin of a change: a page of another site must not make one with our user's session.

The session cookie is `SameSite=Lax`, so forms of other sites are sent without it. This is the second lock, and the
only one on the sign-in form, which needs no cookie.
"""

from urllib.parse import urlsplit

from starlette.requests import Request

from mauve.core.problems import Code, Problem
from mauve.web.app import joined_header


def check_origin(request: Request, public_url: str | None) -> None:
    """Refuse a change unless the browser says that our own page sent it. Silence is refused too."""
    if not _is_ours(request, public_url):
        raise Problem(Code.FORBIDDEN, "this did not come from a page of this dashboard: open it and try again")


def _is_ours(request: Request, public_url: str | None) -> bool:
    site = joined_header(request, "sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    # Browsers omit Sec-Fetch-Site on plain HTTP to another machine, and older ones always do.
    origin = joined_header(request, "origin")
    if origin is None:
        return False
    named = {joined_header(request, "host"), None if public_url is None else urlsplit(public_url).netloc}
    return urlsplit(origin).netloc in named - {None, ""}
