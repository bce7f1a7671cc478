"""The pages of one app: charts, CSV exports, events, subscriptions and deliveries.

Proves: money.
"""

import base64
import csv
import io
import json
import re
import sqlite3

import pytest
from structlog.testing import capture_logs

from mauve.core.text import moment
from mauve.core.user import Role
from mauve.ingest.stats import write_stats
from mauve.metrics.registry import METRICS
from mauve.stores.deliveries import Delivery, DeliveryResult, Tally
from mauve.stores.ledger import Entry
from mauve.wiring.databases import open_ledger_writer
from mauve.wiring.paths import ledger_path
from support.billing import SECRET_A, SECRET_B, signed_a, signed_b
from support.service import bearer

DAY_MS = 86_400_000

SECRETS = {"biller_a": SECRET_A, "biller_b": SECRET_B}
SIGNED = {"biller_a": signed_a, "biller_b": signed_b}


@pytest.fixture
def app(api, load):
    return api.post("/v1/apps", json={"name": "An app"}).json()


@pytest.fixture
def own(app):
    return f"/apps/{app['app_id']}"


@pytest.fixture
def send(client, app, load, parts, clock):
    def accept(*events):
        reply = client.post("/v1/events", json=list(events), headers=bearer(app["sk_key"]))
        assert reply.status_code == 202
        load()
        parts.catalog.apps.note_first_event(app["public_id"], clock.now_ms())  # as the loader's runner does

    return accept


@pytest.fixture
def put(client, app):
    def accept(*objects):
        reply = client.post("/v1/objects", json=list(objects), headers=bearer(app["sk_key"]))
        assert reply.status_code == 202

    return accept


def payment(id_, amount, currency, **props):
    return {"name": "payment", "id": id_, "props": {"amount": amount, "currency": currency, **props}}


def subscription(id_, mrr, status="active", currency="eur"):
    return {"type": "subscription", "id": id_, "status": status, "mrr": mrr, "currency": currency}


def text_of(reply):
    assert reply.status_code == 200
    text = re.sub(r"<[^>]+>", " ", reply.text.partition("<main")[2] or reply.text)
    return re.sub(r"\s+", " ", text.replace("\N{NARROW NO-BREAK SPACE}", " ").replace("\N{NO-BREAK SPACE}", " "))


def titles_in(reply):
    return re.findall(r'<h2 id="chart-[^"]*">([^<]*)</h2>', reply.text)


def card(reply, label):
    """Return the text of the card with this label."""
    found = re.search(rf"<h2>{label}[^<]*</h2>(.*?)</section>", reply.text, re.DOTALL)[1]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", found)).replace("\N{NARROW NO-BREAK SPACE}", " ").strip()


