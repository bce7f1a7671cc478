"""The list of an app's payments, and its CSV file."""

import csv
import io
import re

import pytest

from mauve.core.user import Role
from mauve.dashboard.pages import payments as payments_page
from mauve.dashboard.pages import sheets
from mauve.stores.ledger import Entry
from mauve.wiring.databases import open_ledger_writer
from support.ledger_entries import a_payment
from support.service import bearer

DAY_MS = 86_400_000


@pytest.fixture
def app(api):
    return api.post("/v1/apps", json={"name": "Söhne & Co."}).json()


@pytest.fixture
def path(app):
    return f"/apps/{app['app_id']}/payments"


@pytest.fixture
def send(client, app):
    def accept(*events):
        reply = client.post("/v1/events", json=list(events), headers=bearer(app["sk_key"]))
        assert reply.status_code == 202

    return accept


@pytest.fixture
def record(settings, app, clock):
    """Record payments of billers, or very many."""

    def write(*payments, **fields):
        known = {"project": app["public_id"], "occurred_at": clock.now_ms(), "received_at": clock.now_ms()}
        with open_ledger_writer(settings) as ledger:
            ledger.record([Entry([a_payment(**(known | fields | payment)) for payment in payments])])

    return write


def payment(id_, amount, currency="eur", **fields):
    props = {"amount": amount, "currency": currency, "earned": fields.pop("earned", True)}
    return {"name": "payment", "id": id_, "props": props, **fields}


def text_of(reply):
    assert reply.status_code == 200
    text = re.sub(r"<[^>]+>", " ", reply.text.partition("<main")[2])
    return re.sub(r"\s+", " ", text.replace("\N{NARROW NO-BREAK SPACE}", " ").replace("\N{NO-BREAK SPACE}", " "))


def ids_on(reply):
    return re.findall(r'<code class="ident" title="([^"]*)"', reply.text)


def csv_of(reply):
    assert reply.status_code == 200
    assert reply.headers["content-type"] == "text/csv; charset=utf-8"
    return list(csv.DictReader(io.StringIO(reply.text)))


class TestList:
    def test_payments_of_every_source_are_listed_latest_first(self, viewer, path, send, record, clock):
        send(payment("one", 123_450, user="ann"), payment("<two>", 7, "jpy", earned=False, at=clock.now_ms() - 1))
        flags = b'{"flags":["fee_unknown"]}'
        record({"id_": "stripe:in_1", "source": "biller_a", "payload": flags, "occurred_at": clock.now_ms() - 2})
        page = viewer.open(path)
        assert ids_on(page) == ["one", "&lt;two&gt;", "stripe:in_1"]
        text = text_of(page)
        for expected in (
            "1 234.50 EUR revenue ann one API",
            "7 JPY volume none &lt;two&gt; API",
            "19.99 EUR revenue fee unknown cus_1 stripe:in_1 Stripe",
        ):
            assert expected in text, expected

    def test_an_invoice_from_two_sources_is_shown_as_a_warning_with_both_rows(self, viewer, path, send, record, clock):
        send(payment("in_76", 100), payment("in_77", 2500), payment("order_1", 7), payment("stripe:manual", 1))
        assert "sent twice" not in text_of(viewer.open(path))
        long_ago = clock.now_ms() - 60 * DAY_MS
        record({"id_": "stripe:in_77", "source": "biller_a", "occurred_at": long_ago})
        record({"id_": "polar:order_1", "source": "biller_b"}, {"id_": "stripe:in_78", "source": "biller_a"})
        page = viewer.open(path)
        assert "<code>in_77</code> (" in page.text, "in the sentence: not a block of its own"
        text = text_of(page)
        assert "sent twice" in text
        assert "Use one source per app" in text
        assert "in_77 (25.00 EUR, API) and stripe:in_77 (19.99 EUR, Stripe)" in text
        assert "order_1 (0.07 EUR, API) and polar:order_1 (19.99 EUR, Polar)" in text
        assert "stripe:in_78 (" not in text
        record(
            {"id_": "in_79", "source": "api"},
            *[{"id_": f"stripe:in_{number}", "source": "biller_a"} for number in range(79, 200)],
        )
        record(*[{"id_": f"in_{number}"} for number in range(80, 200)])
        assert len(re.findall(r"\) and (?:stripe|polar):", text_of(viewer.open(path)))) == 3, "a few are enough"

    def test_an_empty_list_says_how_to_fill_it_and_an_unmatched_filter_what_to_check(self, viewer, path):
        assert "No payments in this period. Send them as events" in text_of(viewer.open(path))
        assert "No payment matches in this period" in text_of(viewer.open(f"{path}?user=ann"))

    def test_period_currency_source_user_and_id_filter_the_list(self, viewer, path, send, record, clock):
        send(
            payment("old", 1, at=clock.now_ms() - 6 * DAY_MS), payment("usd", 1, "usd", user="ann b"), payment("eur", 1)
        )
        record({"id_": "polar:1", "source": "biller_b"})
        day = "from=2027-01-09&to=2027-01-09"
        for query, expected in {
            "days=7": {"old", "usd", "eur", "polar:1"},
            day: {"old"},
            "currency=USD": {"usd"},
            "source=biller_b": {"polar:1"},
            "source=api&currency=eur": {"eur", "old"},
            "user=ann+b": {"usd"},
            "id=polar:1": {"polar:1"},
            "id=polar": set(),
        }.items():
            assert set(ids_on(viewer.open(f"{path}?{query}"))) == expected, query

    def test_a_filter_carries_over_to_the_period_the_file_and_the_next_page(self, viewer, path, record):
        record(*[{"id_": f"p{number}"} for number in range(payments_page.PAGE_ROWS + 1)], user="ann")
        links = re.findall(r'href="([^"]*)"', viewer.open(f"{path}?user=ann&days=7").text)
        carried = [link for link in links if "user=ann" in link and "payments" in link]
        assert any(link.startswith(f"{path}.csv?days=7") for link in carried)
        assert any("days=90" in link for link in carried)
        assert any("after=" in link and "days=7" in link for link in carried)

    def test_a_long_list_is_paged_and_shows_each_payment_once(self, viewer, path, record):
        record(*[{"id_": f"p{number}&:"} for number in range(120)])
        seen, at = [], path
        while at:
            page = viewer.open(at)
            seen += ids_on(page)
            found = re.search(r'href="([^"]*after=[^"]*)">Next page', page.text)
            at = found and found[1].replace("&amp;", "&")
        assert sorted(seen) == sorted(f"p{number}&amp;:" for number in range(120))

    @pytest.mark.embedded  # refused before an engine is asked
    @pytest.mark.parametrize(
        "query",
        ["after=x", "after=1", "after=x:y", f"after={'9' * 19}:a", "currency=euro", "source=other", "days=8"],
    )
    def test_what_cannot_be_shown_is_refused_with_the_reason(self, viewer, path, query):
        assert viewer.ask("GET", f"{path}?{query}").status_code == 400
        if not query.startswith("after"):
            assert viewer.ask("GET", f"{path}.csv?{query}").status_code == 400

    def test_an_unusable_filter_is_explained_on_the_page_and_the_others_are_kept(self, viewer, path, send):
        send(payment("one", 1, user="ann"), payment("two", 1, user="bob"))
        for query, reason in {
            "currency=zzz": "ZZZ is not a supported currency",
            "currency=%3Cb%3E": "A currency is a code of three letters",
            "source=foo": "There is no such source",
            "after=x": "This page of the list does not exist; here is the first one",
            "source=foo&currency=zzz&after=x": "list",
        }.items():
            page = viewer.ask("GET", f"{path}?user=ann&days=7&{query}")
            assert page.status_code == 400, query
            assert reason in page.text, query
            assert 'value="ann"' in page.text, query
            assert ids_on(page) == ["one"], query

    def test_the_test_environment_has_its_own_list(self, viewer, signed_in, app, path, send, record):
        send(payment("live", 1))
        assert viewer.ask("GET", f"{path}?environment=test").status_code == 404
        signed_in(Role.ADMIN)[0].send(
            f"/apps/{app['app_id']}/webhooks/test/biller_a", {"secret": "whsec_test_0123456789ab"}
        )
        assert ids_on(viewer.open(f"{path}?environment=test")) == []
        assert re.search(rf'href="{path}\?[^"]*environment=test', viewer.open(path).text), "the switch"

    @pytest.mark.parametrize("ending", ["", ".csv"])
    def test_another_organization_does_not_find_it(self, owner, path, ending):
        assert owner.ask("GET", path + ending).status_code == 404


