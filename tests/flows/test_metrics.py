"""Every metric from ingest to read: both credentials, both environments, the cache and the throttles.

Proves: lag, large-reads.
"""

import tracemalloc
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from mauve.control import apps, operator, webhook_secrets
from mauve.core.app import Environment
from mauve.core.biller import Provider
from mauve.core.credential import KeyKind, Scope
from mauve.core.secret import Secret
from mauve.metrics.registry import METRICS, NAMES_MAX
from support.service import bearer

TODAY, YESTERDAY, FIRST_DAY = "2027-01-15", "2027-01-14", "2026-12-17"
UNKNOWN_PARAMETERS = "ignored unknown query parameters"
MINUTE_MS, DAY_MS = 60_000, 86_400_000


@pytest.fixture
def app(api, load):
    return api.post("/v1/apps", json={"name": "An app"}).json()


@pytest.fixture
def key(app):
    return app["sk_key"]


@pytest.fixture
def read(client):
    def get(metric, credential, **parameters):
        return client.get(f"/v1/metrics/{metric}", params=parameters, headers=bearer(credential))

    return get


@pytest.fixture
def rows(read, key):
    def data(metric, credential=key, **parameters):
        reply = read(metric, credential, **parameters)
        assert reply.status_code == 200, reply.text
        return reply.json()["data"]

    return data


def send(client, key, *events):
    assert client.post("/v1/events", json=list(events), headers=bearer(key)).status_code == 202


def put(client, key, *objects):
    assert client.post("/v1/objects", json=list(objects), headers=bearer(key)).status_code == 202


def payment(id_, amount, currency="eur", **props):
    return {"name": "payment", "id": id_, "props": {"amount": amount, "currency": currency, **props}}


def subscription(id_, mrr, at, status="active", currency="eur"):
    return {"type": "subscription", "id": id_, "status": status, "mrr": mrr, "currency": currency, "at": at}


def ago(clock, days):
    return (datetime.fromtimestamp(clock.now_ms() / 1000, UTC) - timedelta(days=days)).isoformat()


@pytest.fixture
def lively(client, clock, key, load):
    """Two days in the life of an app."""
    yesterday = {"at": ago(clock, 1)}
    send(
        client,
        key,
        {"name": "user_signup", "user": "ann", **yesterday},
        {"name": "user_signup", "user": "bob"},
        {"name": "user_signup", "user": "bob"},
        {"name": "view", "user": "ann", **yesterday},
        {"name": "view", "user": "ann"},
        {"name": "view", "user": "eve", "id": "x"},
        {"name": "view", "user": "mallory", "id": "x"},  # a repeat: counts nowhere
        {"name": "click"},  # without a user: counts as an event only
    )
    send(
        client,
        key,
        payment("1", 1999) | yesterday,
        payment("2", 2**53 - 1),
        payment("3", 2**53 - 1),
        payment("4", 500, "usd"),
        payment("5", 70_000, earned=False),
        payment("2", 2**53 - 1),  # a repeat: moves nothing
    )
    put(
        client,
        key,
        subscription("one", 1000, ago(clock, 3)),
        subscription("one", 2000, ago(clock, 1)),
        subscription("two", 500, ago(clock, 2), currency="USD"),
        subscription("two", 500, ago(clock, 1), status="canceled", currency="usd"),
        subscription("three", 0, ago(clock, 1), currency="gbp"),
    )
    load()


