"""Fixtures for tests with a real browser and a real service."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from support.service import PATIENCE_S, Service, mauve_json, running

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PATIENCE_MS = 1000 * PATIENCE_S
DESKTOP = (1280, 860)


@dataclass
class PageLog:
    """Console errors and warnings of pages, and the hosts of their requests."""

    errors: list[str] = field(default_factory=list)
    hosts: set[str | None] = field(default_factory=set)

    def record(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.errors.append(message.text)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Open a browser for one module: while it is open, no other test can run its own event loop."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.fail(f"none of {', '.join(BROWSERS)} is on the PATH: install one (Debian: apt-get install chromium)")
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path)
        yield opened
        opened.close()


@pytest.fixture
def open_page(chromium: Browser) -> Iterator[Callable[..., Page]]:
    """Open pages in fresh contexts. No page may log an error or contact another host."""
    opened, log = [], PageLog()

    def open_one(base_url: str, size: tuple[int, int] = DESKTOP, scheme: str = "light", **more: object) -> Page:
        width, height = size
        viewport = {"width": width, "height": height}
        context = chromium.new_context(base_url=base_url, viewport=viewport, color_scheme=scheme, **more)
        context.set_default_timeout(PATIENCE_MS)
        opened.append(context)
        page = context.new_page()
        page.on("console", log.record)
        page.on("pageerror", lambda error: log.errors.append(str(error)))
        page.on("request", lambda request: log.hosts.add(urlsplit(request.url).hostname))
        return page

    yield open_one
    for context in opened:
        context.close()
    assert log.errors == []
    assert log.hosts <= {"127.0.0.1"}


@dataclass(frozen=True)
class Demo:
    service: Service
    printed: dict
    cookies: list = field(default_factory=list)  # of the session, once there is one

    def sign_in(self, page: Page) -> Page:
        """Sign in, with the password only once: attempts from one address are limited."""
        if self.cookies:
            page.context.add_cookies(self.cookies)
            page.goto("/")
        else:
            page.goto("/signin")
            page.get_by_label("E-mail").fill(self.printed["email"])
            page.get_by_label("Password").fill(self.printed["password"])
            page.get_by_role("button", name="Sign in").click()
        page.get_by_role("heading", name="Overview").wait_for()
        self.cookies[:] = page.context.cookies()
        return page

    def app_path(self, name: str) -> str:
        return next(f"/apps/{app['app_id']}" for app in self.printed["apps"] if app["name"] == name)


@pytest.fixture(scope="module")
def demo(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    data = tmp_path_factory.mktemp("demo") / "data"
    printed = mauve_json(data, "demo", "--days", "40")
    with running(data) as service:
        yield Demo(service, printed)


@pytest.fixture
def fresh(chromium: Browser, tmp_path: Path) -> Iterator[Service]:
    """A service without any accounts."""
    with running(tmp_path / "data") as service:
        yield service
