"""What `/mcp` refuses, and the bounds of one call: no client can hold the service, or spend without being asked."""

import asyncio
import json
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from subprocess import run
from threading import Event, Semaphore

import pytest

from mauve.agents import plane
from mauve.agents.arguments import APPS_MAX
from mauve.control import operator
from mauve.core.credential import Scope
from mauve.query.answer_cache import Freshness
from mauve.web.messages import Reply
from support.service import PATIENCE_S, bearer

ACCEPT = {"accept": "application/json, text/event-stream"}


@pytest.fixture
def not_installed(monkeypatch):
    monkeypatch.delitem(sys.modules, "mauve.agents.server", raising=False)
    monkeypatch.setitem(sys.modules, "mcp", None)


@pytest.fixture
def one_call_at_once(monkeypatch):
    monkeypatch.setattr(plane, "IN_FLIGHT_MAX", 1)


@pytest.fixture
def ten_reads_at_once(monkeypatch):
    monkeypatch.setattr(plane, "READS_BURST", 10.0)


@pytest.fixture
def post(api):
    def send(method="tools/list", headers=None, **params):
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return api.post("/mcp", json=message, headers={**ACCEPT, **(headers or {})})

    return send


@pytest.fixture
def call(post):
    """Call a tool; return its answer, and whether it is an error."""

    def answer(tool, **arguments):
        reply = post("tools/call", name=tool, arguments=arguments)
        assert reply.status_code == 200, reply.text
        result = reply.json()["result"]
        return json.loads(result["content"][0]["text"]), result["isError"]

    return answer


@pytest.fixture
def used(api):
    return lambda: api.get("/mcp/allowance").json()["queries"]["used"]


def create_apps(api, count):
    """Create apps; return the projects of all, in the order in which they are listed."""
    for number in range(count):
        assert api.post("/v1/apps", json={"name": f"App {number}"}).status_code == 201
    return [app["public_id"] for app in api.get("/v1/apps").json()]