EXPECTED = {
    "mau": [{"mau": 3}],
    "dau": [{"day": YESTERDAY, "dau": 1}, {"day": TODAY, "dau": 2}],
    "signups": [{"signups": 2}],
    "signups_daily": [{"day": YESTERDAY, "signups": 1}, {"day": TODAY, "signups": 1}],
    "revenue": [
        {"day": YESTERDAY, "currency": "eur", "revenue": 1999},
        {"day": TODAY, "currency": "eur", "revenue": 2 * (2**53 - 1)},
        {"day": TODAY, "currency": "usd", "revenue": 500},
    ],
    "mrr": [{"currency": "eur", "mrr": 2000}, {"currency": "gbp", "mrr": 0}],
    "mrr_history": [
        {"day": "2027-01-12", "currency": "eur", "mrr": 1000},
        {"day": "2027-01-13", "currency": "eur", "mrr": 1000},
        {"day": "2027-01-13", "currency": "usd", "mrr": 500},
        {"day": YESTERDAY, "currency": "eur", "mrr": 2000},
        {"day": YESTERDAY, "currency": "gbp", "mrr": 0},
        {"day": TODAY, "currency": "eur", "mrr": 2000},
        {"day": TODAY, "currency": "gbp", "mrr": 0},
    ],
    "volume": [{"day": TODAY, "currency": "eur", "volume": 70_000}],
    "event_names": [{"name": "user_signup", "count": 3}, {"name": "view", "count": 3}, {"name": "click", "count": 1}],
    "event_count": [{"name": "view", "count": 3}],
    "event_series": [{"day": YESTERDAY, "count": 1}, {"day": TODAY, "count": 2}],
}
NOTHING = {
    "mau": [{"mau": 0}],
    "signups": [{"signups": 0}],
    "event_count": [{"name": "view", "count": 0}],
}


@pytest.mark.parametrize("metric", METRICS)
def test_a_metric_is_what_was_sent_for_both_credentials(read, lively, app, key, token, metric):
    dates = {"date_from": TODAY if metric == "mrr" else FIRST_DAY, "date_to": TODAY}
    expected = {"ok": True, "metric": metric, "project": app["public_id"], **dates, "data": EXPECTED[metric]}
    by_key = read(metric, key, name="view")
    assert (by_key.status_code, by_key.json(), by_key.headers["x-cache"]) == (200, expected, "miss")
    by_token = read(metric, token, name="view", project=app["public_id"])
    assert (by_token.content, by_token.headers["x-cache"]) == (by_key.content, "hit")
    assert by_key.headers["content-type"] == "application/json"
    assert "x-cache-age" not in by_key.headers


@pytest.mark.parametrize("metric", METRICS)
def test_an_app_without_data_has_rows_only_where_one_is_promised(rows, metric):
    assert rows(metric, name="view") == NOTHING.get(metric, [])


@pytest.mark.parametrize("metric", [name for name in METRICS if name != "mrr"])
def test_the_widest_window_returns_only_what_was_sent(rows, lively, metric):
    assert rows(metric, name="view", date_from="0001-01-01", date_to="9999-12-31") == EXPECTED[metric]


def test_a_window_limits_the_rows(rows, lively):
    yesterday = {"date_from": YESTERDAY, "date_to": YESTERDAY}
    assert rows("mau", **yesterday) == [{"mau": 1}]
    assert rows("revenue", **yesterday) == EXPECTED["revenue"][:1]
    assert rows("event_series", name="view", **yesterday) == EXPECTED["event_series"][:1]
    assert rows("mrr_history", **yesterday) == EXPECTED["mrr_history"][3:5]
    assert rows("mrr_history", date_from="2027-02-01", date_to="2027-02-02") == []


def test_payments_are_not_events(rows, lively):
    assert rows("event_count", name="payment") == [{"name": "payment", "count": 0}]


def test_the_test_environment_is_separate(client, read, rows, parts, app, key, token, load, lively):
    found = operator.find_app(parts, app["app_id"])
    test_id = webhook_secrets.save_secret(parts, found, Environment.TEST, Provider.BILLER_A, Secret("s"))
    found = operator.find_app(parts, app["app_id"])
    _, test_key = apps.mint_key(parts, found, KeyKind.SERVER, Environment.TEST)
    send(client, test_key.reveal(), {"name": "view", "user": "tester"}, payment("1", 7))
    load()
    reply = read("mau", test_key.reveal(), project=app["public_id"])
    assert (reply.json()["project"], reply.json()["data"]) == (test_id, [{"mau": 1}])
    assert rows("revenue", test_key.reveal()) == [{"day": TODAY, "currency": "eur", "revenue": 7}]
    assert rows("mau") == EXPECTED["mau"]
    live_token = read("mau", token, project=test_id)
    assert (live_token.status_code, live_token.json()["error"]) == (404, "unknown project")