class TestComparison:
    @pytest.mark.parametrize("is_overview", [False, True])
    def test_a_steady_app_does_not_fall_because_today_has_just_begun(self, viewer, own, send, clock, is_overview):
        """Compare three days up to today with the three days before them, without today and its counterpart."""
        for back in range(1, 6):
            at = clock.now_ms() - back * DAY_MS
            users = [{"name": name, "user": f"{back}", "at": at} for name in ("view", "user_signup")]
            send(*users, payment(f"{back}", 100, "eur") | {"at": at})
        page = viewer.open(f"{'/' if is_overview else own}?from=2027-01-13&to=2027-01-15")
        for label, shown in [("Active users", "2"), ("Signups", "2"), ("Gross revenue", "2.00 EUR")]:
            text = card(page, label).replace("\N{NO-BREAK SPACE}", " ")
            assert text.startswith(f"{shown} compared with the previous period: 0 %"), text
        assert "1.0 compared with the previous period: 0 %" in card(page, "DAU, average")
        assert "the 2 whole days before today with the same days of the previous period" in text_of(page)

    def test_today_alone_is_compared_with_nothing_but_its_mrr(self, viewer, own, send, put, clock):
        send(payment("1", 100, "eur"), payment("2", 900, "eur") | {"at": clock.now_ms() - DAY_MS})
        page = viewer.open(f"{own}?from=2027-01-15&to=2027-01-15")
        assert card(page, "Gross revenue").replace("\N{NO-BREAK SPACE}", " ") == "1.00 EUR"
        assert "relative" not in text_of(page)
        put(subscription("one", 1000) | {"at": "2026-12-01T00:00:00Z"}, subscription("two", 1000))
        clock.advance(300_000)
        page = viewer.open(f"{own}?from=2027-01-15&to=2027-01-15")
        assert "+100 %" in card(page, "MRR")
        assert "The change of MRR is relative to the end of the previous day." in text_of(page)

    @pytest.mark.parametrize("is_overview", [False, True])
    def test_the_average_dau_counts_today_only_if_there_is_no_other_day(self, viewer, own, send, clock, is_overview):
        send(*[{"name": "view", "user": name} for name in ("ann", "bo", "cy")])
        send({"name": "view", "user": "ann", "at": clock.now_ms() - DAY_MS})
        path = "/" if is_overview else own
        assert card(viewer.open(f"{path}?from=2027-01-14&to=2027-01-15"), "DAU, average").startswith("1.0")
        assert card(viewer.open(f"{path}?from=2027-01-15&to=2027-01-15"), "DAU, average") == "3.0"

    def test_a_short_period_lists_only_what_it_draws(self, viewer, own, send, clock):
        send({"name": "view", "user": "ann"})
        today = viewer.open(f"{own}?from=2027-01-15&to=2027-01-15")
        assert "today so far" in text_of(today)
        assert "this period</span>" not in today.text
        two_days = viewer.open(f"{own}?from=2027-01-14&to=2027-01-15").text
        assert two_days.count('polyline class="line dot"') == two_days.count("this period</span>") == 2

    def test_the_mrr_of_today_is_current_and_drawn_as_a_solid_line(self, viewer, own, send, put):
        send({"name": "view", "user": "ann"})
        put(subscription("one", 1000))
        page = viewer.open(f"{own}?days=7")
        chart = page.text.partition('<h2 id="chart-mrr_history-eur">')[2].partition("</section>")[0]
        assert 'class="line"' in chart
        assert "so far" not in chart
        overview = viewer.open("/?days=7")
        assert "Dotted: today so far." in text_of(overview)
        row = overview.text.partition('<td data-label="MRR">')[2].partition("</td>")[0]
        assert "<polyline" in row
        assert "unfinished" not in row
        assert "Dotted" not in text_of(viewer.open("/?from=2027-01-08&to=2027-01-14"))

    def test_periods_of_a_day_are_described_in_the_singular(self, viewer, own, send, clock):
        send(*[{"name": "view", "user": "ann", "at": clock.now_ms() - back * DAY_MS} for back in range(1, 4)])
        day = text_of(viewer.open(f"{own}?from=2027-01-14&to=2027-01-14"))
        assert "Changes are relative to the previous day." in day
        assert day.count("the previous day") == 2, "and in the legend of the chart"
        two_days = text_of(viewer.open(f"{own}?from=2027-01-14&to=2027-01-15"))
        assert "Changes compare yesterday with the first day of the previous period" in two_days
        assert "but can be up to 5 minutes behind when money has just changed." in two_days

    def test_charts_mark_today_as_unfinished_and_past_periods_have_no_mark(self, viewer, own, send):
        send({"name": "view", "user": "ann"})
        page = viewer.open(f"{own}?days=7")
        assert page.text.count('polyline class="today"') == page.text.count("today so far</span>") == 2
        assert "Fri 15 Jan 2027 so far 1" in text_of(page)
        past = viewer.open(f"{own}?from=2027-01-08&to=2027-01-14")
        assert 'class="today"' not in past.text
        assert "so far" not in text_of(past)

    @pytest.mark.parametrize("is_overview", [False, True])
    def test_a_past_period_shows_the_mrr_at_its_end(self, viewer, own, send, put, is_overview):
        send({"name": "view", "user": "ann"})
        put(subscription("one", 1000) | {"at": "2026-12-01T00:00:00Z"})
        put(subscription("two", 2000) | {"at": "2027-01-10T00:00:00Z"})
        put(subscription("three", 4000))
        path = "/" if is_overview else own

        def mrr(query):
            return card(viewer.open(f"{path}?{query}"), "MRR").replace("\N{NO-BREAK SPACE}", " ")

        assert mrr("from=2026-12-01&to=2026-12-31") == "10.00 EUR"
        assert mrr("from=2027-01-01&to=2027-01-12") == "30.00 EUR compared with the previous period: +200 %"
        assert mrr("from=2027-01-11&to=2027-01-15") == "70.00 EUR compared with the previous period: +133 %"
        assert "MRR on 31 Dec</h2>" in viewer.open(f"{path}?from=2026-12-01&to=2026-12-31").text


