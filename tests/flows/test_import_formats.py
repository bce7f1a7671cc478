"""Importing what other tools export: tables, invoices and subscriptions of Stripe, PostHog, Umami, Plausible."""

import csv
import json
import time
from datetime import UTC, datetime

import httpx2 as httpx
import pytest

from support.service import PATIENCE_S, bearer, ledger_rows, mauve, mauve_json, running, token_for

NO_CACHE = {"MAUVE_READ_CACHE_SECONDS": "0"}
DAY_S = 86_400
MIDNIGHT_S = int(time.time()) // DAY_S * DAY_S


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with running(tmp_path_factory.mktemp("formats") / "data", "--workers", "1", environment=NO_CACHE) as service:
        yield service


@pytest.fixture
def app(service):
    headers = bearer(token_for(service.data))
    return httpx.post(f"{service.url}/v1/apps", timeout=PATIENCE_S, json={"name": "An app"}, headers=headers).json()


def at(days_ago, hour=12):
    return datetime.fromtimestamp(MIDNIGHT_S - days_ago * DAY_S + hour * 3600, UTC)


def day(days_ago):
    return at(days_ago).date().isoformat()


def read(service, app, metric, **parameters):
    asked = {"date_from": day(300), "date_to": day(0), **parameters}
    reply = httpx.get(
        f"{service.url}/v1/metrics/{metric}", timeout=PATIENCE_S, params=asked, headers=bearer(app["sk_key"])
    )
    return reply.json()["data"]


def import_(service, app, format_, path, *options):
    (done,) = mauve_json(service.data, "import", "--app", app["app_id"], "--format", format_, str(path), *options)
    return done


