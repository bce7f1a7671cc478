"""Refreshing a page: new numbers for the page and the API alike, within limits, and the age of every figure."""

import json
import re

import pytest

from mauve.core.user import Role
from mauve.stores.imports import ImportChunk, ImportCounts, NewImport
from mauve.stores.ledger.reader import LedgerReader
from mauve.stores.warehouse import WarehouseUnavailableError
from mauve.wiring.history import open_import_ledger
from support.billing import SECRET_A, signed_a
from support.browser import shown
from support.ledger_entries import a_payment
from support.service import bearer


@pytest.fixture
def app(api, load):
    return api.post("/v1/apps", json={"name": "An app"}).json()


@pytest.fixture
def own(app):
    return f"/apps/{app['app_id']}"


@pytest.fixture
def send(client, app, load, parts, clock):
    def accept(*events):
        assert client.post("/v1/events", json=list(events), headers=bearer(app["sk_key"])).status_code == 202
        load()
        parts.catalog.apps.note_first_event(app["public_id"], clock.now_ms())  # as the loader's runner does

    return accept


@pytest.fixture
def read(client, app):
    def get(metric):
        reply = client.get(f"/v1/metrics/{metric}", headers=bearer(app["sk_key"]))
        return reply.json()["data"], reply.headers["x-cache"]

    return get


def text_of(reply):
    text = re.sub(r"<[^>]+>", " ", reply.text.partition("<main")[2])
    return re.sub(r"\s+", " ", text.replace("\N{NARROW NO-BREAK SPACE}", " ").replace("\N{NO-BREAK SPACE}", " "))


def figure(reply, label):
    """Return the text of the card with this label."""
    return re.search(rf"<h2>{label}</h2>(.*?)</section>", reply.text, re.DOTALL)[1]


@pytest.mark.parametrize("page", ["", "app"])
def test_a_refresh_shows_new_numbers_on_the_page_and_in_the_api(page, viewer, own, send, read, clock):
    path = own if page else "/"
    send({"name": "view", "user": "ann"})
    assert read("mau") == ([{"mau": 1}], "miss")
    send({"name": "view", "user": "bob"})
    clock.advance(60_000)
    assert "<b>1</b>" in figure(viewer.open(path), "MAU")
    refreshed = viewer.send(f"{path.rstrip('/')}/refresh?days=30")
    assert "Refreshed." in refreshed.text
    assert "<b>2</b>" in figure(refreshed, "MAU")
    assert read("mau") == ([{"mau": 2}], "hit")


def test_a_refresh_returns_to_the_same_period_and_order(viewer, own, send, clock):
    send({"name": "view"})
    overview = viewer.ask("POST", "/refresh?days=7&sort=mau")
    assert (overview.status_code, overview.headers["location"]) == (303, "/?days=7&sort=mau&done=refreshed")
    clock.advance(5_000)
    page = viewer.ask("POST", f"{own}/refresh?from=2027-01-01&to=2027-01-15")
    assert (page.status_code, page.headers["location"]) == (303, f"{own}?from=2027-01-01&to=2027-01-15&done=refreshed")


def test_a_second_refresh_is_refused_with_the_time_to_wait_and_the_page(viewer, signed_in, own, send, clock):
    send({"name": "view", "user": "ann"})
    assert viewer.ask("POST", f"{own}/refresh").status_code == 303
    clock.advance(3_000)
    refused = viewer.ask("POST", f"{own}/refresh?days=7")
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "2")
    assert "Refreshed 3 s ago; try again in 2 s." in text_of(refused)
    assert "<b>1</b>" in figure(refused, "Active users"), "the page is shown all the same"
    assert signed_in(Role.OWNER)[0].ask("POST", f"{own}/refresh").status_code == 303, "another person may"
    clock.advance(2_000)
    assert viewer.ask("POST", f"{own}/refresh").status_code == 303


def test_an_organization_cannot_refresh_without_end(signed_in, own, send):
    send({"name": "view"})
    people = [signed_in(Role.VIEWER, f"{number}@example.com")[0] for number in range(11)]
    statuses = [person.ask("POST", f"{own}/refresh").status_code for person in people]
    assert statuses == [303] * 10 + [429]


