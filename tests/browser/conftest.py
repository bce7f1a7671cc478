"""A real browser in front of a real service."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from support.service import PATIENCE_S, Service, mauve_json, running

NAMES = ("chromium", "chromium-browser", "google-chrome")
PATIENCE_MS = 1000 * PATIENCE_S
DESK, PHONE = (1280, 860), (390, 844)


@dataclass
class Watch:
    """What a page said on its console, and where its requests went."""

    complaints: list[str] = field(default_factory=list)
    hosts: set[str | None] = field(default_factory=set)

    def hear(self, said: ConsoleMessage) -> None:
        if said.type in {"error", "warning"}:
            self.complaints.append(said.text)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Open a browser for one module: while it is open, no other test could run an event loop of its own."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.fail(f"there is none of {', '.join(NAMES)} on the path: install one (Debian: apt-get install chromium)")
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path)
        yield opened
        opened.close()


@pytest.fixture
def open_page(chromium: Browser) -> Iterator[Callable[..., Page]]:
    """Open pages with nothing remembered. Whatever they do, none may complain or talk to another host."""
    opened, watch = [], Watch()

    def open_one(base_url: str, size: tuple[int, int] = DESK, scheme: str = "light", **more: object) -> Page:
        width, height = size
        viewport = {"width": width, "height": height}
        context = chromium.new_context(base_url=base_url, viewport=viewport, color_scheme=scheme, **more)
        context.set_default_timeout(PATIENCE_MS)
        opened.append(context)
        page = context.new_page()
        page.on("console", watch.hear)
        page.on("pageerror", lambda error: watch.complaints.append(str(error)))
        page.on("request", lambda request: watch.hosts.add(urlsplit(request.url).hostname))
        return page

    yield open_one
    for context in opened:
        context.close()
    assert watch.complaints == []
    assert watch.hosts <= {"127.0.0.1"}


@dataclass(frozen=True)
class Demo:
    service: Service
    told: dict

    def sign_in(self, page: Page) -> Page:
        page.goto("/signin")
        page.get_by_label("E-mail").fill(self.told["email"])
        page.get_by_label("Password").fill(self.told["password"])
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("heading", name="Overview").wait_for()
        return page

    def app_path(self, name: str) -> str:
        return next(f"/apps/{app['app_id']}" for app in self.told["apps"] if app["name"] == name)


@pytest.fixture(scope="module")
def demo(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    data = tmp_path_factory.mktemp("demo") / "data"
    told = mauve_json(data, "demo", "--days", "40")
    with running(data) as service:
        yield Demo(service, told)


@pytest.fixture
def fresh(chromium: Browser, tmp_path: Path) -> Iterator[Service]:
    """A service on which nobody has an account."""
    with running(tmp_path / "data") as service:
        yield service
