"""The snippet for web pages: every event arrives, even if the page is left at once."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx2 as httpx
import pytest

from support.service import bearer, eventually, running

TIMES = 10


class Site(BaseHTTPRequestHandler):
    """A web site on another origin than the service: one page sends an event and navigates to the next."""

    snippet = ""

    def do_GET(self):
        leaving = f'<script>{self.snippet}\nlocation.href = "/next";</script>'
        pages = {"/leaving": leaving, "/quiet": "quiet", "/next": "next"}
        body = f"<!doctype html><title>A page</title><link rel=icon href=data:,>{pages[self.path]}".encode()
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def site() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def service(chromium, tmp_path):
    with running(tmp_path / "data", environment={"MAUVE_READ_CACHE_SECONDS": "0"}) as started:
        yield started


@pytest.fixture
def arrived(service, open_page):
    """Put the snippet with a new publishable key on the site; return a function that counts the events."""
    page = open_page(service.url)
    page.goto(service.setup_link)
    page.get_by_label("Organization").fill("Acme")
    page.get_by_label("E-mail").fill("ann@example.com")
    page.get_by_label("Password").fill("correct horse battery staple")
    page.get_by_role("button").click()
    page.get_by_role("link", name="Create your first app").click()
    page.get_by_label("Name").fill("My app")
    page.get_by_role("button", name="Create").click()
    server_key = page.locator("#key").inner_text()
    page.get_by_role("link", name="Go to My app").click()
    page.get_by_role("link", name="Keys").click()
    page.get_by_label("Publishable key").check()
    page.get_by_role("button", name="Mint key").click()
    Site.snippet = page.locator("#send-from-browser").text_content()

    def count():
        query = {"name": "page_opened"}
        reply = httpx.get(f"{service.url}/v1/metrics/event_count", params=query, headers=bearer(server_key))
        return sum(row["count"] for row in reply.json()["data"])

    return count


def test_every_event_arrives_from_a_page_that_is_left_at_once(site, arrived, open_page):
    page = open_page(site)
    for _ in range(TIMES):
        page.goto("/leaving", wait_until="commit")
        page.wait_for_url("**/next")
    eventually(lambda: arrived() == TIMES, timeout_s=60)


def test_every_event_arrives_from_a_page_that_is_closed_at_once(site, arrived, open_page):
    for _ in range(TIMES):
        page = open_page(site)
        page.goto("/quiet")
        page.evaluate(f"() => {{ {Site.snippet} }}")
        page.close()
    eventually(lambda: arrived() == TIMES, timeout_s=60)
