"""The dashboard in a real browser."""

import re
import time

import httpx2 as httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from support.billing import SECRET_B, signed_b
from support.service import bearer

JSON = {"content-type": "application/json"}
PHONE = (390, 844)
PATHS = ("/", "/?days=90", "/apps", "/alerts", "/usage", "/tokens", "/members", "/organization", "/account")
APP_PATHS = ("", "/events?name=listing_viewed", "/payments", "/subscriptions", "/keys", "/webhooks", "/settings")


def every_path(demo):
    own = demo.app_path("Bramble Market")
    return [*PATHS, *(own + path for path in APP_PATHS)]


def set_up(page, service):
    page.goto(service.setup_link)
    page.get_by_label("Organization").fill("Acme")
    page.get_by_label("E-mail").fill("ann@example.com")
    page.get_by_label("Password").fill("correct horse battery staple")
    page.get_by_role("button").click()
    page.locator(".empty a[href='/apps/new']").wait_for()


def create_app(page):
    page.locator(".empty a[href='/apps/new']").click()
    page.get_by_label("Name").fill("My app")
    page.get_by_role("button", name="Create").click()


def test_from_the_setup_link_to_the_first_point_of_a_chart(fresh, open_page):
    page = open_page(fresh.url)
    set_up(page, fresh)
    create_app(page)
    expect(page.locator("[data-poll] .pulse")).to_be_visible()
    key = page.locator("#key").inner_text()
    sent = httpx.post(f"{fresh.ingest_url}/v1/events", json={"name": "view", "user": "ann"}, headers=bearer(key))
    assert sent.status_code == 202
    expect(page.locator("[data-poll] .tick")).to_be_visible()
    page.get_by_role("link", name="Go to My app").click()
    plot = page.get_by_role("group", name="Daily active users")
    plot.focus()
    page.keyboard.press("ArrowLeft")
    tip = plot.locator("[data-tip]")
    expect(tip).to_be_visible()
    assert tip.locator("b").inner_text() == "1"


def test_a_biller_is_connected_and_its_first_delivery_verifies_the_secret(fresh, open_page):
    page = open_page(fresh.url)
    set_up(page, fresh)
    create_app(page)
    page.get_by_role("link", name="Go to My app").click()
    page.get_by_role("link", name="Webhooks").click()
    live = page.get_by_role("region", name="Live")
    address = live.locator("#live-biller_b-url").inner_text()
    assert address.startswith(f"{fresh.url}/v1/webhooks/biller_b/proj_")
    live.get_by_label("Signing secret").nth(1).fill(SECRET_B)
    live.get_by_role("button", name="Save secret").nth(1).click()
    expect(live.locator(".pulse")).to_be_visible()
    body = b'{"type":"customer.created","timestamp":"2026-11-15T10:00:00Z","data":{"id":"1"}}'
    delivered = httpx.post(address, content=body, headers=signed_b(body, at=int(time.time())) | JSON)
    assert delivered.status_code == 200
    expect(page.get_by_text("Verified")).to_be_visible()


def test_tokens_are_limited_to_the_scopes_of_a_role(fresh, open_page):
    owner = open_page(fresh.url)
    set_up(owner, fresh)
    owner.goto("/members")
    owner.get_by_label("E-mail").fill("vic@example.com")
    owner.get_by_label("Viewer").check()
    owner.get_by_role("button", name="Create invitation link").click()
    link = owner.locator("#link").inner_text()
    viewer = open_page(fresh.url)
    viewer.goto(link)
    viewer.get_by_label("New password").fill("another horse battery staple")
    viewer.get_by_role("button").click()
    viewer.goto("/tokens")
    offered = {each.get_attribute("value") for each in viewer.get_by_role("checkbox").all()}
    assert offered == {"apps:read", "metrics:read"}
    owner.goto("/tokens")
    assert offered < {each.get_attribute("value") for each in owner.get_by_role("checkbox").all()}
    viewer.get_by_label("What is it for?").fill("reader")
    viewer.locator("[value='metrics:read']").check()
    viewer.get_by_role("button", name="Mint token").click()
    token = viewer.locator("#token").inner_text()
    apps = httpx.get(f"{fresh.url}/v1/apps", headers=bearer(token))
    assert apps.status_code == 403, "it has only the chosen scope"
    viewer.goto("/apps")
    assert viewer.locator(".empty a[href='/apps/new']").count() == 0
    owner.goto("/apps")
    assert owner.locator(".empty a[href='/apps/new']").count() == 1


def test_the_pointer_and_the_arrow_keys_show_the_same_values(demo, open_page):
    page = demo.sign_in(open_page(demo.service.url))
    page.goto(demo.app_path("Aster Notes"))
    plot = page.get_by_role("group", name="Daily active users")
    plot.locator(".canvas").hover(position={"x": 0, "y": 20})
    tip = plot.locator("[data-tip]")
    first = tip.inner_text()
    plot.focus()
    page.keyboard.press("ArrowRight")
    assert tip.inner_text() != first
    page.keyboard.press("ArrowLeft")
    assert tip.inner_text() == first
    page.keyboard.press("Escape")
    expect(tip).to_be_hidden()