def test_a_refresh_that_reads_nothing_says_so_and_keeps_the_old_numbers(viewer, own, send, read_warehouse, monkeypatch):
    send({"name": "view", "user": "ann"})
    viewer.open(own)

    def fails(*_):
        raise WarehouseUnavailableError("down")

    monkeypatch.setattr(type(read_warehouse), "users", fails)
    page = viewer.send(f"{own}/refresh")
    assert "Some numbers could not be read in time and are unchanged." in page.text
    assert "<b>1</b>" in figure(page, "MAU")


def test_a_refresh_uses_up_no_allowance(core, viewer, own, send, organization, clock):
    send({"name": "view"})
    viewer.send(f"{own}/refresh")
    usage = core.dashboard.meter.usage(organization.org_id, clock.now_ms())
    assert (usage.reads, usage.queries, usage.raw_scans) == (0, 0, 0)


def test_a_refresh_while_loading_is_behind_keeps_page_and_api_equal(core, viewer, own, send, read, clock):
    send({"name": "view", "user": "ann"})
    assert read("mau") == ([{"mau": 1}], "miss")
    send({"name": "view", "user": "bob"})
    core.is_loading_behind = True
    assert "<b>2</b>" in figure(viewer.send(f"{own}/refresh"), "MAU")
    assert read("mau") == ([{"mau": 2}], "hit")


def test_a_refresh_while_loading_is_behind_does_not_prolong_an_incomplete_answer(
    core, client, app, viewer, own, send, read, load, clock
):
    send({"name": "view", "user": "ann"})
    assert read("mau") == ([{"mau": 1}], "miss")
    clock.advance(290_000)
    client.post("/v1/events", json={"name": "view", "user": "bob"}, headers=bearer(app["sk_key"]))
    core.is_loading_behind = True
    page = viewer.send(f"{own}/refresh")
    assert "<b>1</b>" in figure(page, "MAU"), "it is accepted, but not loaded"
    assert "Mauve is still loading events" in page.text
    load()
    core.is_loading_behind = False
    assert read("mau") == ([{"mau": 1}], "hit")
    clock.advance(10_000)  # The first answer is now five minutes old.
    assert read("mau") == ([{"mau": 2}], "miss")


@pytest.mark.parametrize("path", ["/", "app"])
def test_a_page_says_once_how_old_its_oldest_number_is(viewer, own, send, read, clock, path):
    path = path if path == "/" else own
    send({"name": "view", "user": "ann"})
    assert "As of 08:00:00 UTC . Days are UTC." in text_of(viewer.open(path))
    clock.advance(300_000)
    read("mau")
    clock.advance(60_000)
    page = text_of(viewer.open(path))
    assert "As of 08:05:00 UTC ; money as of 08:06:00 UTC . Days are UTC." in page
    assert "ago" not in page, "no number has an age of its own"
    clock.advance(10_000)
    assert "As of 08:06:10 UTC . Days are UTC." in text_of(viewer.send(f"{path.rstrip('/')}/refresh"))