class TestRefusals:
    @pytest.mark.parametrize("path", ["/mcp", "/mcp/allowance"])
    def test_only_a_live_control_token_gets_in_and_every_other_credential_gets_the_same_answer(self, api, path, token):
        key = api.post("/v1/apps", json={"name": "An app"}).json()["sk_key"]
        method = "POST" if path == "/mcp" else "GET"
        wrong = token[:-1] + ("a" if token[-1] != "a" else "b")
        del api.headers["authorization"]
        credentials = [{}, bearer(""), bearer(key), bearer(wrong), {"authorization": f"Basic {token}"}]
        replies = [api.request(method, path, headers=each) for each in credentials]
        assert {(reply.status_code, reply.headers["www-authenticate"], reply.text) for reply in replies} == {
            (401, 'Bearer realm="service"', '{"ok":false,"error":"unauthorized"}')
        }

    def test_a_revoked_token_is_refused_as_soon_as_the_revocation_is_known(
        self, post, api, parts, organization, keyring
    ):
        token_id, secret = operator.mint_token(parts, organization.org_id, "t", [Scope.APPS_READ])
        assert post(headers=bearer(secret.reveal())).status_code == 200
        operator.revoke_token(parts, token_id)
        keyring.refresh()
        assert post(headers=bearer(secret.reveal())).status_code == 401

    def test_there_is_no_stream_and_no_session(self, api, post):
        for method in ("GET", "DELETE", "PUT"):
            refused = api.request(method, "/mcp", headers=ACCEPT)
            assert (refused.status_code, refused.headers["allow"]) == (405, "POST")
        reply = post(
            "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "a", "version": "1"}
        )
        assert reply.headers["content-type"] == "application/json"
        assert "mcp-session-id" not in reply.headers
        assert reply.headers["cache-control"] == "no-store"

    def test_subscriptions_are_not_served(self, post):
        reply = post("subscriptions/listen", headers={"mcp-protocol-version": "2026-07-28"})
        assert reply.status_code >= 400
        assert reply.headers["content-type"] == "application/json"

    def test_pages_of_other_sites_are_refused(self, post):
        for origin in (
            "https://evil.example",
            "http://testserver",
            "null",
            "http://localhost.evil.example",
            "http://[",
        ):
            assert post(headers={"origin": origin}).status_code == 403, origin
        for origin in ("http://localhost:6274", "http://127.0.0.1", "http://[::1]:80"):
            assert post(headers={"origin": origin}).status_code == 200, origin

    def test_a_body_is_small_json(self, api, post):
        assert post(filler="x" * 70_000).status_code == 413
        assert api.post("/mcp", content="{}", headers={"content-type": "text/plain"}).status_code == 415
        for body in ("", "[", "[]", "[" * 10_000, '{"jsonrpc":"2.0"}', '[{"jsonrpc":"2.0","id":1,"method":"ping"}]'):
            for version in ({}, {"mcp-protocol-version": "2026-07-28"}):
                headers = {"content-type": "application/json", **ACCEPT, **version}
                reply = api.post("/mcp", content=body, headers=headers)
                assert reply.status_code == 400, (body, version, reply.text)

    def test_a_client_that_takes_no_json_is_refused(self, post):
        for accept in ("text/html", "text/event-stream", ""):
            assert post("ping", headers={"accept": accept}).status_code == 406, accept
        for accept in ("application/json", "*/*", ACCEPT["accept"]):
            assert post("ping", headers={"accept": accept}).status_code == 200, accept

    def test_hostile_arguments_get_a_short_answer(self, post, call, used):
        nested = 1
        for _ in range(150):
            nested = [nested]
        for arguments in (
            {"k" * 50_000: 1},
            {f"k{number}": 1 for number in range(4_000)},
            {"metric": "y" * 50_000, "project": "x"},
            {"project": nested, "metric": "mau"},
            {"project": "x" * 50_000, "metric": "mau"},
            {"project": "a&metric=dau#?%00/../\x00", "metric": "mau"},
            {"project": "x", "metric": "mau", "rows": 10**300},
        ):
            answer, is_error = call("read_metric", **arguments)
            assert is_error, answer
            assert len(answer["error"]) <= 400
        assert post("tools/call", name="t" * 50_000).json()["result"]["isError"]
        assert used() == 0

    def test_an_unknown_metric_is_refused_with_those_there_are(self, call):
        for arguments in ({"metric": "arr", "project": "x"}, {"project": "x"}):
            answer, is_error = call("read_metric", **arguments)
            assert is_error
            assert "metric is one of dau, event_count, " in answer["error"], answer
        answer, _ = call("read_metric", metric="mau", project=1)
        assert "one of" not in answer["error"]

    def test_the_first_and_the_last_dates_there_are_get_an_answer_that_says_what_to_do(self, api, call):
        (project,) = create_apps(api, 1)
        for tool, arguments in (
            ("compare", {"metric": "mau"}),
            ("explain_mrr", {}),
            ("read_metric", {"metric": "mau", "project": project}),
        ):
            for period in (
                {"date_to": "0001-01-05"},
                {"date_from": "0001-01-01"},
                {"date_from": "0001-01-01", "date_to": "9999-12-31"},
                {"date_from": "9999-12-31"},
                {"date_to": "9999-12-31"},
            ):
                answer, is_error = call(tool, **arguments, **period)
                assert not is_error or "retry" not in answer["error"], (tool, period, answer)
        answer, is_error = call("compare", metric="mau", date_to="0001-01-05")
        assert (is_error, "none before 1975-01-01" in answer["error"]) == (True, True)

    def test_other_paths_below_do_not_exist(self, api):
        for path in ("/mcp/", "/mcp/x", "/mcp/allowance/", "/mcp%2fallowance"):
            assert api.get(path).status_code == 404, path

    def test_without_the_extra_the_reply_says_what_to_install(self, not_installed, api, post):
        reply = post()
        assert (reply.status_code, reply.json()["ok"]) == (404, False)
        assert "pip install 'mauve[mcp]'" in reply.json()["error"]
        assert post(headers=bearer("")).status_code == 401, "a stranger does not learn what is installed"
        assert api.get("/mcp/allowance").status_code == 200, "which needs no extra"

    def test_unknown_query_parameters_get_a_hint(self, api):
        for method, status in (("GET", 200), ("PUT", 405)):
            reply = api.request(method, "/mcp/allowance?app=x")
            hint = "ignored unknown query parameters: app"
            assert (reply.status_code, reply.headers["x-service-hint"]) == (status, hint)
        assert "x-service-hint" not in api.get("/mcp/allowance").headers

    def test_an_organization_that_calls_too_often_waits_and_others_do_not(self, post, parts, clock):
        statuses = {post("ping").status_code for _ in range(int(plane.BURST))}
        assert statuses == {200}
        refused = post("ping")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        other = operator.create_organization(parts, "Other")
        _, secret = operator.mint_token(parts, other.org_id, "t", Scope)
        assert post("ping", headers=bearer(secret.reveal())).status_code == 200
        clock.advance(1000)
        assert post("ping").status_code == 200

    def test_too_many_calls_at_once_are_refused(self, post, monkeypatch):
        begun, may_end = Semaphore(0), Event()

        async def answer_later(*_):
            begun.release()
            while not may_end.is_set():  # noqa: ASYNC110 - set by another thread
                await asyncio.sleep(0.01)
            return Reply(200)

        monkeypatch.setattr(plane, "load_sdk", lambda: answer_later)
        check_share(partial(post, "ping"), plane.IN_FLIGHT_MAX, begun, may_end)

    def test_too_many_questions_about_the_allowance_at_once_are_refused(self, one_call_at_once, api, monkeypatch):
        begun, may_end = Semaphore(0), Event()
        allowance_of = plane.allowance_of

        def answer_later(*arguments):
            begun.release()
            assert may_end.wait(PATIENCE_S)
            return allowance_of(*arguments)

        monkeypatch.setattr(plane, "allowance_of", answer_later)
        check_share(partial(api.get, "/mcp/allowance"), 2, begun, may_end)