def test_a_selected_event_is_shown_day_by_day(demo, open_page):
    page = demo.sign_in(open_page(demo.service.url))
    page.goto(f"{demo.app_path('Aster Notes')}/events")
    page.get_by_role("link", name="note_shared").click()
    expect(page.get_by_role("heading", name="note_shared")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV of note_shared").click()
    assert re.fullmatch(r"aster-notes-event_series-[0-9-]+\.csv", download.value.suggested_filename)


def test_the_period_carries_over_from_page_to_page(demo, open_page):
    page = demo.sign_in(open_page(demo.service.url))
    page.get_by_role("link", name="7 days").click()
    page.get_by_role("link", name="Clover Kit").click()
    expect(page.get_by_role("link", name="7 days")).to_have_attribute("aria-current", "true")


def test_the_list_of_arrivals_says_when_it_is_not_connected_and_recovers(demo, open_page):
    page = demo.sign_in(open_page(demo.service.url))
    page.goto(demo.app_path("Aster Notes") + "/events")
    arrivals = page.get_by_role("table", name="What arrived last")
    expect(arrivals).to_be_visible()
    # Failing here and not in the network, since the browser would log an error, which no page may cause.
    page.evaluate("() => { window.reached = fetch; window.fetch = () => Promise.reject(new Error('unreachable')); }")
    lost = page.get_by_text(re.compile(r"Not connected: showing the state of \d\d:\d\d UTC; trying again…"))
    expect(lost).to_be_visible()
    expect(arrivals).to_be_visible()
    page.evaluate("() => { window.fetch = window.reached; }")
    expect(lost).to_have_count(0)


def test_the_list_of_arrivals_stops_when_it_is_refused_and_goes_on_when_the_service_is_busy(demo, open_page):
    page = demo.sign_in(open_page(demo.service.url))
    page.clock.install()
    page.goto(demo.app_path("Aster Notes") + "/events")
    answer = (
        "status => { window.asked = 0; window.fetch = async () => { asked++; return new Response('', {status}); }; }"
    )
    page.evaluate(answer, 429)
    expect(page.get_by_text(re.compile(r"Not connected: .* UTC; trying again…"))).to_be_visible()
    page.evaluate(answer, 404)
    stopped = re.compile(r"Updates have stopped: showing the state of \d\d:\d\d UTC; reload the page\.")
    expect(page.get_by_text(stopped)).to_be_visible()
    page.clock.fast_forward(60_000)
    assert page.evaluate("asked") == 1


def test_a_copy_button_does_not_cover_its_snippet_on_a_phone(demo, open_page):
    page = demo.sign_in(open_page(demo.service.url, size=(390, 844)))
    page.goto(demo.app_path("Aster Notes") + "/settings")
    button, code = (page.locator(f".snippet {part}").bounding_box() for part in ("button", "pre"))
    assert button["y"] + button["height"] <= code["y"]


def test_the_first_numbers_of_an_app_have_the_width_of_a_phone(demo, open_page):
    page = demo.sign_in(open_page(demo.service.url, size=PHONE))
    page.goto("/apps/new")
    page.get_by_label("Name").fill("Clover Phone")
    page.get_by_role("button", name="Create").click()
    numbers = page.locator("dl.first-numbers dd")
    numbers.first.wait_for()  # They appear with the first update.
    card = page.locator("dl.first-numbers").bounding_box()
    for each in numbers.all():
        number, note = (each.locator(part).bounding_box() for part in ("b", "span"))
        assert note["width"] > 0.9 * card["width"]
        assert note["y"] >= number["y"] + number["height"] / 2, "the note is below its number"
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]


def test_the_theme_follows_the_system_until_one_is_chosen(demo, open_page):
    page = demo.sign_in(open_page(demo.service.url, scheme="dark"))

    def background():
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    dark = background()
    page.emulate_media(color_scheme="light")
    assert background() != dark
    page.goto("/account")
    page.get_by_label("Dark").check()
    assert background() == dark
    page.goto("/")
    assert background() == dark


def test_no_page_is_wider_than_a_phone(demo, open_page):
    page = demo.sign_in(open_page(demo.service.url, size=PHONE))
    for path in every_path(demo):
        page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0], path


def test_on_a_phone_the_current_tab_is_visible_without_scrolling(demo, open_page):
    page = demo.sign_in(open_page(demo.service.url, size=PHONE, java_script_enabled=False))
    for path in APP_PATHS:
        page.goto(demo.app_path("Bramble Market") + path)
        box = page.locator(".tabs [aria-current=page]").bounding_box()
        assert 0 <= box["x"] <= PHONE[0] - box["width"], path


def test_charts_work_without_javascript(demo, open_page):
    page = demo.sign_in(open_page(demo.service.url, java_script_enabled=False))
    page.goto(demo.app_path("Aster Notes"))
    assert page.locator(".line").count() > 3
    page.get_by_text("Show as a table").first.click()
    expect(page.get_by_role("table").first).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_passes_the_accessibility_checks(demo, open_page, scheme):
    page = demo.sign_in(open_page(demo.service.url, scheme=scheme))
    found = {}
    for path in every_path(demo):
        page.goto(path)
        report = Axe().run(page)
        assert report.response["passes"], "the checks have run"
        found |= {f"{path}: {each['id']}": each["nodes"][0]["html"] for each in report.response["violations"]}
    assert found == {}