class TestMoneyWrites:
    """Pages show money that was just written, while the API keeps the answer that it has cached."""

    @pytest.fixture
    def written(self, client, app, api, settings, clock):
        """Write money in one of the ways there are."""

        def send_payment():
            payment = {"name": "payment", "id": "1", "props": {"amount": 500, "currency": "eur"}}
            assert client.post("/v1/events", json=payment, headers=bearer(app["sk_key"])).status_code == 202

        def send_object():
            sub = {"type": "subscription", "id": "1", "status": "active", "mrr": 500, "currency": "eur"}
            assert client.post("/v1/objects", json=sub, headers=bearer(app["sk_key"])).status_code == 202

        def deliver():
            api.put(f"/v1/apps/{app['app_id']}/webhooks/biller_a", json={"secret": SECRET_A})
            invoice = {"id": "in_1", "object": "invoice", "amount_paid": 500, "currency": "eur", "status": "paid"}
            event = {"id": "evt_1", "object": "event", "type": "invoice.paid", "created": clock.now_ms() // 1000}
            body = json.dumps({**event, "livemode": True, "data": {"object": invoice}}).encode()
            headers = {"content-type": "application/json", **signed_a(body, at=clock.now_ms() // 1000)}
            reply = client.post(f"/v1/webhooks/biller_a/{app['public_id']}", content=body, headers=headers)
            assert reply.json()["rows"] == 1

        def import_payment():
            days = {"first_day": "2027-01-15", "last_day": "2027-01-15", "is_approximate": False}
            file = {"format": "csv", "file": "f", "digest": "0", "options": "", "who": "root"}
            new = NewImport(project=app["public_id"], began_at=clock.now_ms(), **file, **days)
            paid = {"project": app["public_id"], "amount": 500, "occurred_at": clock.now_ms()}
            with open_import_ledger(settings) as ledger:
                number = ledger.begin(new).number
                ledger.commit(number, ImportChunk(0, 1, ImportCounts(), [a_payment(**paid)]))

        return {"payment": send_payment, "object": send_object, "webhook": deliver, "import": import_payment}

    @pytest.mark.parametrize("path", ["/", "app"])
    @pytest.mark.parametrize("way", ["payment", "object", "webhook", "import"])
    def test_it_is_shown_at_once_and_the_api_keeps_its_answer(self, viewer, own, send, read, written, clock, path, way):
        send({"name": "view", "user": "ann"})
        metric, label = ("mrr_history", "MRR") if way == "object" else ("revenue", "Gross revenue")
        path = path if path == "/" else own
        assert read(metric) == ([], "miss")
        assert "EUR" not in figure(viewer.open(path), label)
        clock.advance(60_000)
        written[way]()
        assert "5.00" in figure(viewer.open(path), label)
        assert read(metric) == ([], "hit")
        clock.advance(240_000)
        assert [row["currency"] for row in read(metric)[0]] == ["eur"]

    def test_unchanged_money_comes_from_the_cache(self, core, viewer, own, send, written, clock, monkeypatch):
        send({"name": "view", "user": "ann"})
        written["payment"]()
        clock.advance(1)
        viewer.open(own)
        clock.advance(1)
        viewer.open(own)
        monkeypatch.delattr(LedgerReader, "day_totals")
        clock.advance(60_000)
        page = viewer.open(own)
        assert "5.00" in figure(page, "Gross revenue")
        assert "notice warn" not in page.text


class TestEventsPage:
    def test_it_says_how_old_its_counts_are_and_refreshes_them(self, viewer, own, send, read, clock):
        send({"name": "view"})
        assert read("event_names")[0] == [{"name": "view", "count": 1}]
        clock.advance(60_000)
        send({"name": "view"})
        page = viewer.open(f"{own}/events")
        assert "<b>1</b>" in figure(page, "Counted")
        assert "As of 08:00:00 UTC . Days are UTC." in text_of(page)
        page = viewer.send(f"{own}/events/refresh?days=7")
        assert "Refreshed." in page.text
        assert "<b>1</b>" in figure(viewer.open(f"{own}/events"), "Counted"), "another period"

    def test_a_refresh_returns_to_the_same_event_and_the_api_agrees(self, viewer, own, send, read, clock):
        send({"name": "a&b"})
        read("event_names")
        send({"name": "a&b"})
        shown_event = f"{own}/events?days=30&name=a%26b&done=refreshed"
        reply = viewer.ask("POST", f"{own}/events/refresh?days=30&name=a%26b")
        assert (reply.status_code, reply.headers["location"]) == (303, shown_event)
        assert "<b>2</b>" in figure(viewer.open(reply.headers["location"]), "Counted")
        assert read("event_names") == ([{"name": "a&b", "count": 2}], "hit")
        refused = viewer.ask("POST", f"{own}/refresh")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "5"), "one limit for all pages"
        assert viewer.ask("POST", f"{own}/events/refresh").status_code == 429

    def test_it_mentions_the_previous_period_only_in_a_chart_that_shows_it(self, viewer, own, send, clock):
        send({"name": "view"})
        for query in ("", "&name=view"):
            assert "previous 7 days" not in text_of(viewer.open(f"{own}/events?days=7{query}")), query
        send({"name": "view", "at": clock.now_ms() - 7 * 86_400_000})
        clock.advance(300_000)
        assert "previous 7 days" not in text_of(viewer.open(f"{own}/events?days=7"))
        assert text_of(viewer.open(f"{own}/events?days=7&name=view")).count("previous 7 days") == 1


def test_a_small_average_has_a_decimal_and_is_never_shown_as_zero(viewer, own, send, clock):
    send({"name": "view", "user": "ann", "at": clock.now_ms() - 86_400_000})
    for path in ("/", own):
        assert "<b>&lt;0.1</b>" in figure(viewer.open(path), "DAU, average"), path
        assert "<b>0.2</b>" in figure(viewer.open(f"{path}?days=7"), "DAU, average"), path


def test_the_previous_period_is_mentioned_only_if_it_has_numbers(viewer, own, send, clock):
    send({"name": "view", "user": "ann"})
    assert "the previous" not in text_of(viewer.open(f"{own}?days=7"))
    assert "Changes" not in text_of(viewer.open("/?days=7"))
    send({"name": "view", "user": "ann", "at": clock.now_ms() - 7 * 86_400_000})
    clock.advance(300_000)
    assert "the previous 7 days" in text_of(viewer.open(f"{own}?days=7"))
    past = "from=2027-01-09&to=2027-01-14"
    for path in ("/", own):
        assert "Changes are relative to the previous 6 days" in text_of(viewer.open(f"{path}?{past}")), path


def test_pages_say_what_dau_leaves_out_and_that_apps_are_added_up(viewer, api, own, send):
    send({"name": "user_signup", "user": "ann"})
    page = text_of(viewer.open(own))
    assert "user_signup alone does not make a user active" in page.replace("  ", " ")
    assert "counts twice" not in text_of(viewer.open("/")), "there is only one app"
    api.post("/v1/apps", json={"name": "Another"})
    assert "Sum over apps: a person active in two apps counts twice." in text_of(viewer.open("/"))


class TestNewApp:
    @pytest.fixture
    def developer(self, signed_in):
        return signed_in(Role.ADMIN)[0]

    @pytest.fixture
    def created(self, developer, load):
        page = developer.send("/apps", {"name": "New", "type": "saas", "ownership": "mine"})
        own = re.search(r'data-poll="(/apps/[^"]*)/first-event"', page.text)[1]
        return page, own

    def test_its_snippets_send_two_events_a_payment_and_a_subscription(self, created):
        page, _ = created
        key = shown(page, "key")
        events = shown(page, "send-event")
        assert '"name": "user_signup", "user": "ann"' in events
        assert '"name": "report_opened", "user": "ann"' in events
        assert "/v1/objects" in shown(page, "send-subscription")
        for snippet in ("send-event", "send-payment", "send-subscription", "read-metric"):
            assert key in shown(page, snippet)
            assert "http://testserver/v1/" in shown(page, snippet)

    def test_its_snippets_send_from_programs_with_its_key_and_from_pages_with_another(self, created):
        page, _ = created
        key = shown(page, "key")
        python, typescript = shown(page, "send-from-python"), shown(page, "send-from-typescript")
        assert f'Mauve("{key}", url="http://testserver")' in python
        assert f'new Mauve({{ key: "{key}", url: "http://testserver" }})' in typescript
        assert "pip install mauve-metrics" in page.text
        assert "npm install mauve-metrics" in page.text
        browser = shown(page, "send-from-browser")
        assert '<script src="http://testserver/mauve.js" data-key="pk_live_…" defer></script>' in browser
        assert key not in browser

    def test_the_page_shows_its_numbers_past_the_cache_and_when_the_api_will(
        self, client, developer, created, load, clock
    ):
        page, own = created
        key = shown(page, "key")

        def mau():
            reply = client.get("/v1/metrics/mau", headers=bearer(key))
            return reply.json()["data"], reply.headers["x-cache"]

        def numbers():
            fragment = developer.open(f"{own}/first-event").text
            rows = re.findall(r"<dt>(.*?)</dt>\s*<dd>(.*?)</dd>", fragment, re.DOTALL)
            texts = ((label, re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", rest)).strip()) for label, rest in rows)
            return {label: text.replace("\N{NO-BREAK SPACE}", " ") for label, text in texts}

        assert numbers()["MAU"] == "0 the API shows this now, at /v1/metrics/mau"
        developer.open("/")
        developer.open(own)
        assert mau() == ([{"mau": 0}], "miss"), "no page has pinned an answer"
        events = [{"name": "user_signup", "user": "ann"}, {"name": "report_opened", "user": "ann"}]
        payment = {"name": "payment", "id": "1", "props": {"amount": 1999, "currency": "eur"}}
        client.post("/v1/events", json=[*events, payment], headers=bearer(key))
        subscription = {"type": "subscription", "id": "1", "status": "active", "mrr": 900, "currency": "eur"}
        client.post("/v1/objects", json=subscription, headers=bearer(key))
        load()
        clock.advance(2_000)
        assert numbers() == {
            "Events, without payments": "2 the API shows this now, at /v1/metrics/event_names",
            "MAU": "1 the API shows this from 08:05:00 UTC on, at /v1/metrics/mau",
            "DAU, today": "1 the API shows this now, at /v1/metrics/dau",
            "Signups": "1 the API shows this now, at /v1/metrics/signups",
            "Gross revenue": "19.99 EUR the API shows this now, at /v1/metrics/revenue",
            "MRR": "9.00 EUR the API shows this now, at /v1/metrics/mrr",
        }
        assert mau() == ([{"mau": 0}], "hit"), "looking has changed nothing"
        clock.advance(298_000)
        assert numbers()["MAU"] == "1 the API shows this now, at /v1/metrics/mau"
        assert mau() == ([{"mau": 1}], "miss")

    def test_no_page_of_an_app_without_events_caches_its_zeros(self, client, developer, created, load, clock):
        page, own = created
        headers = bearer(shown(page, "key"))
        pages = ("/", own, f"{own}/events", f"{own}/events?name=view", f"{own}/sheets/event_names.csv")
        for path in (*pages, f"{own}/sheets/dau.csv"):
            assert developer.open(path).status_code == 200, path
        for path in (f"{own}/refresh", f"{own}/events/refresh"):
            assert developer.ask("POST", path).status_code == 303, path
            clock.advance(5_000)
        client.post("/v1/events", json={"name": "view", "user": "ann"}, headers=headers)
        load()
        for metric in ("event_names", "event_series?name=view", "dau", "mau"):
            reply = client.get(f"/v1/metrics/{metric}", headers=headers)
            assert reply.headers["x-cache"] == "miss", metric
            assert list(reply.json()["data"][0].values())[-1] == 1, metric

    def test_the_numbers_are_read_only_in_the_first_hour(self, developer, created, clock):
        _, own = created
        assert "/v1/metrics/mau" in developer.open(f"{own}/first-event").text
        clock.advance(60 * 60_000)
        assert "/v1/metrics/mau" not in developer.open(f"{own}/first-event").text
        assert "/v1/metrics/mau" not in developer.open(own).text.partition("<pre")[0]

    def test_the_numbers_are_read_once_in_a_flush_interval(self, client, developer, created, load, clock):
        page, own = created

        def mau():
            fragment = developer.open(f"{own}/first-event").text
            return re.search(r"<dt>MAU</dt>\s*<dd>(.*?)</dd>", fragment, re.DOTALL)[1]

        assert "<b>0</b>" in mau()
        client.post("/v1/events", json={"name": "view", "user": "ann"}, headers=bearer(shown(page, "key")))
        load()
        clock.advance(1_999)
        assert "<b>0</b>" in mau(), "nothing was read"
        clock.advance(1)
        assert "<b>1</b>" in mau()

    def test_the_app_page_shows_them_too_until_the_first_event(self, developer, created):
        _, own = created
        page = developer.open(own)
        assert "data-waiting" in page.text
        assert "<code>/v1/metrics/event_names</code>" in page.text

    def test_its_form_says_what_type_and_ownership_do(self, developer):
        page = developer.open("/apps/new").text
        assert page.count("does not affect numbers") == 2