def check_share(send, in_flight_max, begun, may_end):
    """Check that one request more than may be in flight is refused, and that those in flight are not."""
    with ThreadPoolExecutor(in_flight_max) as threads:
        held = [threads.submit(send) for _ in range(in_flight_max)]
        try:
            for _ in held:
                assert begun.acquire(timeout=PATIENCE_S)
            refused = send()
        finally:
            may_end.set()
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert {each.result().status_code for each in held} == {200}
    assert send().status_code == 200


class TestCost:
    def test_a_call_reads_a_bounded_number_of_apps_and_says_how_to_go_on(self, api, call, used):
        projects = create_apps(api, APPS_MAX + 3)
        cost, is_error = call("overview")
        assert (is_error, cost["needs_spend"], used()) == (True, 6 * APPS_MAX, 0)
        first, _ = call("explain_mrr", spend=APPS_MAX)
        assert [app["project"] for app in first["apps"]] == projects[:APPS_MAX]
        assert (first["apps_left"], first["next_after"], used()) == (3, projects[APPS_MAX - 1], APPS_MAX)
        rest, _ = call("explain_mrr", after=first["next_after"])
        assert [app["project"] for app in rest["apps"]] == projects[APPS_MAX:]
        assert "next_after" not in rest
        assert call("explain_mrr", apps=[*projects])[1], "too many to name"
        assert used() == APPS_MAX + 3

    def test_spend_is_a_limit(self, api, call, used):
        create_apps(api, 5)
        for spend in (None, 9):
            answer, is_error = call("compare", metric="mau", **({} if spend is None else {"spend": spend}))
            assert (is_error, answer["needs_spend"], used()) == (True, 10, 0)
        assert (call("compare", metric="mau", spend=10)[0]["spent"], used()) == (10, 10)

    def test_a_refusal_in_the_middle_ends_the_call_and_the_numbers_so_far_are_kept(
        self, api, call, used, parts, organization, keyring
    ):
        projects = create_apps(api, 6)
        operator.change_limits(parts, organization.org_id, {"reads_per_minute": 3})
        keyring.refresh()
        answer, is_error = call("explain_mrr")
        assert (is_error, answer["spent"], used()) == (False, 3, 3)
        assert sum(app["mrr"] is not None for app in answer["apps"]) == 3
        assert len(answer["apps"]) == len(projects)
        assert answer["stopped"]["retry_after_s"] == 60

    def test_reads_are_limited_even_if_the_cache_answers_them(self, ten_reads_at_once, api, call, used, clock):
        create_apps(api, 4)
        assert call("compare", metric="mau")[0]["spent"] == 8
        refused, is_error = call("compare", metric="mau")
        assert (is_error, refused["retry_after_s"], "reads too often" in refused["error"]) == (True, 1, True)
        assert not call("explain_mrr", apps=[api.get("/v1/apps").json()[0]["public_id"]])[1], "which is one read"
        assert call("list_apps")[1] is False, "which reads no metric"
        clock.advance(1000)
        answer, is_error = call("compare", metric="mau")
        assert (is_error, answer["cache"], used()) == (False, {"hit": 8}, 9)

    def test_the_largest_call_is_possible(self):
        assert plane.READS_BURST >= 6 * APPS_MAX

    def test_a_token_that_cannot_list_apps_names_them(self, api, post, parts, organization):
        (project,) = create_apps(api, 1)
        _, secret = operator.mint_token(parts, organization.org_id, "t", [Scope.METRICS_READ])

        def called(**arguments):
            reply = post(
                "tools/call", bearer(secret.reveal()), name="compare", arguments={"metric": "mau", **arguments}
            )
            return json.loads(reply.json()["result"]["content"][0]["text"])

        assert "name the projects in apps" in called()["error"]
        assert called(apps=[project])["apps"] == [{"project": project, "name": None, "value": {"now": 0, "before": 0}}]
        assert "unknown project" in called(apps=["proj_00000000000000000000"])["error"]

    def test_long_answers_are_cut_to_the_latest_days(self, api, call, clock):
        app = api.post("/v1/apps", json={"name": "An app"}).json()
        start = {"type": "subscription", "id": "a", "status": "active", "mrr": 5, "currency": "eur"}
        sent = api.post("/v1/objects", json={**start, "at": "2026-01-01T00:00:00Z"}, headers=bearer(app["sk_key"]))
        assert sent.status_code == 202
        asked = {"project": app["public_id"], "metric": "mrr_history", "date_from": "2026-01-01"}
        answer, _ = call("read_metric", rows=7, **asked)
        assert (len(answer["rows"]), answer["rows"][-1], answer["rows_left_out"]) == (7, ["2027-01-15", "eur", 5], 373)

    def test_a_stale_answer_says_its_age(self, api, call, clock, core, monkeypatch):
        (project,) = create_apps(api, 1)
        asked = {"project": project, "metric": "revenue"}
        assert call("read_metric", **asked)[0]["cache"] == {"miss": 1}
        clock.advance(400_000)
        monkeypatch.setattr(core.query.ledger_flights, "join", broken)
        answer, is_error = call("read_metric", **asked)
        assert (is_error, answer["cache"], answer["age_s_max"]) == (False, {Freshness.STALE: 1}, 400)
        answer, is_error = call("read_metric", **asked, date_from="2027-01-01")
        assert (is_error, answer["retry_after_s"], answer["spent_max"]) == (True, 1, 1)


async def broken(*_):
    raise TimeoutError


def test_all_descriptions_together_are_short(post):
    """Counted as pieces of at most six letters or three digits, and every other character alone.

    That is far more than any tokenizer makes of it: one that was measured made 800 of 1,330 pieces.
    """
    text = json.dumps(post().json()["result"]["tools"], separators=(",", ":"))
    assert len(re.findall(r"[A-Za-z]{1,6}|[0-9]{1,3}|[^A-Za-z0-9\s]", text)) <= 1500


@pytest.mark.embedded
def test_no_module_but_the_server_and_the_reader_imports_the_sdk():
    loaded = (
        "import mauve.cli.main, mauve.server.core, mauve.agents.plane, mauve.agents.tools, sys; print(*sys.modules)"
    )
    done = run([sys.executable, "-P", "-c", loaded], capture_output=True, text=True, check=True)
    assert {"mcp", "pydantic", "httpx2", "uvicorn"}.isdisjoint(done.stdout.split())
