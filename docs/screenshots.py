"""Take the screenshots in `docs/pictures` from a service with the demo's data."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

MAUVE = Path(sys.executable).with_name("mauve")
PICTURES = Path(__file__).parent / "pictures"
DESKTOP = {"width": 1280, "height": 860}
PHONE = {"width": 390, "height": 844}


def main() -> None:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("screenshots: chromium is not on the PATH")
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        data = Path(folder) / "data"
        demo = json.loads(subprocess.check_output([MAUVE, "demo", "--data", data, "--json"]))
        browser = playwright.chromium.launch(executable_path=chromium)
        with serving(data) as url:
            take_all(browser, url, demo)
        browser.close()


@contextmanager
def serving(data: Path) -> Iterator[str]:
    command = [MAUVE, "serve", "--data", data, "--port", "0", "--ingest-port", "0", "--workers", "1", "--json"]
    environment = os.environ | {"MAUVE_ALERTS_ALLOW_PRIVATE": "1"}  # for the receiver of alerts
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        yield json.loads(process.stdout.readline())["url"]
    finally:
        process.terminate()
        process.wait()


def take_all(browser: Browser, url: str, demo: dict) -> None:
    desktop = signed_in(browser, url, demo, DESKTOP, "light")
    take(desktop, "/", "overview")
    take(desktop, f"/apps/{demo['apps'][0]['app_id']}", "app", hovering=True)
    desktop.goto("/apps/new")
    desktop.get_by_label("Name").fill("Daisy Mail")
    desktop.get_by_role("button", name="Create").click()
    hide_secret(desktop)
    save(desktop, "onboarding")
    take_webhooks(desktop, demo["apps"][0]["app_id"])
    take_alerts(desktop)
    take(signed_in(browser, url, demo, DESKTOP, "dark"), "/", "overview-dark")
    take(signed_in(browser, url, demo, PHONE, "light"), f"/apps/{demo['apps'][0]['app_id']}", "app-phone")


def take_webhooks(page: Page, app_id: str) -> None:
    """Show the addresses of a new app, and the deliveries of one that has received some."""
    page.goto("/apps")
    page.get_by_role("link", name="Daisy Mail").first.click()
    page.get_by_role("link", name="Webhooks").first.click()
    page.get_by_role("heading", name="Live").wait_for()
    replace_text(page, page.url.partition("/apps/")[0], "https://metrics.example.com")
    save(page, "webhooks")
    page.goto(f"/apps/{app_id}/webhooks")
    heading = page.get_by_role("heading", name="Deliveries", exact=True)
    page.locator("section.card").filter(has=heading).screenshot(path=PICTURES / "deliveries.png")


def take_alerts(page: Page) -> None:
    """Show rules that have sent a message."""
    fill_alerts(page)
    save(page, "alerts")


def fill_alerts(page: Page) -> None:
    """Add rules and a channel, and wait until a test and an alert have arrived there."""
    with receiving() as address:
        page.goto("/alerts")
        page.get_by_label("Name").fill("Team chat")
        page.get_by_label("Address").fill(address)
        page.get_by_role("button", name="Add channel").click()
        page.get_by_role("button", name="Send a test to Team chat now").click()
        add_rule(page, "No events for some hours", {"Hours": "6"})
        add_rule(page, "A biller's deliveries fail verification", {})
        add_rule(page, "A metric is above or below a value", {"Value": "100000"})
        add_rule(page, "A metric changes from the previous period", {"More than, in percent": "30"})
        for _ in range(60):
            page.goto("/alerts")
            if page.locator("#history .badge.good").count() > 1:
                break
            page.wait_for_timeout(1000)
    replace_text(page, "http://127.0.0.1/…", "https://hooks.slack.com/…")


def add_rule(page: Page, title: str, fields: dict[str, str]) -> None:
    page.get_by_text(title, exact=True).click()
    form = page.locator("details.rule[open]")
    for label, value in fields.items():
        form.get_by_label(label).fill(value)
    form.get_by_role("button", name="Add rule").click()
    page.get_by_text("The rule is added").wait_for()


@contextmanager
def receiving() -> Iterator[str]:
    """Run a receiver of webhooks, and return its address."""

    class Accepting(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.end_headers()

    with ThreadingHTTPServer(("127.0.0.1", 0), Accepting) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def signed_in(browser: Browser, url: str, demo: dict, size: dict[str, int], scheme: str) -> Page:
    page = browser.new_context(base_url=url, viewport=size, color_scheme=scheme).new_page()
    page.goto("/signin")
    page.get_by_label("E-mail").fill(demo["email"])
    page.get_by_label("Password").fill(demo["password"])
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("heading", name="Overview").wait_for()
    return page


def take(page: Page, path: str, name: str, *, hovering: bool = False) -> None:
    page.goto(path)
    if hovering:
        page.locator(".canvas").first.hover(position={"x": 200, "y": 60})
    save(page, name)


def hide_secret(page: Page) -> None:
    """Mask the key, even though the service that accepts it is temporary."""
    key = page.locator("#key").inner_text()
    replace_text(page, key, f"{key[:12]}{'•' * 28}{key[-4:]}")


def replace_text(page: Page, shown: str, instead: str) -> None:
    page.evaluate(
        """([shown, instead]) => {
          const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
          while (walker.nextNode()) {
            walker.currentNode.textContent = walker.currentNode.textContent.replaceAll(shown, instead);
          }
        }""",
        [shown, instead],
    )


def save(page: Page, name: str) -> None:
    page.screenshot(path=PICTURES / f"{name}.png")


if __name__ == "__main__":
    main()