class TestRefusals:
    def test_every_unknown_credential_gets_the_same_401(self, client, api, app, organization, parts, keyring):
        token_id, revoked = operator.mint_token(parts, organization.org_id, "gone", Scope)
        operator.revoke_token(parts, token_id)
        keyring.refresh()
        client.headers.pop("authorization")
        seen = {
            (reply.status_code, reply.content, reply.headers["www-authenticate"])
            for reply in [
                client.get("/v1/metrics/mau"),
                client.get("/v1/metrics/no_such_metric"),
                client.get("/v1/metrics/mau", headers=bearer(revoked.reveal())),
                client.get("/v1/metrics/mau", headers=bearer(revoked.reveal().replace("live", "test"))),
                client.get("/v1/metrics/mau", headers=bearer("sk_live_" + "x" * 40)),
                client.get("/v1/metrics/mau", headers={"authorization": app["sk_key"]}),
            ]
        }
        assert seen == {(401, b'{"ok":false,"error":"unauthorized"}', 'Bearer realm="service"')}

    def test_a_revoked_key_cannot_read(self, api, app, read, key, keyring):
        assert read("mau", key).status_code == 200
        (listed,) = api.get(f"/v1/apps/{app['app_id']}/keys").json()
        api.delete(f"/v1/apps/{app['app_id']}/keys/{listed['key_id']}")
        keyring.refresh()
        assert read("mau", key).status_code == 401

    def test_a_publishable_key_cannot_read(self, api, app, read):
        minted = api.post(f"/v1/apps/{app['app_id']}/keys", json={"kind": "pk"}).json()["key"]
        reply = read("no_such_metric", minted)
        assert (reply.status_code, reply.json()["ok"]) == (403, False)

    def test_a_token_needs_the_scope(self, parts, organization, app, read):
        others = [scope for scope in Scope if scope is not Scope.METRICS_READ]
        _, token = operator.mint_token(parts, organization.org_id, "no reads", others)
        reply = read("no_such_metric", token.reveal())
        assert (reply.status_code, reply.json()["code"]) == (403, "insufficient_scope")

    def test_the_scope_alone_is_enough(self, parts, organization, app, read):
        _, token = operator.mint_token(parts, organization.org_id, "reads", [Scope.METRICS_READ])
        assert read("mau", token.reveal(), project=app["public_id"]).status_code == 200

    def test_an_unknown_metric_is_404_before_the_parameters_are_checked(self, read, token, key):
        for credential in (token, key):
            reply = read("retention", credential, date_from="garbage")
            assert (reply.status_code, reply.json()["ok"]) == (404, False)
            assert "unknown metric" in reply.json()["error"]

    @pytest.mark.embedded  # refused before an engine is asked
    @pytest.mark.parametrize("parameters", [{}, {"project": ""}, {"project": ["a", "a"]}])
    def test_a_token_names_one_project(self, read, token, parameters):
        reply = read("mau", token, **parameters, date_from="garbage")
        assert reply.status_code == 400
        assert "project" in reply.json()["error"]

    def test_every_project_a_token_cannot_see_gets_the_same_404(self, api, parts, app, read, token):
        other = operator.create_organization(parts, "Other")
        _, foreign = operator.mint_token(parts, other.org_id, "t", Scope)
        theirs = api.post("/v1/apps", json={"name": "Theirs"}, headers=bearer(foreign.reveal())).json()
        wanted = [theirs["public_id"], "proj_" + "0" * 20, "proj_x", "%00", app["app_id"], " " + app["public_id"]]
        replies = [read("mau", token, project=each, date_from="garbage") for each in wanted]
        assert {(reply.status_code, reply.content) for reply in replies} == {
            (404, b'{"ok":false,"error":"unknown project"}')
        }
        assert read("mau", foreign.reveal(), project=theirs["public_id"]).status_code == 200

    @pytest.mark.embedded  # refused before an engine is asked
    def test_dates_are_checked_before_the_name(self, read, key):
        assert "date_from" in read("event_count", key, date_from="garbage").json()["error"]
        reply = read("event_count", key)
        assert (reply.status_code, "name" in reply.json()["error"]) == (400, True)
        assert read("mau", key, date_from="2027-01-15", date_to="2027-01-14").status_code == 400
        assert read("mau", key, date_to="2026-01-01").status_code == 400

    def test_a_key_ignores_the_project(self, read, app, key):
        reply = read("mau", key, project="proj_of_another_organization")
        assert (reply.status_code, reply.json()["project"]) == (200, app["public_id"])

    def test_unknown_parameters_are_accepted_and_named(self, read, key, token, app):
        for name, shown in (("from", "from"), ("a\r\nb: c", "a%0D%0Ab%3A%20c"), ("ä" * 99, "%C3%A4" * 6 + "...")):
            reply = read("mau", key, **{name: "sk_live_secret"})
            assert (reply.status_code, reply.headers["x-service-hint"]) == (200, f"{UNKNOWN_PARAMETERS}: {shown}")
        reply = read("mau", key, **{f"p{number}": "" for number in range(7)}, name="", project="", date_to="")
        assert reply.headers["x-service-hint"] == f"{UNKNOWN_PARAMETERS}: p0, p1, p2, p3, p4 and 2 more"
        assert key not in read("mau", key, **{key: "1", "x" + key: "2"}).headers["x-service-hint"]
        refused = read("mau", token, projet=app["public_id"])
        assert (refused.status_code, refused.headers["x-service-hint"]) == (400, f"{UNKNOWN_PARAMETERS}: projet")
        assert "x-service-hint" not in read("mau", "sk_live_unknown", projet="x").headers
        assert "x-service-hint" not in read("mau", key, name="view").headers

    @pytest.mark.embedded  # refused before an engine is asked
    @pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
    def test_metrics_accept_only_get_and_head(self, client, app, key, method):
        reply = client.request(method, "/v1/metrics/mau", headers=bearer(key))
        assert (reply.status_code, reply.headers["allow"]) == (405, "GET, HEAD")

    @pytest.mark.embedded  # refused before an engine is asked
    @pytest.mark.parametrize("path", ["/v1/metrics", "/v1/metrics/", "/v1/metrics/mau/", "/v1/metrics/mau/x"])
    def test_paths_above_and_below_a_metric_are_404(self, client, key, path):
        reply = client.get(path, headers=bearer(key))
        assert (reply.status_code, reply.json()["ok"]) == (404, False)

    def test_a_suspended_organization_can_still_read(self, parts, organization, keyring, rows, lively):
        operator.suspend(parts, organization.org_id)
        keyring.refresh()
        assert rows("mau") == EXPECTED["mau"]


