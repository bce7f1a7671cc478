"""Take the pictures in `docs/pictures`: a made-up history, a service on it, and a browser in front."""

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
DESK = {"width": 1280, "height": 860}
PHONE = {"width": 390, "height": 844}


def main() -> None:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("screenshots: there is no chromium on the path")
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        data = Path(folder) / "data"
        told = json.loads(subprocess.check_output([MAUVE, "demo", "--data", data, "--json"]))
        browser = playwright.chromium.launch(executable_path=chromium)
        with serving(data) as url:
            take_all(browser, url, told)
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


def take_all(browser: Browser, url: str, told: dict) -> None:
    desk = signed_in(browser, url, told, DESK, "light")
    take(desk, "/", "overview")
    take(desk, f"/apps/{told['apps'][0]['app_id']}", "app", hovering=True)
    desk.goto("/apps/new")
    desk.get_by_label("Name").fill("Daisy Mail")
    desk.get_by_role("button", name="Create").click()
    hide_secret(desk)
    save(desk, "onboarding")
    take(signed_in(browser, url, told, DESK, "dark"), "/", "overview-dark")
    take(signed_in(browser, url, told, PHONE, "light"), f"/apps/{told['apps'][0]['app_id']}", "app-phone")


def signed_in(browser: Browser, url: str, told: dict, size: dict[str, int], scheme: str) -> Page:
    page = browser.new_context(base_url=url, viewport=size, color_scheme=scheme).new_page()
    page.goto("/signin")
    page.get_by_label("E-mail").fill(told["email"])
    page.get_by_label("Password").fill(told["password"])
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("heading", name="Overview").wait_for()
    return page


def take(page: Page, path: str, name: str, *, hovering: bool = False) -> None:
    page.goto(path)
    if hovering:
        page.locator(".canvas").first.hover(position={"x": 200, "y": 60})
    save(page, name)


def hide_secret(page: Page) -> None:
    """Show a key as it looks, not one that opens anything, even in a service that is gone."""
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
