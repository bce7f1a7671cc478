"""A browser as the dashboard sees it: it keeps cookies, sends the origin of forms and follows redirects."""

import html
import re
from http.cookies import SimpleCookie

from mauve.wiring.api import session_cookie

PASSWORD = "correct horse battery staple"


class Browser:
    def __init__(self, client, agent="Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0"):
        self._client = client
        self._agent = agent
        self.cookies = {}

    def open(self, path, **headers):
        """Open a page and follow redirects."""
        reply = self.ask("GET", path, **headers)
        return self.open(reply.headers["location"]) if reply.status_code == 303 else reply

    def send(self, path, form=None, **headers):
        """Submit a form and follow redirects."""
        reply = self.ask("POST", path, form, **headers)
        return self.open(reply.headers["location"]) if reply.status_code == 303 else reply

    def ask(self, method, path, form=None, **headers):
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

    def sign_in(self, email, password=PASSWORD):
        return self.send("/signin", {"email": email, "password": password})

    def _store_cookies(self, reply):
        for line in reply.headers.get_list("set-cookie"):
            for name, morsel in SimpleCookie(line).items():
                self.cookies = {name: morsel.value} if morsel["max-age"] != "0" else {}


def cookies_of(settings, secret):
    """Return the cookies of a browser with a session."""
    return {session_cookie(settings).name: secret.reveal()}


def shown(reply, element_id):
    """Return the text of an element, found by its id."""
    return html.unescape(re.search(rf'id="{element_id}">([^<]*)<', reply.text)[1])