class TestTheCache:
    def test_an_answer_is_cached_for_five_minutes(self, client, read, clock, key, load):
        def seen():
            reply = read("event_count", key, name="view")
            return reply.json()["data"][0]["count"], reply.headers["x-cache"]

        assert seen() == (0, "miss")
        send(client, key, {"name": "view"})
        load()
        clock.advance(5 * MINUTE_MS - 1)
        assert seen() == (0, "hit")
        clock.advance(1)
        assert seen() == (1, "miss")
        assert seen() == (1, "hit")

    def test_every_question_has_its_own_answer(self, read, lively, key):
        assert [read("event_count", key, name=name).headers["x-cache"] for name in ("view", "click", "view")] == [
            "miss",
            "miss",
            "hit",
        ]
        window = {"date_from": FIRST_DAY, "date_to": TODAY}
        assert read("event_count", key, name="view", **window).headers["x-cache"] == "hit", "it is the default window"
        assert read("dau", key).headers["x-cache"] == "miss"
        assert read("dau", key, name="x").headers["x-cache"] == "hit", "it has no name"

    def test_the_default_window_moves_at_midnight(self, read, clock, key):
        clock.advance(16 * 60 * MINUTE_MS - 1)
        assert read("mau", key).json()["date_to"] == TODAY
        clock.advance(1)
        reply = read("mau", key)
        assert (reply.json()["date_to"], reply.headers["x-cache"]) == ("2027-01-16", "miss")