class TestCharts:
    def test_every_metric_has_a_chart_and_every_currency_its_own(self, viewer, own, send, put):
        send({"name": "view", "user": "ann"}, payment("1", 500, "eur"), payment("2", 7, "jpy"))
        send(payment("3", 70_000, "usd", earned=False))
        put(subscription("one", 1000))
        page = viewer.open(own)
        assert titles_in(page) == [
            "Daily active users",
            "Signups",
            "Gross revenue, EUR",
            "Gross revenue, JPY",
            "MRR, EUR",
            "Volume processed for others, USD",
        ]
        text = text_of(page)
        for expected in ("5.00 EUR", "7 JPY", "10.00 EUR", "700.00 USD", "How these numbers are calculated"):
            assert expected in text, expected

    def test_each_day_is_shown_with_the_same_day_of_the_previous_period(self, viewer, own, send, clock):
        send(payment("1", 100, "eur") | {"at": clock.now_ms() - 7 * DAY_MS}, payment("2", 250, "eur"))
        assert "Fri 15 Jan 2027 so far 2.50 EUR 1.00 EUR (8 Jan)" in text_of(viewer.open(f"{own}?days=7"))

    def test_the_legend_names_the_previous_period_only_where_it_is_drawn(self, viewer, own, send, clock):
        send(payment("1", 100, "eur"), payment("2", 250, "usd") | {"at": clock.now_ms() - 7 * DAY_MS})
        page = viewer.open(f"{own}?days=7").text
        of_eur, of_usd = page[page.index("chart-revenue-eur") :].split('aria-labelledby="chart-revenue-usd"', 1)
        assert "previous" not in of_eur
        assert "the previous 7 days" in of_usd
        assert page.count('class="past"') == page.count('polyline class="before"') == 1

    def test_before_the_first_event_the_page_explains_how_to_send_one(self, viewer, own):
        page = viewer.open(own)
        assert "Send the first event" in page.text
        assert titles_in(page) == []

    def test_the_test_environment_has_its_own_page_and_is_not_found_until_created(self, viewer, signed_in, own, send):
        send(payment("1", 500, "eur"))
        assert viewer.ask("GET", f"{own}?environment=test").status_code == 404
        signed_in(Role.ADMIN)[0].send(f"{own}/webhooks/test/biller_a", {"secret": "whsec_test_0123456789ab"})
        page = viewer.open(f"{own}?environment=test")
        assert "test environment" in page.text
        assert "EUR" not in text_of(page)
        for tab in ("", "/events", "/subscriptions"):
            assert re.search(rf'href="{own}{tab}\?[^"]*environment=test', page.text), (
                "the environment carries over from tab to tab"
            )


class TestCsvExport:
    @pytest.mark.parametrize("metric", METRICS)
    def test_an_export_contains_the_rows_of_the_api(self, client, viewer, app, own, send, put, metric):
        send({"name": "view", "user": "ann"}, {"name": "user_signup", "user": "bob"}, payment("1", 2**53 - 1, "eur"))
        send(payment("2", 3, "usd", earned=False))
        put(subscription("one", 1000))
        export = viewer.ask("GET", f"{own}/sheets/{metric}.csv?name=view")
        assert export.headers["content-type"] == "text/csv; charset=utf-8"
        assert export.headers["content-disposition"].startswith(f'attachment; filename="an-app-{metric}-20')
        read = client.get(f"/v1/metrics/{metric}", params={"name": "view"}, headers=bearer(app["sk_key"]))
        expected = [{name: str(value) for name, value in row.items()} for row in read.json()["data"]]
        assert expected
        rows = [
            {title.removesuffix("_minor_units"): value for title, value in row.items()}
            for row in csv.DictReader(io.StringIO(export.text))
        ]
        assert [row for row in rows if row in expected] == expected
        for row in rows:
            assert row in expected or list(row.values())[-1] == "0", "a day that the API leaves out"

    @pytest.mark.parametrize(
        ("metric", "titles"),
        [
            ("dau", ["day", "dau"]),
            ("event_series", ["day", "count"]),
            ("revenue", ["day", "currency", "revenue_minor_units"]),
            ("mrr_history", ["day", "currency", "mrr_minor_units"]),
        ],
    )
    def test_every_day_is_there_in_every_currency_that_occurs(self, viewer, own, send, put, clock, metric, titles):
        earlier = clock.now_ms() - 3 * DAY_MS
        send({"name": "view", "user": "ann"}, payment("1", 500, "eur") | {"at": earlier}, payment("2", 7, "jpy"))
        put(subscription("one", 1000), subscription("two", 7, currency="jpy"))
        export = viewer.ask("GET", f"{own}/sheets/{metric}.csv?name=view&days=7")
        rows = list(csv.reader(io.StringIO(export.text)))
        days = [f"2027-01-{day:02}" for day in range(9, 16)]
        assert rows[0] == titles
        if "currency" not in titles:
            assert [row[0] for row in rows[1:]] == days
        else:
            assert [tuple(row[:2]) for row in rows[1:]] == [
                (day, currency) for day in days for currency in ("eur", "jpy")
            ]
        assert rows[-1][-1] != "0"
        assert rows[1][-1] == "0"
        if metric == "revenue":
            assert ["2027-01-12", "eur", "500"] in rows
            assert ["2027-01-12", "jpy", "0"] in rows

    def test_without_any_money_there_is_only_the_header(self, viewer, own):
        assert viewer.ask("GET", f"{own}/sheets/revenue.csv").text == '"day","currency","revenue_minor_units"\r\n'

    def test_a_name_is_never_exported_as_a_formula(self, viewer, own, send):
        send({"name": '=HYPERLINK("http://evil.example")'}, {"name": "a,b\nc"})
        rows = list(csv.reader(io.StringIO(viewer.ask("GET", f"{own}/sheets/event_names.csv").text)))
        assert rows == [["name", "count"], ['\'=HYPERLINK("http://evil.example")', "1"], ["a,b\nc", "1"]]

    @pytest.mark.embedded  # refused before an engine is asked
    def test_an_unknown_metric_is_not_found_and_an_event_name_is_required(self, viewer, own):
        assert viewer.ask("GET", f"{own}/sheets/nonsense.csv").status_code == 404
        assert viewer.ask("GET", f"{own}/sheets/event_series.csv").status_code == 400
        assert viewer.ask("GET", f"{own}/sheets/event_series.csv?name={'x' * 129}").status_code == 400


