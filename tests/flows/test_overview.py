"""The overview: the API's numbers for every app, and totals that never mix currencies."""

import re
import threading
from dataclasses import replace

import pytest

from mauve.core.user import Role
from support.service import PATIENCE_S, bearer, eventually

DAY_MS = 86_400_000


@pytest.fixture
def new_app(api):
    def create(name):
        return api.post("/v1/apps", json={"name": name}).json()

    return create


@pytest.fixture
def send(client, load, parts, keyring, clock):
    def accept(key, *events):
        assert client.post("/v1/events", json=list(events), headers=bearer(key)).status_code == 202
        load()
        project = keyring.key_for(key).public_id
        parts.catalog.apps.note_first_event(project, clock.now_ms())  # as the loader's runner does

    return accept


def payment(id_, amount, currency, **more):
    return {"name": "payment", "id": id_, "props": {"amount": amount, "currency": currency}, **more}


def text_of(reply):
    assert reply.status_code == 200
    text = re.sub(r"<[^>]+>", " ", reply.text.partition("<main")[2])
    return re.sub(r"\s+", " ", text.replace("\N{NARROW NO-BREAK SPACE}", " "))


def names_in(reply):
    return re.findall(r'<td class="name"><a [^>]*>([^<]*)</a>', reply.text)


def test_every_app_is_listed_with_the_numbers_of_the_api(client, viewer, new_app, send):
    one, two = new_app("One"), new_app("Two")
    send(one["sk_key"], {"name": "view", "user": "ann"}, {"name": "user_signup", "user": "bob"}, payment("1", 5, "eur"))
    send(two["sk_key"], {"name": "view", "user": "ann"}, payment("1", 2**53 - 1, "eur"), payment("2", 7, "jpy"))
    mrr = {"type": "subscription", "id": "s", "status": "active", "mrr": 1999, "currency": "usd"}
    client.post("/v1/objects", json=mrr, headers=bearer(two["sk_key"]))
    page = viewer.open("/")
    text = text_of(page)
    for expected in ("0.05 EUR", "90 071 992 547 409.91 EUR", "90 071 992 547 409.96 EUR", "7 JPY", "19.99 USD"):
        assert expected in text.replace("\N{NO-BREAK SPACE}", " "), expected
    assert "notice warn" not in page.text
    read = client.get("/v1/metrics/mau", headers=bearer(one["sk_key"]))
    assert (read.json()["data"], read.headers["x-cache"]) == ([{"mau": 2}], "hit"), "the page has already read it"


def test_the_page_shows_the_answers_that_the_api_has_cached(client, viewer, new_app, send, clock):
    app = new_app("An app")
    assert client.get("/v1/metrics/signups", headers=bearer(app["sk_key"])).json()["data"] == [{"signups": 0}]
    send(app["sk_key"], {"name": "user_signup", "user": "ann"})
    clock.advance(200_000)
    assert "Signups 0" in text_of(viewer.open("/"))
    clock.advance(100_000)
    assert "Signups 1" in text_of(viewer.open("/"))


def test_opening_the_page_uses_up_no_allowance(core, viewer, new_app, organization, clock):
    new_app("An app")
    viewer.open("/")
    usage = core.dashboard.meter.usage(organization.org_id, clock.now_ms())
    assert (usage.reads, usage.queries, usage.raw_scans) == (0, 0, 0)


def test_a_change_is_relative_to_the_previous_period(viewer, new_app, send, clock):
    app = new_app("An app")
    yesterday, earlier = clock.now_ms() - DAY_MS, clock.now_ms() - 4 * DAY_MS
    send(app["sk_key"], payment("1", 200, "eur", at=earlier), payment("2", 300, "eur", at=yesterday))
    text = text_of(viewer.open("/?from=2027-01-13&to=2027-01-15")).replace("\xa0", " ")
    assert "3.00 EUR compared with the previous period: +50 %" in text
    assert "+50 %" not in text_of(viewer.open("/?days=30"))


def test_apps_are_sorted_as_requested_without_mixing_currencies(viewer, new_app, send):
    for name, paid in [("Aa", (500, "eur")), ("Bb", (900, "eur")), ("Cc", (10**9, "jpy"))]:
        app = new_app(name)
        send(app["sk_key"], payment("1", *paid), *[{"name": "view", "user": name + str(n)} for n in range(paid[0] % 7)])
    assert names_in(viewer.open("/")) == ["Aa", "Bb", "Cc"]
    assert names_in(viewer.open("/?sort=revenue")) == ["Bb", "Aa", "Cc"]
    assert names_in(viewer.open("/?sort=mau")) == ["Cc", "Bb", "Aa"]
    assert names_in(viewer.open("/?sort=nonsense")) == ["Aa", "Bb", "Cc"]


def test_the_test_environment_has_its_own_numbers(client, api, viewer, signed_in, new_app, send):
    app = new_app("An app")
    send(app["sk_key"], payment("1", 5, "eur"))
    assert ">Test</a>" not in viewer.open("/").text
    admin, _ = signed_in(Role.ADMIN)
    admin.send(f"/apps/{app['app_id']}/webhooks/test/biller_a", {"secret": "whsec_of_some_length_at_all"})
    other = new_app("Another")
    page = viewer.open("/?environment=test")
    assert names_in(page) == ["An app"]
    assert other["name"] not in page.text
    assert "EUR" not in text_of(page)


@pytest.mark.parametrize("query", ["days=1", "from=2027-01-01", "from=2027-01-15&to=2027-01-14", "from=x&to=y"])
def test_an_invalid_period_is_refused(viewer, api, query):
    assert api.post("/v1/apps", json={"name": "An app"}).status_code == 201
    reply = viewer.ask("GET", f"/?{query}")
    assert reply.status_code == 400
    assert 'role="alert"' in reply.text
    assert "hoose" in reply.text or "swap" in reply.text or "correct" in reply.text, "it says what to change"
    assert 'name="from" value="2026-12-17"' in reply.text, "the page is there, with the last 30 days"


class TestHangingWarehouse:
    @pytest.fixture
    def settings(self, settings):
        return replace(settings, catalog_timeout_s=3.0)  # A page waits a third of it for its numbers.

    @pytest.fixture
    def released(self):
        return threading.Event()

    @pytest.fixture
    def read_warehouse(self, released):
        class Hanging:
            def __getattr__(self, name):
                released.wait(PATIENCE_S)
                raise ConnectionError(name)

            def close(self):
                pass

        return Hanging()

    def test_a_hanging_store_hides_only_its_own_numbers(self, client, viewer, new_app, released):
        app = new_app("An app")
        client.post("/v1/events", json=payment("1", 5, "eur"), headers=bearer(app["sk_key"]))
        text = eventually(lambda: _with_revenue(text_of(viewer.open("/"))))
        assert not released.is_set()
        released.set()
        assert "Some numbers are not available right now" in text


def _with_revenue(text):
    """Return the page once the ledger has answered: on a slow machine the first page may time out."""
    return text if "0.05" in text else None


class TestWithoutWarehouse:
    @pytest.fixture
    def read_warehouse(self):
        class Broken:
            def __getattr__(self, name):
                raise ConnectionError(name)

            def close(self):
                pass

        return Broken()

    def test_unavailable_numbers_are_a_dash_and_the_rest_is_shown(self, client, viewer, new_app):
        app = new_app("An app")
        client.post("/v1/events", json=payment("1", 5, "eur"), headers=bearer(app["sk_key"]))
        text = text_of(viewer.open("/"))
        assert "Some numbers are not available right now" in text
        assert "0.05" in text