class TestFile:
    def test_it_contains_the_filtered_payments_in_minor_units(self, viewer, path, send, clock):
        send(payment("=1+1", 123_450, user="@ann"), payment("two", 7, "jpy", earned=False, at=clock.now_ms() - 1000))
        reply = viewer.ask("GET", f"{path}.csv?days=7")
        name = "sohne-co-payments-2027-01-09-2027-01-15.csv"
        assert reply.headers["content-disposition"] == f'attachment; filename="{name}"'
        first, second = csv_of(reply)
        assert first == {
            "time": "2027-01-15T08:00:00Z",
            "amount_minor_units": "123450",
            "currency": "eur",
            "kind": "revenue",
            "user": "'@ann",
            "id": "'=1+1",
            "source": "api",
            "fee_unknown": "no",
        }
        assert (second["kind"], second["user"]) == ("volume", "")
        assert [row["id"] for row in csv_of(viewer.ask("GET", f"{path}.csv?currency=jpy"))] == ["two"]

    def test_a_file_that_was_cut_says_so(self, viewer, path, record, monkeypatch):
        monkeypatch.setattr(sheets, "ROWS_MAX", 3)
        record(*[{"id_": f"p{number}"} for number in range(3)])
        assert len(csv_of(viewer.ask("GET", f"{path}.csv"))) == 3
        record({"id_": "p3"})
        cut = csv_of(viewer.ask("GET", f"{path}.csv"))
        assert len(cut) == 4
        assert cut[-1]["time"].startswith("cut here")

    def test_a_file_is_read_and_sent_in_pieces(self, viewer, path, record):
        record(*[{"id_": f"p{number}"} for number in range(1_203)])
        rows = csv_of(viewer.ask("GET", f"{path}.csv"))
        assert len({row["id"] for row in rows}) == len(rows) == 1_203
        assert viewer.ask("HEAD", f"{path}.csv").text == ""

    def test_a_large_file_is_compressed_once(self, viewer, path, record):
        record(*[{"id_": f"p{number}"} for number in range(1_200)])
        reply = viewer.ask("GET", f"{path}.csv", accept_encoding="gzip")
        assert reply.headers["content-encoding"] == "gzip"
        assert len(csv_of(reply)) == 1_200