class TestEvents:
    def test_names_are_listed_with_counts_and_a_selected_one_gets_a_chart(self, viewer, own, send):
        send(*[{"name": "<b>view</b>"}] * 3, {"name": "click"})
        page = viewer.open(f"{own}/events")
        assert "&lt;b&gt;view&lt;/b&gt; 3" in text_of(page)
        assert "<b>view</b>" not in page.text
        assert titles_in(page) == []
        selected = viewer.open(f"{own}/events?name=click")
        assert titles_in(selected) == ["click"]
        assert selected.text.index("chart-event_series") < selected.text.index("Accepted"), "before everything else"

    def test_the_latest_events_come_first_and_repeats_are_marked(self, viewer, own, send, clock):
        send({"name": "one", "user": "ann", "props": {"a": "<i>"}})
        clock.advance(1000)
        send({"name": "two", "id": "x"})
        clock.advance(1000)
        send({"name": "two", "id": "x"})
        fragment = viewer.open(f"{own}/events/latest")
        text = text_of(fragment)
        assert text.index("two repeat, not counted") < text.index("one ann")
        assert text.count("repeat") == 1
        assert "{&#34;a&#34;:&#34;&lt;i&gt;&#34;}" in fragment.text
        assert "<i>" not in fragment.text
        assert "data-waiting" in fragment.text, "so that the page polls again"

    @pytest.mark.embedded  # refused before an engine is asked
    @pytest.mark.parametrize("page", ["", "/events"])
    def test_a_bad_period_is_shown_on_the_page_it_came_from(self, viewer, own, send, page):
        send({"name": "view"})
        refused = viewer.ask("GET", f"{own}{page}?from=2027-01-15&to=2027-01-14&name={'x' * 300}")
        assert refused.status_code == 400
        assert 'role="alert"' in refused.text
        assert 'name="to" value="2027-01-15"' in refused.text, "the default period is shown"
        assert viewer.ask("GET", f"{own}/sheets/mau.csv?days=8").status_code == 400, "a file cannot say what is wrong"

    def test_a_late_event_is_listed_by_its_arrival_with_both_times(self, viewer, own, send, clock):
        send({"name": "on_time"})
        clock.advance(1000)
        send({"name": "late", "at": clock.now_ms() - 3 * DAY_MS})
        text = text_of(viewer.open(f"{own}/events/latest"))
        assert text.index("late") < text.index("on_time")
        assert text.count("occurred") == 1
        assert f"just now occurred {moment(clock.now_ms() - 3 * DAY_MS)}" in text

    def test_payments_are_listed_among_the_events_with_their_amount(self, viewer, own, send, clock):
        send({"name": "before"})
        clock.advance(1000)
        send(payment("a", 123450, "eur"), payment("b", 7, "jpy", earned=False))
        clock.advance(1000)
        send({"name": "after"})
        text = text_of(viewer.open(f"{own}/events/latest"))
        assert text.index("after") < text.index("payment") < text.index("before")
        assert "payment revenue none 1 234.50 EUR" in text
        assert "payment volume none 7 JPY" in text

    def test_a_batch_shows_its_events_and_its_payments(self, viewer, own, send):
        send(*[{"name": "view"}] * 30, *[payment(str(number), 1, "eur") for number in range(30)])
        text = text_of(viewer.open(f"{own}/events/latest"))
        assert (text.count("view"), text.count("payment revenue")) == (10, 10)

    def test_a_project_without_arrivals_says_so(self, viewer, own, app):
        assert "No events or payments in the last seven days." in text_of(viewer.open(f"{own}/events/latest"))

    def test_only_the_latest_events_are_shown(self, viewer, own, send):
        send(*[{"name": f"event_{number}"} for number in range(30)])
        assert viewer.open(f"{own}/events/latest").text.count("<tr") == 21


