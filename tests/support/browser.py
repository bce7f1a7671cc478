"""A browser as the dashboard sees it: it keeps cookies, sends the origin of forms and follows redirects."""

import html
import re
from collections.abc import Mapping
from http.cookies import SimpleCookie

import httpx2 as httpx

from mauve.config import Settings
from mauve.core.secret import Secret
from mauve.wiring.api import session_cookie

PASSWORD = "correct horse battery staple"


class Browser:
    def __init__(self, client: httpx.Client, agent: str = "Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0") -> None:
        self._client = client
        self._agent = agent
        self.cookies: dict[str, str] = {}

    def open(self, path: str, **headers: str) -> httpx.Response:
        """Open a page and follow redirects."""
        reply = self.ask("GET", path, None, **headers)
        return self.open(reply.headers["location"]) if reply.status_code == 303 else reply

    def send(self, path: str, form: Mapping[str, object] | None = None, **headers: str) -> httpx.Response:
        """Submit a form and follow redirects."""
        reply = self.ask("POST", path, form, **headers)
        return self.open(reply.headers["location"]) if reply.status_code == 303 else reply

    def ask(self, method: str, path: str, form: Mapping[str, object] | None = None, **headers: str) -> httpx.Response:
        """Make one same-origin request without following redirects."""
        sent = {
            "accept": "text/html,application/xhtml+xml",
            "user-agent": self._agent,
            "cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items()),
        }
        if method == "POST":
            sent |= {"sec-fetch-site": "same-origin", "content-type": "application/x-www-form-urlencoded"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        self._client.cookies.clear()
        reply = self._client.request(
            method,
            path,
            data=form or {},
            headers={name: value for name, value in sent.items() if value},
            follow_redirects=False,
        )
        self._store_cookies(reply)
        return reply

    def sign_in(self, email: str, password: str = PASSWORD) -> httpx.Response:
        return self.send("/signin", {"email": email, "password": password})

    def _store_cookies(self, reply: httpx.Response) -> None:
        for line in reply.headers.get_list("set-cookie"):
            for name, morsel in SimpleCookie(line).items():
                self.cookies = {name: morsel.value} if morsel["max-age"] != "0" else {}


def cookies_of(settings: Settings, secret: Secret) -> dict[str, str]:
    """Return the cookies of a browser with a session."""
    return {session_cookie(settings).name: secret.reveal()}


def shown(reply: httpx.Response, element_id: str) -> str:
    """Return the text of an element, found by its id."""
    found = re.search(rf'id="{element_id}">([^<]*)<', reply.text)
    assert found is not None, reply.text
    return html.unescape(found[1])