class TestThrottles:
    @pytest.fixture
    def limits(self, parts, organization, keyring):
        def change(**limits):
            operator.change_limits(parts, organization.org_id, limits)
            keyring.refresh()

        return change

    def test_a_hit_is_free_and_every_other_read_counts(self, read, app, key, token, limits, clock):
        limits(reads_per_minute=2)
        assert [read("mau", key).status_code for _ in range(5)] == [200] * 5
        assert read("dau", token, project=app["public_id"]).status_code == 200
        clock.advance(10_000)
        refused = read("signups", key)
        assert (refused.status_code, refused.headers["x-service-throttle"]) == (429, "rate_limit")
        assert refused.headers["retry-after"] == "50"
        assert read("dau", key).headers["x-cache"] == "hit"

    def test_tokens_spend_the_allowance_and_keys_do_not(self, read, app, key, token, limits):
        limits(agent_queries=1)
        project = {"project": app["public_id"]}
        assert read("mau", token, **project).status_code == 200
        refused = read("dau", token, **project)
        assert (refused.status_code, refused.headers["x-service-throttle"]) == (429, "allowance:queries")
        assert refused.headers["x-service-reset"] == refused.json()["reset_at"] == "2027-02-01T00:00:00Z"
        assert "retry-after" not in refused.headers
        assert read("dau", key).status_code == 200
        assert read("dau", token, **project).headers["x-cache"] == "hit"

    def test_raw_scans_have_their_own_allowance(self, read, app, token, limits):
        limits(raw_scans=1)
        project = {"project": app["public_id"]}
        assert read("event_names", token, **project).status_code == 200
        refused = read("event_count", token, name="view", **project)
        assert (refused.status_code, refused.json()["scope"]) == (429, "raw_scans")
        assert read("mau", token, **project).status_code == 200

    def test_a_refused_question_costs_nothing(self, read, key, limits):
        limits(reads_per_minute=1)
        assert read("event_count", key).status_code == 400
        assert read("mau", key).status_code == 200


class TestWithoutACache:
    @pytest.fixture
    def settings(self, settings):
        return replace(settings, read_cache_s=0)

    def test_every_read_is_new_and_counts(self, client, read, key, load, parts, organization, keyring):
        operator.change_limits(parts, organization.org_id, {"reads_per_minute": 2})
        keyring.refresh()
        first = read("event_count", key, name="view")
        send(client, key, {"name": "view"})
        load()
        second = read("event_count", key, name="view")
        assert [first.headers["x-cache"], second.headers["x-cache"]] == ["uncached"] * 2
        assert [reply.json()["data"][0]["count"] for reply in (first, second)] == [0, 1]
        assert read("event_count", key, name="view").status_code == 429