class TestSubscriptions:
    def test_each_is_listed_with_the_reason_it_counts_or_not(self, viewer, own, put):
        put(
            subscription("good", 1999), subscription("<trial>", 500, "trialing"), subscription("yen", 7, currency="jpy")
        )
        text = text_of(viewer.open(f"{own}/subscriptions"))
        for expected in ("MRR, EUR 19.99 EUR", "MRR, JPY 7 JPY", "good active 19.99 EUR counted"):
            assert expected in text, expected
        assert "&lt;trial&gt; trialing 5.00 EUR no: trialing" in text

    def test_one_from_two_sources_is_shown_as_a_warning_with_both_rows(self, viewer, own, put):
        put(subscription("sub_1", 1999), subscription("stripe:sub_2", 500), subscription("sub_3", 1))
        assert "sent twice" not in text_of(viewer.open(f"{own}/subscriptions"))
        put(subscription("stripe:sub_1", 2000), subscription("polar:sub_3", 5, "canceled"))  # Only one of them counts.
        text = text_of(viewer.open(f"{own}/subscriptions"))
        assert "sub_1 (19.99 EUR, active) and stripe:sub_1 (20.00 EUR, active)" in text
        assert "polar:sub_3 (" not in text
        assert "stripe:sub_2 (" not in text

    def test_a_long_list_is_paged_and_shows_each_subscription_once(self, viewer, own, put):
        put(*[subscription(f"sub_{number}", 1) for number in range(120)])
        seen, path = [], f"{own}/subscriptions"
        while path:
            page = viewer.open(path)
            seen += re.findall(r'class="ident" title="([^"]*)"', page.text)
            found = re.search(r'href="([^"]*after=[^"]*)">Next page', page.text)
            path = found and found[1]
        assert sorted(seen) == sorted(f"sub_{number}" for number in range(120))

    def test_long_texts_are_truncated(self, viewer, own, put):
        put(subscription("i" * 400_000, 1), subscription("empty", 1, ""), subscription("long", 1, "s" * 400_000))
        page = viewer.open(f"{own}/subscriptions")
        assert len(page.text) < 20_000
        text = text_of(page)
        assert "i" * 256 + "… active" in text
        assert "empty no status 0.01 EUR no: no status" in text
        assert "s" * 200 + "#truncated#" in text

    def test_an_invalid_cursor_or_order_is_explained_on_the_page(self, viewer, own, put):
        put(subscription("one", 1), subscription("two", 1, "trialing"))
        huge = base64.urlsafe_b64encode(json.dumps([2**70, "AAAA"]).encode()).decode()
        cursors = ("after=nonsense", "after=W10=", "after=WzEsMV0=&sort=mrr", f"after={huge}")
        for query in (*cursors, "sort=color", "sort=color&after=nonsense"):
            page = viewer.ask("GET", f"{own}/subscriptions?status=trialing&{query}")
            assert page.status_code == 400, query
            assert ("can be sorted by updated, mrr and" in page.text) is ("after" not in query), query
            assert 'title="two"' in page.text, query
            assert 'title="one"' not in page.text, query
        assert viewer.ask("GET", f"{own}/subscriptions.csv?sort=color").status_code == 400

    def test_the_list_is_sorted_filtered_and_searched(self, viewer, own, put, clock):
        put(subscription("cheap", 1), subscription("trial", 2, "trialing"))
        clock.advance(1000)
        put(subscription("dear", 9), subscription("=yen", 99, currency="jpy"))
        for query, expected in {
            "sort=mrr": ["=yen", "dear", "trial", "cheap"],
            "sort=mrr&status=active": ["=yen", "dear", "cheap"],
            "status=trialing": ["trial"],
            "named=+dear+": ["dear"],
            "named=dea": [],
        }.items():
            page = viewer.open(f"{own}/subscriptions?{query}")
            assert re.findall(r'class="ident" title="([^"]*)"', page.text) == expected, query
        assert "No subscription matches" in text_of(page)
        statuses = [row[1] for row in self.csv_of(viewer, f"{own}/subscriptions.csv?sort=status")]
        assert statuses == ["status", "active", "active", "active", "trialing"]
        named = self.csv_of(viewer, f"{own}/subscriptions.csv?named=%3Dyen")
        assert named == [
            ["id", "status", "mrr_minor_units", "currency", "counted", "customer", "plan", "updated"],
            ["'=yen", "active", "99", "jpy", "yes", "", "", "2027-01-15T08:00:01Z"],
        ]

    def csv_of(self, viewer, path):
        reply = viewer.ask("GET", path)
        assert reply.headers["content-type"] == "text/csv; charset=utf-8"
        assert reply.headers["content-disposition"].startswith('attachment; filename="an-app-subscriptions-2027-01-15')
        return list(csv.reader(io.StringIO(reply.text)))

    def test_a_status_that_is_probably_a_typo_is_pointed_out(self, viewer, own, put):
        put(subscription("one", 1, "Active"), subscription("two", 1, "cancelled"), subscription("three", 1, "gold"))
        text = text_of(viewer.open(f"{own}/subscriptions"))
        assert "one Active did you mean active?" in text
        assert "two cancelled did you mean canceled?" in text
        assert "three gold 0.01 EUR" in text

    def test_mrr_is_read_together_with_the_list(self, viewer, own, put):
        """A cached MRR would say that nothing is active above a row that counts."""
        assert "MRR 0 No active subscriptions." in text_of(viewer.open(f"{own}/subscriptions"))
        put(subscription("one", 1000))
        text = text_of(viewer.open(f"{own}/subscriptions"))
        assert "MRR, EUR 10.00 EUR" in text
        assert "one active 10.00 EUR counted" in text
        assert "1 active, EUR" in text


