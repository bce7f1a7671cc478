"""The documentation site: complete, searchable, and without a request to another host."""

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from support.doc_blocks import ROOT
from support.service import PATIENCE_S, running

SITE = ROOT / "src/mauve/openapi/site"
PATIENCE_MS = 1000 * PATIENCE_S
SIZES = {"desktop": (1280, 860), "phone": (390, 844)}
LOADED = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*?\bsrc=[\"']?([^\"'\s>]+)|<link\b[^>]*?\bhref=[\"']?([^\"'\s>]+)"
)
LOADED_BY_STYLE = re.compile(r"(?:@import\s+|url\()[\"']?([^\"')]+)")


@pytest.fixture(scope="module")
def built():
    subprocess.run([sys.executable, ROOT / "docs/site/build.py"], check=True)
    return SITE


@pytest.fixture(scope="module")
def address(built, tmp_path_factory):
    """The site, as the service itself serves it."""
    with running(tmp_path_factory.mktemp("site") / "data", "--workers", "1") as service:
        yield f"{service.url}/docs/"


@pytest.fixture
def open_page(chromium, address):
    """Open pages whose requests to other hosts fail; none may be made, and none may log an error."""
    opened, faults = [], []
    own = urlsplit(address).netloc

    def guard(route):
        if urlsplit(route.request.url).netloc == own:
            route.continue_()
        else:
            faults.append(f"a request to {route.request.url}")
            route.abort()

    def open_one(name, size="desktop", scheme="light"):
        width, height = SIZES[size]
        context = chromium.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        context.set_default_timeout(PATIENCE_MS)
        context.route(re.compile("^https?:"), guard)
        opened.append(context)
        page = context.new_page()
        page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.goto(address + name)
        return page

    expect.set_options(timeout=PATIENCE_MS)
    yield open_one
    for context in opened:
        context.close()
    assert faults == []


def files(folder: Path, suffix: str) -> list[Path]:
    return sorted(folder.rglob(f"*{suffix}"))


def test_no_file_of_the_site_loads_anything_from_another_host(built):
    loaded = [
        (path.name, target)
        for path in files(built, ".html")
        for targets in LOADED.findall(path.read_text())
        for target in targets
    ] + [(path.name, target) for path in files(built, ".css") for target in LOADED_BY_STYLE.findall(path.read_text())]
    assert len(loaded) > 200
    assert [pair for pair in loaded if re.match(r"(?:https?:)?//", pair[1])] == []


def test_every_page_forbids_other_hosts_to_its_scripts(built):
    """The theme's script knows addresses of features that no page uses; the policy would stop it."""
    pages = files(built, ".html")
    assert len(pages) > 50
    assert [path.name for path in pages if "content=\"default-src 'self' data: blob:;" not in path.read_text()] == []


def test_every_link_of_the_overview_for_programs_leads_to_a_file(built):
    links = re.findall(r"\]\((?!/)([^)]+)\)", (built / "llms.txt").read_text())
    assert len(links) > 10
    assert [name for name in links if not (built / name).is_file()] == []


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["index.html", "tutorial.html", "quickstarts/django.html", "billing.html"])
def test_a_page_asks_no_other_host_and_fits_the_screen(open_page, name, size, scheme):
    page = open_page(name, size, scheme)
    expect(page.locator("h1")).to_be_visible()
    page.wait_for_load_state("networkidle")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert all(page.evaluate("[...document.images].map(image => image.complete && image.naturalWidth > 0)"))


def test_the_search_finds_a_page_without_any_other_host(open_page):
    page = open_page("index.html")
    page.wait_for_load_state("networkidle")
    page.keyboard.press("Control+k")
    page.get_by_role("combobox", name="Search").fill("stripe secret")
    found = page.get_by_role("option").filter(has_text="Connect Stripe").first
    expect(found).to_be_visible()
    found.press("Enter")
    expect(page).to_have_url(re.compile(r"billing\.html"))


def test_dark_and_light_differ_and_the_reader_can_choose(open_page):
    light, dark = (open_page("index.html", scheme=scheme) for scheme in ("light", "dark"))
    colors = [page.evaluate("getComputedStyle(document.body).backgroundColor") for page in (light, dark)]
    assert colors[0] != colors[1]
    expect(light.locator("label[title*='Switch to']:visible").first).to_be_visible()


def test_the_wheel_contains_the_site_if_it_was_built(built, tmp_path):
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    listing = subprocess.run([sys.executable, "-m", "zipfile", "-l", wheel], capture_output=True, text=True, check=True)
    assert "mauve/openapi/site/tutorial.html" in listing.stdout
    assert "mauve/openapi/llms.txt" in listing.stdout
    assert "mauve/openapi/site/search.json" in listing.stdout