class TestVeryManyNames:
    """Clients choose event names, and so their number."""

    @pytest.fixture
    def name(self, client, key, load):
        def names(first, end):
            for start in range(first, end, 500):
                send(client, key, *({"name": f"event {number}"} for number in range(start, min(end, start + 500))))
            load()

        return names

    @pytest.mark.embedded  # It breaks the file's tables.
    def test_a_truncated_answer_says_so_cached_or_not(self, read, key, name, clock, connection):
        name(0, NAMES_MAX)
        whole = read("event_names", key)
        assert len(whole.json()["data"]) == NAMES_MAX
        assert "x-service-truncated" not in whole.headers

        name(NAMES_MAX, NAMES_MAX + 1)
        clock.advance(300_000)
        cut = read("event_names", key)
        assert (cut.headers["x-cache"], cut.headers["x-service-truncated"]) == ("miss", str(NAMES_MAX))
        assert len(cut.json()["data"]) == NAMES_MAX
        hit = read("event_names", key)
        assert (hit.headers["x-cache"], hit.headers["x-service-truncated"]) == ("hit", str(NAMES_MAX))
        assert hit.content == cut.content

        clock.advance(300_000)
        connection.run("RENAME TABLE mauve.events TO mauve.elsewhere")
        stale = read("event_names", key)
        connection.run("RENAME TABLE mauve.elsewhere TO mauve.events")
        assert (stale.headers["x-cache"], stale.headers["x-service-truncated"]) == ("stale", str(NAMES_MAX))
        assert stale.content == cut.content

    def test_an_unlisted_name_can_still_be_counted(self, rows, name):
        name(0, NAMES_MAX + 5)
        listed = {row["name"] for row in rows("event_names")}
        (left_out, *_) = {f"event {number}" for number in range(NAMES_MAX + 5)} - listed
        assert rows("event_count", name=left_out) == [{"name": left_out, "count": 1}]


def test_an_oversized_answer_is_refused_before_it_is_built(client, read, key):
    currencies = ("eur", "usd", "gbp", "jpy", "chf")
    for number, currency in enumerate(currencies):
        subscription = {"type": "subscription", "id": str(number), "status": "active", "mrr": 1, "currency": currency}
        put(client, key, {**subscription, "at": "0001-01-01T00:00:00Z"})
    tracemalloc.start()
    try:
        refused = read("mrr_history", key, date_from="0001-01-01")
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (refused.status_code, refused.json()["ok"]) == (400, False)
    assert "fewer days" in refused.json()["error"]
    assert peak_bytes < 64 * 1024 * 1024
    assert len(read("mrr_history", key).json()["data"]) == 30 * len(currencies)


class TestWhileLoadingIsBehind:
    @pytest.fixture
    def behind(self, core):
        core.is_loading_behind = True
        return core

    def test_an_answer_is_not_kept_and_a_later_one_is_exact_and_cached(self, client, read, key, load, clock, behind):
        send(client, key, {"name": "view", "user": "ann"})
        early = read("mau", key)
        assert (early.json()["data"], early.headers["x-cache"]) == ([{"mau": 0}], "uncached")
        load()
        behind.is_loading_behind = False
        clock.advance(2_000)  # the flush interval
        later = read("mau", key)
        assert (later.json()["data"], later.headers["x-cache"]) == ([{"mau": 1}], "miss")
        assert read("mau", key).headers["x-cache"] == "hit"

    def test_a_question_is_read_once_in_a_flush_interval(self, client, read, key, load, clock, behind):
        assert read("mau", key).json()["data"] == [{"mau": 0}]
        send(client, key, {"name": "view", "user": "ann"})
        load()
        soon = read("mau", key)
        assert (soon.json()["data"], soon.headers["x-cache"]) == ([{"mau": 0}], "uncached")
        clock.advance(2_000)
        assert read("mau", key).json()["data"] == [{"mau": 1}]

    def test_reads_still_count_against_the_ceiling(self, parts, organization, keyring, read, key, behind):
        operator.change_limits(parts, organization.org_id, {"reads_per_minute": 1})
        keyring.refresh()
        assert [read("mau", key).status_code for _ in range(2)] == [200, 429]

    def test_money_needs_no_loading_and_is_cached(self, read, key, behind):
        for metric in ("revenue", "volume", "mrr", "mrr_history"):
            assert [read(metric, key).headers["x-cache"] for _ in range(2)] == ["miss", "hit"], metric

    def test_an_answer_cached_before_stays_a_hit(self, read, key, core):
        assert read("mau", key).headers["x-cache"] == "miss"
        core.is_loading_behind = True
        assert read("mau", key).headers["x-cache"] == "hit"