class TestMoney:
    def test_a_biller_names_customer_and_plan(self, viewer, own, deliver):
        item = {"price": {"id": "price_1", "nickname": "Pro <yearly>", "recurring": {"interval": "month"}}}
        held = {"id": "sub_1", "customer": "cus_1", "status": "active", "currency": "eur", "items": {"data": [item]}}
        deliver("biller_a", {"type": "customer.subscription.updated", "data": {"object": held}})
        sold = {"id": "2", "customer_id": "c-2", "status": "active", "currency": "eur", "product": {"name": "Basic"}}
        deliver("biller_b", {"type": "subscription.updated", "data": sold | {"amount": 5}})
        text = text_of(viewer.open(f"{own}/subscriptions"))
        assert "stripe:sub_1 active 0.00 EUR counted cus_1 Pro &lt;yearly&gt;" in text
        assert "polar:2 active 0.00 EUR counted c-2 Basic" in text
        found = viewer.open(f"{own}/subscriptions?named=c-2")
        assert re.findall(r'class="ident" title="([^"]*)"', found.text) == ["polar:2", "Basic"]

    @pytest.fixture
    def deliver(self, api, client, app, clock):
        """Send a signed delivery, as a biller does."""

        def send(provider, event):
            api.put(f"/v1/apps/{app['app_id']}/webhooks/{provider}", json={"secret": SECRETS[provider]})
            body = json.dumps(event).encode()
            headers = SIGNED[provider](body, SECRETS[provider], clock.now_ms() // 1000)
            headers |= {"content-type": "application/json"}
            reply = client.post(f"/v1/webhooks/{provider}/{app['public_id']}", content=body, headers=headers)
            assert reply.json() == {"ok": True, "rows": 1}

        return send

    @pytest.mark.parametrize(
        ("currency", "billed", "minor", "shown"),
        [
            ("isk", 500_000, 5000, "15 000 ISK"),
            ("ugx", 500_000, 5000, "15 000 UGX"),
            ("mga", 5000, 500_000, "15 000.00 MGA"),
            ("jpy", 5000, 5000, "15 000 JPY"),
            ("kwd", 5_000_000, 5_000_000, "15 000.000 KWD"),
            ("hrk", 500_000, 500_000, "15 000.00 HRK"),
        ],
    )
    def test_5000_is_5000_from_every_source(
        self, client, viewer, own, app, send, deliver, currency, billed, minor, shown
    ):
        send(payment("client", minor, currency))
        held = {"id": "in_1", "status": "paid", "currency": currency, "amount_paid": billed}
        deliver("biller_a", {"type": "invoice.paid", "data": {"object": held}})
        deliver("biller_b", {"type": "order.paid", "data": {"id": "1", "currency": currency, "net_amount": billed}})
        reply = client.get("/v1/metrics/revenue", headers=bearer(app["sk_key"]))
        assert [(row["currency"], row["revenue"]) for row in reply.json()["data"]] == [(currency, 3 * minor)]
        assert shown in text_of(viewer.open(own))


def test_deliveries_are_shown_with_their_warnings(viewer, own, app, settings, clock):
    project, at = app["public_id"], clock.now_ms()
    with open_ledger_writer(settings) as ledger:
        warned = Delivery(
            project, "biller_a", at, "invoice.paid", DeliveryResult.STORED, 1, ("fee_unknown", "thin_event")
        )
        taken = Delivery(project, "biller_a", at, "invoice.paid", DeliveryResult.CONFLICT, 0)
        refused = Tally(project, "biller_b", "signature_missing", 3, at)
        ledger.record([Entry(delivery=warned), Entry(delivery=taken), Entry(tallies=[refused])])
    text = text_of(viewer.open(f"{own}/webhooks"))
    for expected in (
        "invoice.paid Stripe stored 1 fee unknown payload without the object just now",
        "invoice.paid Stripe conflict 0 just now",
        "Stripe: 1 conflict",
        "Polar: 3 signature missing",
    ):
        assert expected in text, expected


@pytest.mark.parametrize(("here", "there"), [("live", "test"), ("test", "live")])
def test_deliveries_at_the_wrong_address_are_shown_with_what_to_change(
    api, viewer, signed_in, own, settings, clock, here, there
):
    signed_in(Role.ADMIN)[0].send(f"{own}/webhooks/{here}/biller_a", {"secret": "whsec_any_0123456789abc"})
    read = api.get(f"/v1{own}").json()
    project = read["test_public_id"] if here == "test" else read["public_id"]
    stray = Delivery(
        project, "biller_a", clock.now_ms(), "invoice.paid", DeliveryResult.IGNORED, 0, ("plane_mismatch",)
    )
    with open_ledger_writer(settings) as ledger:
        ledger.record([Entry(delivery=stray)])
    text = text_of(viewer.open(f"{own}/webhooks"))
    assert f"Stripe sent {there}-mode deliveries to the {here} address" in text
    assert f"give the {there}-mode endpoint the {there} address" in text
    assert f"invoice.paid Stripe ignored 0 {there} delivery at the {here} address just now" in text
    assert f"Stripe: 1 {there} delivery at the {here} address" in text


@pytest.mark.parametrize(
    "path", ["", "/sheets/mau.csv", "/events", "/events/latest", "/subscriptions", "/subscriptions.csv"]
)
def test_an_app_of_another_organization_is_not_found(owner, own, path):
    assert owner.ask("GET", own + path).status_code == 404


class TestHealth:
    @pytest.fixture
    def note(self, client, core):
        """Store the ingest statistics, as every process does every few seconds."""
        return lambda: client.portal.call(write_stats, core.ingest)

    def test_accepted_rejected_and_repeated_items_are_shown(self, client, viewer, app, own, send, load, note):
        send({"name": "view", "id": "1"}, payment("p", 5, "eur"))
        send({"name": "view", "id": "1"}, payment("p", 5, "eur"), {"name": "view", "id": "2"})
        headers = bearer(app["sk_key"])
        client.post("/v1/events", json=[{"name": ""}, {"name": "view", "at": "never"}], headers=headers)
        client.post("/v1/events", json=[{"name": "view"}, {"name": "view", "at": "never"}], headers=headers)
        client.post("/v1/events", content=b"{", headers=headers | {"content-type": "application/json"})
        client.post("/v1/objects", json=[{"type": "other"}], headers=headers)
        note()
        text = text_of(viewer.open(f"{own}/events"))
        assert "Accepted 6 items" in text
        assert "Rejected 4 items" in text
        assert "Duplicates 2 1 event, 1 payment" in text
        assert "at is not a valid time items 2" in text
        assert "name is missing, empty, too long or not a string items 1" in text
        assert "type is missing or not subscription items 1" in text
        assert "malformed whole requests 1" in text

    @pytest.mark.parametrize("first", ["pk", "sk"])
    def test_server_events_that_a_publishable_key_suppressed_are_shown(
        self, client, api, viewer, app, own, load, clock, first
    ):
        minted = {kind: api.post(f"/v1/apps/{app['app_id']}/keys", json={"kind": kind}).json() for kind in ("sk", "pk")}
        second = {"pk": "sk", "sk": "pk"}[first]
        for kind, ids in ((first, ("1", "2", "3")), (second, ("2", "3")), (second, ("2", "4")), (first, ("3", "4"))):
            events = [{"name": "view", "id": each} for each in ids]
            assert client.post("/v1/events", json=events, headers=bearer(minted[kind]["key"])).status_code == 202
            load()
            clock.advance(1)
        text = text_of(viewer.open(f"{own}/events"))
        title = "Server events not counted: a publishable key had used their ids"
        if first == "pk":
            assert title in text
            assert "use random ids such as UUIDs" in text
            assert re.search(rf"{title}.*? 3 just now", text)
        else:
            assert re.search(rf"{title}.*? 1 just now", text), "only the last one: 4 came from the page first"

    def test_moved_times_and_misspelled_statuses_are_shown_with_what_to_do(
        self, client, viewer, app, own, send, put, note, clock
    ):
        now = clock.now_ms()
        send(*[{"name": "view", "at": now - 40 * DAY_MS}] * 3, payment("p", 5, "eur") | {"at": now - 20 * DAY_MS})
        send({"name": "view", "at": now // 1000}, {"name": "view", "at": now + DAY_MS}, {"name": "view", "at": now})
        send({"name": "Sign Up", "user": "ann"})
        put(subscription("one", 1000, "Active"), subscription("two", 1000, "cancelled"), subscription("three", 1))
        note()
        text = text_of(viewer.open(f"{own}/events"))
        for expected in (
            "Moved into the 7-day window; oldest claim: 6 December 2026 They count seven days before they arrived",
            "the operator imports them with mauve import. Subscriptions keep any at. 4 just now",
            "at looks like epoch seconds: send milliseconds",
            "It does not count as a signup. Did you mean user_signup? Use exactly that name. 1 just now",
            "Moved back to five minutes after arrival Check the sender&#39;s clock",
            "A status is almost “active”, but differs in case, spaces or spelling It does not count toward MRR.",
            "Did you mean active? Use exactly that name. 1 just now",
            "Did you mean canceled? 1 just now",
        ):
            assert expected in text, expected

    def test_claims_of_more_than_a_year_ago_are_shown(self, viewer, own, send, note):
        send({"name": "view", "at": 0})
        note()
        text = text_of(viewer.open(f"{own}/events"))
        assert "oldest claim: more than 11 months ago" in text

    def test_every_reason_is_readable(self, client, core, app, viewer, own, note):
        bad = [5, {"name": "payment", "id": "p", "props": {"amount": 1, "currency": "eur", "earned": 1}}]
        bad += [{"name": "view", "props": {"a": {}}}, {"name": "view", "props": {"a": "x" * 130_000}}]
        headers = bearer(app["sk_key"]) | {"content-type": "application/json"}
        body = json.dumps(bad).removesuffix("]") + r',{"name":"\ud83d"}]'
        reply = client.post("/v1/events", content=body, headers=headers)
        assert reply.status_code == 422
        assert reply.json()["errors"][0] == {"index": 0, "reason": "an item must be a JSON object"}
        codes = {"not_an_object", "earned", "props_value", "too_large", "lone_surrogate"}
        assert core.ingest.counters.rejected == dict.fromkeys(codes, 1), "the labels that Prometheus reads"
        note()
        text = text_of(viewer.open(f"{own}/events"))
        for expected in (
            "an item is not a JSON object items 1",
            "earned is neither true nor false items 1",
            "a value in props is nested or too long items 1",
            "an item is too large items 1",
            "a string contains half a character (a lone surrogate) items 1",
        ):
            assert expected in text, expected

    def test_without_rejections_no_reasons_are_listed(self, viewer, own, send, note):
        send({"name": "view"})
        note()
        assert "check these" not in viewer.open(f"{own}/events").text
        text = text_of(viewer.open(f"{own}/events"))
        assert "Accepted 1 items" in text
        assert "Rejections by reason" not in text

    @pytest.mark.embedded  # It breaks the file's tables.
    def test_statistics_that_cannot_be_stored_are_kept_for_the_next_attempt(
        self, client, core, settings, send, note, viewer, own
    ):
        send({"name": "view"})
        ledger = sqlite3.connect(ledger_path(settings.data), isolation_level=None)
        ledger.execute("ALTER TABLE arrivals RENAME TO elsewhere")
        with capture_logs() as logs:
            note()
        assert [each["event"] for each in logs] == ["ingest_stats_not_written"]
        assert "not available right now" in text_of(viewer.open(f"{own}/events"))
        ledger.execute("ALTER TABLE elsewhere RENAME TO arrivals")
        ledger.close()
        send({"name": "view"})
        note()
        assert "Accepted 2 items" in text_of(viewer.open(f"{own}/events"))


class TestSecretCheck:
    SECRET = "whsec_" + "c2VjcmV0IG9mIHRoZSBzYW1wbGU=" * 2
    ADDRESS = "webhooks/live/biller_b/check"

    @pytest.fixture
    def saved(self, client, signed_in, own):
        owner, _ = signed_in(Role.OWNER)
        owner.send(f"{own}/webhooks/live/biller_b", {"secret": self.SECRET})

    @pytest.fixture
    def tally(self, settings, app, clock):
        def note(word, provider="biller_b", ago_ms=0):
            with open_ledger_writer(settings) as ledger:
                ledger.record([Entry(tallies=[Tally(app["public_id"], provider, word, 1, clock.now_ms() - ago_ms)])])

        return note

    def test_the_page_waits_for_the_first_delivery(self, viewer, own, saved):
        assert "Waiting for the first delivery" in text_of(viewer.open(f"{own}/webhooks"))
        assert "Waiting for the first delivery" in text_of(viewer.open(f"{own}/{self.ADDRESS}"))

    def test_a_signed_delivery_verifies_the_secret_whatever_its_result(self, viewer, own, saved, tally):
        tally("ignored")
        tally("signature_missing")
        assert "Verified" in text_of(viewer.open(f"{own}/{self.ADDRESS}"))

    def test_a_delivery_with_a_wrong_signature_is_reported(self, viewer, own, saved, tally):
        tally("signature_mismatch")
        assert "its signature is wrong" in text_of(viewer.open(f"{own}/{self.ADDRESS}"))

    def test_a_delivery_without_a_usable_signature_says_nothing_about_the_secret(self, viewer, own, saved, tally):
        for word in ("signature_missing", "signature_malformed", "timestamp_outside_window"):
            tally(word)
        assert "Waiting for the first delivery" in text_of(viewer.open(f"{own}/{self.ADDRESS}"))

    def test_deliveries_of_another_biller_or_before_the_secret_do_not_count(self, viewer, own, saved, tally):
        tally("stored", provider="biller_a")
        tally("stored", ago_ms=1000)
        assert "Waiting for the first delivery" in text_of(viewer.open(f"{own}/{self.ADDRESS}"))

    def test_without_a_secret_the_page_does_not_wait(self, viewer, own):
        assert "Waiting for the first delivery" not in text_of(viewer.open(f"{own}/webhooks"))

    @pytest.mark.embedded  # refused before an engine is asked
    @pytest.mark.parametrize("address", ["webhooks/live/biller_c/check", "webhooks/other/biller_a/check"])
    def test_unknown_billers_and_environments_are_not_found(self, viewer, own, address):
        assert viewer.ask("GET", f"{own}/{address}").status_code == 404
