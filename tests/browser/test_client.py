"""The client for web pages, by the snippet that the dashboard shows: every event arrives, however the page ends."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx2 as httpx
import pytest
from playwright.sync_api import Page

from support.service import PATIENCE_S, bearer, eventually, mauve_json, running

TIMES = 10
KEY = re.compile(r' data-key="[^"]*"')
CALL = re.compile(r"<script>.*</script>", re.DOTALL)
BODY_BYTES_MAX = 60 * 1024
STILL = "<script>window.setTimeout = () => 1;</script>"
OLD = "<script>delete AbortSignal.timeout;</script>"
LEAVE = '<script>addEventListener("DOMContentLoaded", () => { location.href = "/next"; });</script>'


class Site(BaseHTTPRequestHandler):
    """A web site on another origin than the service: one page sends an event and navigates to the next."""

    snippet = ""
    keyless = ""  # in place of the key

    def do_GET(self):
        pages = {"/leaving": self.snippet + LEAVE, "/sending": self.snippet, "/next": "next"}
        pages |= {"/old": OLD + self.snippet}
        pages |= {"/still": STILL + self.snippet, "/keyless": KEY.sub(self.keyless, CALL.sub("", self.snippet))}
        body = f"<!doctype html><title>A page</title><link rel=icon href=data:,>{pages[self.path]}".encode()
        self.send_response(200)
        self.send_header("content-type", "text/html; charset=utf-8")
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


@pytest.fixture(scope="module")
def service(chromium, tmp_path_factory):
    data = tmp_path_factory.mktemp("client") / "data"
    with running(data, "--workers", "1", environment={"MAUVE_READ_CACHE_SECONDS": "0"}) as started:
        yield started


@pytest.fixture(scope="module")
def shown(service, chromium):
    """Create an app in the dashboard; return its server key, and the snippet with a new publishable key."""
    clipboard = ["clipboard-read", "clipboard-write"]
    context = chromium.new_context(base_url=service.url, permissions=clipboard)
    context.set_default_timeout(1000 * PATIENCE_S)
    page = context.new_page()
    page.goto(service.setup_link)
    page.get_by_label("Organization").fill("Acme")
    page.get_by_label("E-mail").fill("ann@example.com")
    page.get_by_label("Password").fill("correct horse battery staple")
    page.get_by_role("button").click()
    page.locator(".empty a[href='/apps/new']").click()
    page.get_by_label("Name").fill("My app")
    page.get_by_role("button", name="Create").click()
    server_key = page.locator("#key").inner_text()
    for snippet in ("send-event", "send-from-python", "send-from-typescript", "send-from-browser"):
        page.locator(f"[data-copy={snippet}]").click()
        copied = page.evaluate("() => navigator.clipboard.readText()")
        assert copied == page.locator(f"#{snippet}").text_content()
        assert service.url in copied
    page.get_by_role("link", name="Go to My app").click()
    page.get_by_role("link", name="Keys").click()
    page.get_by_label("Publishable key").check()
    page.get_by_role("button", name="Mint key").click()
    snippet = page.locator("#send-from-browser").text_content()
    context.close()
    [organization] = mauve_json(service.data, "org", "list")
    mauve_json(service.data, "org", "limits", organization["org_id"], "--reads-per-minute", "1000000")
    assert f'<script src="{service.url}/mauve.js" data-key="pk_live_' in snippet
    return server_key, snippet


@pytest.fixture
def arrived(service, shown):
    """Put the snippet on the site; return a function that counts the events since then."""
    server_key, Site.snippet = shown

    def count(name="page_opened"):
        query = {"name": name}
        reply = httpx.get(f"{service.url}/v1/metrics/event_count", params=query, headers=bearer(server_key))
        return sum(row["count"] for row in reply.json()["data"])

    before = count()
    return lambda name="page_opened": count(name) - (before if name == "page_opened" else 0)


@dataclass
class Sent:
    """What pages sent to `/v1/events`."""

    page: Page
    bodies: list[bytes] = field(default_factory=list)

    def record(self, request):
        if request.url.endswith("/v1/events") and request.method == "POST":
            self.bodies.append(request.post_data_buffer)

    def events(self):
        self.page.evaluate("() => null")  # Playwright reports requests only while it is called.
        return [event for body in self.bodies for event in json.loads(body)]


def open_sending(open_page, site):
    """Open a page whose timers stand still: what it sends, it sends because it is left or hidden."""
    page = open_page(site)
    sent = Sent(page)
    page.on("request", sent.record)
    page.clock.install()
    page.clock.pause_at("2030-01-01")
    page.goto("/sending")
    page.wait_for_function("() => window.Mauve")
    return page, sent


class Tabs:
    """Tabs of a real window, of which one is visible. Playwright keeps every page of its own visible."""

    def __init__(self, browser):
        self.session = browser.new_browser_cdp_session()
        self.session.on("Target.receivedMessageFromTarget", self.receive)
        self.results = {}

    def receive(self, message):
        received = json.loads(message["message"])
        self.results[received.get("id")] = received.get("result")

    def open(self, url):
        """Open a tab, which hides the others. Return a function that evaluates an expression in it, and its id."""
        target = self.session.send("Target.createTarget", {"url": url})["targetId"]
        attached = self.session.send("Target.attachToTarget", {"targetId": target, "flatten": False})
        return lambda expression: self.evaluate(attached["sessionId"], expression), target

    def evaluate(self, session_id, expression):
        number = len(self.results) + 1
        call = {"id": number, "method": "Runtime.evaluate", "params": {"expression": expression}}
        self.session.send("Target.sendMessageToTarget", {"sessionId": session_id, "message": json.dumps(call)})
        eventually(lambda: self.session.send("Browser.getVersion") and number in self.results)
        return self.results[number]["result"].get("value")

    def close(self, *targets):
        for target in targets:
            self.session.send("Target.closeTarget", {"targetId": target})


def hide(page):
    """Tell a page that it is hidden, without hiding it: Playwright does not let it be."""
    page.evaluate(
        "() => { Object.defineProperty(document, 'hidden', { get: () => true, configurable: true });"
        " document.dispatchEvent(new Event('visibilitychange')); }"
    )


def test_every_event_arrives_from_a_page_that_is_left_at_once(site, arrived, open_page):
    page = open_page(site)
    for _ in range(TIMES):
        page.goto("/leaving", wait_until="commit")
        page.wait_for_url("**/next")
    eventually(lambda: arrived() == TIMES)


def test_every_event_arrives_from_a_page_that_is_closed_at_once(site, arrived, open_page):
    for _ in range(TIMES):
        page, _ = open_sending(open_page, site)
        page.close(run_before_unload=True)
    eventually(lambda: arrived() == TIMES)


def test_every_event_arrives_from_a_page_that_is_hidden(site, arrived, chromium):
    tabs = Tabs(chromium)
    for before in range(TIMES):
        evaluate, page = tabs.open(f"{site}/still")  # Its timers stand still: it sends because it is hidden.
        eventually(lambda evaluate=evaluate: evaluate("document.readyState === 'complete' && !!window.Mauve"))
        assert evaluate("document.visibilityState") == "visible"
        _, other = tabs.open("about:blank")
        eventually(lambda evaluate=evaluate: evaluate("document.visibilityState") == "hidden")
        eventually(lambda before=before: arrived() == before + 1)
        tabs.close(page, other)
    assert arrived() == TIMES


def test_a_browser_without_abort_signal_timeout_sends(site, arrived, open_page):
    page = open_page(site)
    page.goto("/old")
    assert page.evaluate("() => typeof AbortSignal.timeout") == "undefined"
    eventually(lambda: arrived() == 1)


def test_a_request_without_an_answer_ends_after_ten_seconds(site, arrived, open_page):
    page, _ = open_sending(open_page, site)
    page.evaluate(
        """() => {
          window.signals = [];
          window.fetch = (url, { signal }) => (signals.push(signal), new Promise(() => {}));
        }"""
    )
    hide(page)
    assert page.evaluate("() => signals.map(({ aborted }) => aborted)") == [False]
    page.clock.run_for(9_999)
    assert page.evaluate("() => signals.map(({ aborted }) => aborted)") == [False]
    page.clock.run_for(1)
    assert page.evaluate("() => signals.map(({ aborted }) => aborted)") == [True]


def test_a_page_that_stays_open_sends_within_moments_and_stores_nothing(site, arrived, open_page):
    page = open_page(site)
    page.goto("/sending")
    eventually(lambda: arrived() == 1)
    assert page.evaluate("() => [document.cookie, localStorage.length, sessionStorage.length]") == ["", 0, 0]
    assert page.context.cookies() == []


def test_many_events_leave_a_hidden_page_in_bodies_below_60_kb(site, arrived, open_page):
    page, sent = open_sending(open_page, site)
    page.evaluate(
        "() => { for (let n = 0; n < 400; n++) mauve.track('filler', { props: { text: 'ä'.repeat(150) } }); }"
    )
    hide(page)
    page.clock.resume()
    eventually(lambda: arrived("filler") == 400)
    ids = [event["id"] for event in sent.events()]
    assert len(set(ids)) == len(ids) == 401
    assert len(sent.bodies) > 1
    assert max(map(len, sent.bodies)) < BODY_BYTES_MAX


def test_a_page_tries_again_while_it_lives_with_the_same_id_and_time(site, arrived, open_page):
    page, sent = open_sending(open_page, site)
    page.evaluate(
        """() => {
          window.reached = fetch;
          console.warn = () => {};
          const bodies = (window.bodies = []);
          const answers = [503, 429, 500];
          window.fetch = (url, init) => {
            bodies.push(init.body);
            const status = answers.shift();
            if (status === undefined) return reached(url, init);
            if (status === 500) return Promise.reject(new TypeError("unreachable"));
            return Promise.resolve(new Response("{}", { status, headers: { "retry-after": "3" } }));
          };
        }"""
    )
    hide(page)
    for attempts in range(2, 5):
        eventually(lambda count=attempts: page.evaluate("() => bodies.length") >= count or page.clock.run_for(10_000))
    eventually(lambda: page.evaluate("() => bodies.length") and arrived() == 1)
    tried = [json.loads(body)[0] for body in page.evaluate("() => bodies")]
    assert len(tried) == 4
    assert len({(event["id"], event["at"]) for event in tried}) == 1
    assert len({event["sent_at"] for event in tried}) == 4
    assert len(sent.events()) == 1


def test_a_client_without_a_publishable_key_or_an_address_raises(site, arrived, open_page):
    page, _ = open_sending(open_page, site)
    calls = [
        "new Mauve({ key: 'pk_live_key' })",
        "new Mauve({ key: 'pk_live_key', url: 'ingest.example.com' })",
        "new Mauve({ key: 'pk_live_key', url: '/metrics' })",
        "new Mauve({ key: 'sk_live_secret', url: location.origin })",
        "new Mauve({ key: 'pk_live_…', url: location.origin })",
    ]
    raised = "call => { try { eval(call); return 'nothing'; } catch (error) { return error.name; } }"
    assert {call: page.evaluate(raised, call) for call in calls} == dict.fromkeys(calls, "TypeError")


LISTENING = "() => { window.lines = []; console.warn = (...line) => lines.push(line); }"


@pytest.mark.parametrize(
    "call",
    [
        "mauve.track('')",
        "mauve.track()",
        "mauve.track(5)",
        "mauve.track(Symbol())",
        "mauve.track('a'.repeat(129))",
        "mauve.track('payment')",
        "mauve.track('a', { user: 'a'.repeat(257) })",
        "mauve.track('a', { user: NaN })",
        "mauve.track('a', { user: {} })",
        "mauve.track('a', { id: 'a'.repeat(257) })",
        "mauve.track('\\ud800')",
        "mauve.track('a', { props: [1] })",
        "mauve.track('a', { props: 'abc' })",
        "mauve.track('a', { props: 5 })",
        "mauve.track('a', { props: new Date() })",
        "mauve.track('a', { at: 5n })",
        "mauve.track('a', { get user() { throw new Error('mine'); } })",
        "mauve.track('a', { props: Object.fromEntries([...Array(99).keys()].map((n) => [n, 'ä'.repeat(1024)])) })",
    ],
)
def test_an_event_that_cannot_be_sent_is_dropped_with_a_line_and_does_not_raise(call, site, arrived, open_page):
    page, sent = open_sending(open_page, site)
    page.evaluate(LISTENING)
    page.evaluate(f"() => {{ {call}; {call}; }}")
    [line] = warned(page)
    assert line.startswith("mauve: events are dropped: ")
    hide(page)
    eventually(lambda: len(sent.events()) == 1)
    assert [event["name"] for event in sent.events()] == ["page_opened"]


def test_a_number_as_user_becomes_text(site, arrived, open_page):
    page, sent = open_sending(open_page, site)
    page.evaluate(LISTENING)
    page.evaluate("() => { mauve.track('a', { user: 42 }); mauve.track('a', { user: 0 }); }")
    hide(page)
    eventually(lambda: len(sent.events()) == 3)
    assert [event["user"] for event in sent.events()[1:]] == ["42", "0"]
    assert warned(page) == ["mauve: user must be a string, not 42"]


def test_properties_are_truncated_or_left_out_and_the_event_is_sent(site, arrived, open_page):
    page, sent = open_sending(open_page, site)
    page.evaluate(LISTENING)
    page.evaluate(
        """() => {
          const loop = {};
          loop.loop = loop;
          mauve.track("odd", { props: {
            long: "😀".repeat(1500), deep: {}, loop, list: [], number: NaN, endless: Infinity, big: 5n,
            date: new Date(), bytes: new Uint8Array(3), call: () => 1, text: "\\ud800", "\\ud800": 1,
            kept: "a", none: null, gone: undefined,
          } });
          mauve.track("many", { props: Object.fromEntries([...Array(150).keys()].map((n) => [n, n])) });
        }"""
    )
    hide(page)
    eventually(lambda: len(sent.events()) == 3)
    odd, many = sent.events()[1:]
    assert odd["props"] == {"long": "😀" * 1024, "kept": "a", "none": None}
    assert many["props"] == {str(number): number for number in range(100)}
    assert warned(page) == ["mauve: props must be at most 100, flat, of 1024 characters, not long"]
    eventually(lambda: arrived("odd") == arrived("many") == 1)


@pytest.mark.parametrize("options", ["'ann'", "5", "null", "undefined"])
def test_options_that_are_not_an_object_are_left_out(options, site, arrived, open_page):
    page, sent = open_sending(open_page, site)
    page.evaluate(LISTENING)
    page.evaluate(f"() => mauve.track('plain', {options})")
    hide(page)
    eventually(lambda: len(sent.events()) == 2)
    assert sent.events()[1].keys() - {"at"} == {"name", "id", "props", "sent_at"}
    eventually(lambda: arrived("plain") > 0)


def test_what_is_valid_does_not_raise(site, arrived, open_page):
    page, sent = open_sending(open_page, site)
    page.evaluate(
        """() => {
          for (const at of [new Date(), 5, "2026-11-16T00:00:00Z", "2026-11-16t01:00:00.123+01:00", null])
            mauve.track("valid", { at, user: null, id: null, props: null });
          mauve.track("valid", { props: { a: "b", c: 1, d: true, e: null, f: undefined } });
        }"""
    )
    hide(page)
    eventually(lambda: arrived("valid") == 6)
    assert len(sent.events()) == 7


ANSWERING = """answers => {
  window.asked = 0;
  window.lines = [];
  console.warn = (...line) => lines.push(line);
  window.fetch = () => {
    asked += 1;
    const { status = 202, body = "{}", after } = answers.shift() ?? {};
    return Promise.resolve(new Response(body, { status, headers: after ? { "retry-after": after } : {} }));
  };
}"""
HASTE = """() => {
  window.delays = [];
  AbortController.prototype.abort = () => delays.pop();
  window.setTimeout = (run, delay) => { delays.push(delay / 1000); Promise.resolve().then(run); };
}"""


def warned(page):
    return page.evaluate("() => lines.map((line) => line.join(' '))")


def delays_after(page, answers):
    """Return for how many seconds a page waits after each of these answers. It does so in no time."""
    page.evaluate(ANSWERING, answers)
    page.evaluate(HASTE)
    hide(page)
    page.wait_for_function("count => asked === count", arg=len(answers) + 1)
    return page.evaluate("() => delays")


ODD = ['{"errors":[]}', '{"errors":{"x":1}}', '{"errors":[null]}', "[]", "null", '"text"', "<html>", '{"errors":5}']
ODD += ['{"error":{"toString":1}}', '{"errors":[{"reason":{}}]}']


def test_nothing_that_the_service_says_stops_delivery(site, arrived, open_page):
    page, _ = open_sending(open_page, site)
    answers = [{"status": status, "body": body} for body in ODD for status in (202, 400)]
    page.evaluate(ANSWERING, answers)
    for number in range(1, len(answers) + 2):
        eventually(lambda count=number: page.clock.run_for(1000) or page.evaluate("() => asked") >= count)
        page.evaluate("() => mauve.track('next')")


def test_odd_answers_that_hold_events_hold_them_by_the_backoff(site, arrived, open_page):
    cap = '{"code":"event_cap_reached","resets_at":%s}'
    page, _ = open_sending(open_page, site)
    odd = [{"status": 503, "after": after} for after in ("-5", "120.5", "soon", "Mon, 01 Jan 2001 00:00:00 GMT")]
    odd += [{"status": 403, "body": cap % 1}, {"status": 403, "body": cap % '{"valueOf":1,"toString":1}'}]
    page.evaluate("() => { Math.random = () => 1; }")
    assert delays_after(page, odd) == [1 + 2**failures for failures in range(len(odd))]


def test_a_page_waits_as_long_as_the_service_says(site, arrived, open_page):
    page, _ = open_sending(open_page, site)
    now = page.evaluate("() => Date.now()")
    at = f"{datetime.fromtimestamp(now / 1000 + 30, UTC):%a, %d %b %Y %H:%M:%S} GMT"
    cap = '{"code":"event_cap_reached","resets_at":%s}'
    answers = [
        {"status": 503, "after": at},
        {"status": 503, "after": "7200"},
        {"status": 402},
        {"status": 403, "body": cap % "null"},
        {"status": 403, "body": cap % (now + 86_400_000)},
        {"status": 429, "after": "7"},
    ]
    assert delays_after(page, answers) == [30, 3600, 60, 600, 600, 7]


def test_a_wrong_key_is_one_line_and_is_tried_again(site, arrived, open_page):
    page, _ = open_sending(open_page, site)
    page.evaluate("() => { Math.random = () => 1; }")
    delays = delays_after(page, [{"status": 401, "body": '{"error":"unauthorized"}'}] * 11)
    assert (delays[0], max(delays)) == (2, 300)
    assert warned(page) == ["mauve: events are held: 401 unauthorized"]


def test_every_answer_that_a_developer_should_know_of_is_one_line(site, arrived, open_page):
    page, _ = open_sending(open_page, site)
    cap = '{"error":"cap reached","code":"event_cap_reached","resets_at":null}'
    answers = [
        {"status": 402, "body": '{"error":"suspended"}'},
        {"status": 403, "body": cap},
        {"status": 503, "body": '{"error":"busy"}'},
        {"status": 404, "body": "<html>"},
    ]
    delays_after(page, [*answers, *answers])
    url = page.evaluate("() => new URL('.', document.querySelector('script[data-key]').src).href")
    held = [
        f"mauve: events are held: {line}" for line in ("402 suspended", "403 cap reached", "503 busy", f"404 {url}")
    ]
    assert warned(page) == held


@pytest.mark.parametrize("status", [202, 400, 403, 413, 415, 422])
def test_events_that_are_lost_are_one_line(status, site, arrived, open_page):
    page, _ = open_sending(open_page, site)
    refused = {"status": status, "body": '{"errors":[{"index":0,"reason":"not so"}]}'}
    page.evaluate(ANSWERING, [refused, refused])
    for number in (1, 2):
        eventually(lambda count=number: page.clock.run_for(1000) or page.evaluate("() => asked") >= count)
        page.evaluate("() => mauve.track('next')")
    eventually(lambda: page.clock.run_for(1000) or page.evaluate("() => asked") == 3)
    assert warned(page) == [f"mauve: events are dropped: {status} not so"]


def test_an_unknown_option_is_one_line_and_the_event_is_sent(site, arrived, open_page):
    page, sent = open_sending(open_page, site)
    page.evaluate(LISTENING)
    page.evaluate("() => { mauve.track('a', { usr: 'ann' }); mauve.track('a', { usr: 'ann' }); }")
    assert warned(page) == ["mauve: options are user, props, id and at, not usr"]
    hide(page)
    eventually(lambda: len(sent.events()) == 3)


@contextmanager
def logging_page(chromium, site):
    """Open a page; return it and the list of what it logs."""
    context = chromium.new_context(base_url=site)
    context.set_default_timeout(1000 * PATIENCE_S)
    page = context.new_page()
    lines = []
    page.on("console", lambda message: lines.append(message.text))
    page.on("pageerror", lambda error: lines.append(str(error)))
    yield page, lines
    context.close()


@pytest.mark.parametrize("attribute", ["", ' data-key="pk_live_…"', ' data-key="sk_live_secret"', ' data-key=""'])
def test_a_tag_without_a_publishable_key_says_so_once(attribute, site, arrived, chromium):
    Site.keyless = attribute
    with logging_page(chromium, site) as (page, lines):
        page.goto("/keyless")
        assert page.evaluate("() => [typeof Mauve, typeof mauve]") == ["function", "undefined"]
        assert lines == ["mauve: data-key must be your publishable key, not a secret one"]


def test_a_service_that_cannot_be_reached_is_one_line_with_its_address(site, arrived, chromium):
    with logging_page(chromium, site) as (page, lines):
        asked = []
        page.route("**/v1/events", lambda route: (asked.append(route), route.abort("connectionrefused")))
        page.goto("/sending")
        eventually(lambda: page.evaluate("() => 1") and len(asked) > 2)
        ours = [line.partition("\n")[0] for line in lines if line.startswith("mauve:")]
        url = page.evaluate("() => new URL('.', document.querySelector('script[data-key]').src).href")
        assert ours == [f"mauve: events are held {url} TypeError: Failed to fetch"]


def test_a_revoked_key_is_one_line_by_the_real_service(site, arrived, chromium):
    Site.snippet = re.sub("pk_live_[0-9A-Za-z]+", f"pk_live_{'a' * 40}", Site.snippet)
    with logging_page(chromium, site) as (page, lines):
        page.goto("/sending")
        eventually(lambda: page.evaluate("() => 1") and [line for line in lines if line.startswith("mauve:")])
        assert [line for line in lines if line.startswith("mauve:")] == ["mauve: events are held: 401 unauthorized"]


def test_a_page_works_where_the_file_is_blocked(site, arrived, chromium):
    with logging_page(chromium, site) as (page, lines):
        page.route("**/mauve.js", lambda route: route.abort("blockedbyclient"))
        page.goto("/sending")
        page.evaluate("() => mauve.track('later')")
        assert page.evaluate("() => mauve.q.map(([name]) => name)") == ["page_opened", "later"]
        assert [line for line in lines if "ERR_BLOCKED_BY_CLIENT" not in line] == []


def test_calls_before_the_file_is_there_are_sent_once_it_is(site, arrived, open_page):
    page = open_page(site)
    held = []
    page.route("**/mauve.js", lambda route: held.extend([route]))
    page.goto("/sending", wait_until="commit")
    page.wait_for_function("() => window.mauve?.q")
    page.evaluate("() => { window.kept = mauve.track; window.stub = mauve; mauve.track('early', { user: 'ann' }); }")
    eventually(lambda: page.evaluate("() => 1") and held)
    held[0].continue_()
    page.wait_for_function("() => mauve.track !== kept")
    page.evaluate("() => { kept('by a function kept from before'); stub.track('by an object kept from before'); }")
    eventually(lambda: arrived() == arrived("early") == 1)
    eventually(lambda: arrived("by a function kept from before") == arrived("by an object kept from before") == 1)


def test_the_file_from_the_ingest_port_sends_to_the_ingest_port(site, service, arrived, open_page):
    Site.snippet = Site.snippet.replace(service.url, service.ingest_url)
    page = open_page(site)
    with page.expect_request(f"{service.ingest_url}/v1/events"):
        page.goto("/sending")
    eventually(lambda: arrived() == 1)
