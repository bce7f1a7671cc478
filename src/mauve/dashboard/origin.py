"""Where a change comes from: a page of another site must not make one in our visitor's name.

The session cookie is `SameSite=Lax`, so other sites' forms come without it; this is the second lock, and the only
one on the sign-in form, which needs no cookie.
"""

from collections.abc import Mapping
from urllib.parse import urlsplit

from mauve.core.problems import Code, Problem


def check_origin(headers: Mapping[str, str], public_url: str | None) -> None:
    """Refuse a change unless the browser says that a page of ours sent it. One that says nothing is refused too."""
    if not _is_ours(headers, public_url):
        raise Problem(Code.FORBIDDEN, "this did not come from a page of this dashboard: open it and try again")


def _is_ours(headers: Mapping[str, str], public_url: str | None) -> bool:
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    # Browsers leave Sec-Fetch-Site out on plain HTTP to another machine, and older ones always.
    origin = headers.get("origin")
    if origin is None:
        return False
    named = {headers.get("host"), None if public_url is None else urlsplit(public_url).netloc}
    return urlsplit(origin).netloc in named - {None, ""}
