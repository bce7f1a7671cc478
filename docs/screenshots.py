"""Take the screenshots in `docs/pictures` from a service with the demo's data."""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
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
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
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
    take(signed_in(browser, url, demo, DESKTOP, "dark"), "/", "overview-dark")
    take(signed_in(browser, url, demo, PHONE, "light"), f"/apps/{demo['apps'][0]['app_id']}", "app-phone")


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
    page.evaluate(
        """key => {
          const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
          while (walker.nextNode()) {
            const node = walker.currentNode;
            node.textContent = node.textContent.replaceAll(key, key.slice(0, 12) + "•".repeat(28) + key.slice(-4));
          }
        }""",
        key,
    )


def save(page: Page, name: str) -> None:
    page.screenshot(path=PICTURES / f"{name}.png")


if __name__ == "__main__":
    main()