def write_csv(path, *rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return path


def names(service, app):
    return {row["name"]: row["count"] for row in read(service, app, "event_names")}


class TestTables:
    @pytest.mark.parametrize(
        ("times", "written"),
        [
            ("iso", lambda moment: moment.isoformat()),
            ("utc", lambda moment: moment.strftime("%Y-%m-%d %H:%M:%S")),
            ("s", lambda moment: str(int(moment.timestamp()))),
            ("ms", lambda moment: str(int(moment.timestamp() * 1000))),
        ],
        ids=lambda each: each if isinstance(each, str) else "",
    )
    def test_columns_are_mapped_and_times_are_read_as_stated(self, service, app, tmp_path, times, written):
        rows = [(f"u{n % 3}", "Viewed, twice", written(at(40 + n)), "pro") for n in range(6)]
        path = write_csv(tmp_path / "table.csv", ("who", "what", "when", "plan"), *rows)
        columns = "name=what,user=who,at=when,props.plan=plan"
        done = import_(service, app, "csv", path, "--map", columns, "--times", times, "--rename", "Viewed, twice=view")
        assert (done["counts"]["events"], done["first_day"], done["last_day"]) == (6, day(45), day(40))
        assert names(service, app) == {"view": 6}
        assert read(service, app, "mau") == [{"mau": 3}]
        assert [row["day"] for row in read(service, app, "event_series", name="view")] == [
            day(n) for n in range(45, 39, -1)
        ]

    def test_a_table_of_payments(self, service, app, tmp_path):
        rows = [("a", at(70).isoformat(), "1999", "eur", "true"), ("b", at(70).isoformat(), "5", "eur", "false")]
        path = write_csv(tmp_path / "money.csv", ("no", "when", "cents", "currency", "ours"), *rows)
        columns = "name==payment,id=no,at=when,props.amount=cents,props.currency=currency,props.earned=ours"
        done = import_(service, app, "csv", path, "--map", columns)
        assert done["counts"]["payments"] == 2
        assert read(service, app, "revenue") == [{"day": day(70), "currency": "eur", "revenue": 1999}]
        assert read(service, app, "volume") == [{"day": day(70), "currency": "eur", "volume": 5}]
        sources = ledger_rows(
            service.data, f"SELECT DISTINCT source FROM payments WHERE project = '{app['public_id']}'"
        )
        assert sources == [(done["import"],)], "where a payment came from is kept"

    def test_what_is_missing_is_said(self, service, app, tmp_path):
        path = write_csv(tmp_path / "table.csv", ("what", "when"), ("view", "yesterday"))
        for options, expected in {
            ("--map", "name=what"): "lacks at",
            ("--map", "name=what,at=then"): "no column 'then'",
            ("--map", "name=what,at=when"): "row 1: the time cannot be read",
            ("--map", "name=what,at=when,colour=what"): "does not support 'colour'",
            ("--map", "name"): "pairs such as",
        }.items():
            done = mauve(service.data, "import", "--app", app["app_id"], "--format", "csv", str(path), *options)
            assert (done.returncode, expected in done.stderr) == (2, True), (options, done.stderr)


def an_invoice(number, days_ago, amount, **more):
    paid = int(at(days_ago).timestamp())
    return {
        "object": "invoice",
        "id": f"in_{number}",
        "status": "paid",
        "currency": "eur",
        "amount_paid": amount,
        "customer": "cus_1",
        "created": paid - 3600,
        "livemode": True,
        "status_transitions": {"paid_at": paid},
        **more,
    }


def a_subscription(number, days_ago, amount, **more):
    price = {"unit_amount": amount, "currency": "eur", "recurring": {"interval": "month", "interval_count": 1}}
    return {
        "object": "subscription",
        "id": f"sub_{number}",
        "status": "active",
        "currency": "eur",
        "customer": f"cus_{number}",
        "created": int(at(days_ago).timestamp()),
        "livemode": True,
        "items": {"data": [{"quantity": 1, "price": price}]},
        **more,
    }


class TestStripe:
    def test_paid_invoices_become_payments_on_the_day_they_were_paid(self, service, app, tmp_path):
        invoices = [an_invoice(1, 200, 1000), an_invoice(2, 100, 500), an_invoice(3, 90, 700, status="open")]
        path = tmp_path / "invoices.json"
        path.write_text(json.dumps({"object": "list", "has_more": False, "data": invoices}, indent=2))
        done = import_(service, app, "stripe", path)
        assert (done["counts"]["payments"], done["counts"]["skipped"], done["is_approximate"]) == (2, 1, False)
        assert read(service, app, "revenue") == [
            {"day": day(200), "currency": "eur", "revenue": 1000},
            {"day": day(100), "currency": "eur", "revenue": 500},
        ]
        again = tmp_path / "more.jsonl"
        again.write_text("".join(json.dumps(each) + "\n" for each in [*invoices, an_invoice(4, 2, 1)]))
        counts = import_(service, app, "stripe", again)["counts"]
        assert (counts["payments"], counts["payments_known"]) == (1, 2), "one that is known is not counted twice"

    def test_the_history_of_mrr_is_reconstructed_marked_and_undone(self, service, app, tmp_path):
        ended = {"status": "canceled", "ended_at": int(at(50).timestamp())}
        trial = {"trial_end": int(at(80).timestamp())}
        found = [a_subscription(1, 100, 1000), a_subscription(2, 100, 300, **ended), a_subscription(3, 90, 50, **trial)]
        path = tmp_path / "subscriptions.jsonl"
        path.write_text("".join(json.dumps(each) + "\n" for each in found))
        before = read(service, app, "mrr_history")
        done = import_(service, app, "stripe", path)
        assert (done["is_approximate"], done["counts"]["subscriptions"]) == (True, 5)
        mrr = {row["day"]: row["mrr"] for row in read(service, app, "mrr_history")}
        levels = [mrr[day(n)] for n in (100, 81, 80, 51, 50, 1)]
        assert levels == [1300, 1300, 1350, 1350, 1050, 1050]
        assert read(service, app, "mrr") == [{"currency": "eur", "mrr": 1050}]
        sent = {"type": "subscription", "id": "stripe:sub_1", "status": "active", "mrr": 2000, "currency": "eur"}
        headers = bearer(app["sk_key"])
        assert (
            httpx.post(f"{service.url}/v1/objects", timeout=PATIENCE_S, json=sent, headers=headers).status_code == 202
        )
        assert read(service, app, "mrr") == [{"currency": "eur", "mrr": 2050}]
        mauve_json(service.data, "import", "undo", "--yes", done["import"])
        assert read(service, app, "mrr") == [{"currency": "eur", "mrr": 2000}], "what was sent later stays"
        history = read(service, app, "mrr_history")
        assert [row for row in history if row["day"] < day(0)] == [row for row in before if row["day"] < day(0)]

    def test_data_of_the_other_mode_is_refused(self, service, app, tmp_path):
        path = tmp_path / "test.jsonl"
        path.write_text(json.dumps(an_invoice(9, 9, 9, livemode=False)))
        done = mauve(service.data, "import", "--app", app["app_id"], "--format", "stripe", str(path))
        assert (done.returncode, "--test" in done.stderr) == (2, True)


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_events_of_posthog_keep_their_ids_people_and_simple_properties(service, app, tmp_path, form):
    events = [
        {
            "uuid": f"0-{n}",
            "event": "$pageview" if n % 2 else "sign up",
            "distinct_id": f"person {n % 3}",
            "timestamp": at(30 + n).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "properties": {"$browser": "Firefox", "plan": "pro", "$set": {"nested": 1}},
        }
        for n in range(8)
    ]
    path = tmp_path / f"posthog.{form}"
    if form == "jsonl":
        path.write_text("".join(json.dumps(event) + "\n" for event in events))
    else:
        rows = [[json.dumps(v) if isinstance(v, dict) else v for v in event.values()] for event in events]
        write_csv(path, list(events[0]), *rows)
    done = import_(service, app, "posthog", path, "--rename", "sign up=user_signup")
    assert done["counts"]["events"] == 8
    assert names(service, app) == {"$pageview": 4, "user_signup": 4}
    assert read(service, app, "signups") == [{"signups": 3}]


def test_rows_of_umami_become_page_views_and_events(service, app, tmp_path):
    header = ("event_id", "session_id", "created_at", "url_path", "referrer_domain", "page_title", "event_name")
    rows = [
        (f"e{n}", f"s{n % 4}", f"{day(20)} 10:0{n}:00", "/docs", "", "Docs", "click" if n == 5 else "")
        for n in range(6)
    ]
    done = import_(service, app, "umami", write_csv(tmp_path / "website_event.csv", header, *rows))
    assert (done["counts"]["events"], done["format"]) == (6, "umami")
    assert names(service, app) == {"pageview": 5, "click": 1}
    assert read(service, app, "dau") == [{"day": day(20), "dau": 4}]


def test_figures_of_plausible_are_kept_and_enter_no_count(service, app, tmp_path):
    path = write_csv(
        tmp_path / "imported_visitors.csv", ("date", "visitors", "pageviews"), (day(9), 120, 500), (day(8), 80, 90)
    )
    done = import_(service, app, "plausible", path)
    assert done["counts"]["figures"] == 4
    assert read(service, app, "mau") == [{"mau": 0}]
    project = app["public_id"]
    figures = f"SELECT day, name, value FROM imported_figures WHERE project = '{project}' ORDER BY day, name DESC"
    assert ledger_rows(service.data, figures) == [
        (day(9), "visitors", 120),
        (day(9), "pageviews", 500),
        (day(8), "visitors", 80),
        (day(8), "pageviews", 90),
    ]
    mauve_json(service.data, "import", "undo", "--yes", done["import"])
    assert ledger_rows(service.data, figures) == []
