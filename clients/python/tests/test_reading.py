"""Reads and changes: typed answers, errors by machine code, and retries only where they are safe."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime, timedelta, timezone

import pytest

import mauve_metrics
from mauve_metrics import (
    AllowanceSpent,
    AsyncControl,
    AsyncMetrics,
    Control,
    InsufficientScope,
    InvalidBody,
    MauveError,
    Metrics,
    NotFound,
    RateLimited,
    Unauthorized,
    Unavailable,
    _calls,
)
from stub import KEY, PATIENCE_S

TOKEN = "ctl_live_" + "a" * 56
APP = {
    "app_id": "app_1", "public_id": "proj_1", "test_public_id": None, "name": "One", "ownership": "mine",
    "type": "saas", "first_event_at": None, "has_biller_a_webhook": False, "has_biller_b_webhook": True,
    "created_at": 1, "a_field_of_a_newer_service": 1,
}  # fmt: skip


def metric(name, *rows):
    head = {"ok": True, "metric": name, "project": "proj_1", "date_from": "2026-01-01", "date_to": "2026-01-30"}
    return 200, {"x-cache": "miss"}, head | {"data": list(rows)}


@pytest.fixture
def waits(monkeypatch):
    """Return the waits between attempts, which take no time."""
    seconds = []
    monkeypatch.setattr(_calls, "sleep", seconds.append)
    return seconds


@pytest.fixture
def metrics(service, waits):
    return Metrics(TOKEN, url=service.url, project="proj_1")


@pytest.fixture
def control(service, waits):
    return Control(TOKEN, url=service.url)


def test_a_metric_is_read_with_its_window_and_typed_rows(service, metrics):
    service.answers = [metric("dau", {"day": "2026-01-02", "dau": 7, "new": 1})]
    result = metrics.dau(date_from=date(2026, 1, 1), date_to="2026-01-30")
    assert [(row.day, row.dau) for row in result.rows] == [(date(2026, 1, 2), 7)]
    assert (result.metric, result.project, result.cache, result.age) == ("dau", "proj_1", "miss", None)
    assert (result.date_from, result.date_to) == (date(2026, 1, 1), date(2026, 1, 30))
    ((path, headers, _),) = service.requests
    assert path == "/v1/metrics/dau?date_from=2026-01-01&date_to=2026-01-30&project=proj_1"
    assert headers["authorization"] == f"Bearer {TOKEN}"


def test_a_stale_answer_says_how_old_it_is(service, metrics):
    status, _, content = metric("mau", {"mau": 3})
    service.answers = [(status, {"x-cache": "stale", "x-cache-age": "42"}, content)]
    result = metrics.mau()
    assert (result.rows[0].mau, result.cache, result.age) == (3, "stale", 42)


def test_an_event_name_is_escaped(service, metrics):
    service.answers = [metric("event_count", {"name": "a&b=ü", "count": 2})]
    assert metrics.event_count("a&b=ü").rows[0].count == 2
    assert "name=a%26b%3D%C3%BC" in service.requests[0][0]


@pytest.mark.parametrize(
    ("answer", "error", "code"),
    [
        ((400, {}, {"ok": False, "error": "bad date"}), InvalidBody, None),
        ((401, {}, {"ok": False, "error": "unauthorized"}), Unauthorized, None),
        (
            (403, {}, {"ok": False, "code": "insufficient_scope"}),
            InsufficientScope,
            "insufficient_scope",
        ),
        ((403, {}, {"ok": False, "error": "a publishable key reads nothing"}), InsufficientScope, None),
        ((404, {}, {"ok": False, "error": "unknown project"}), NotFound, None),
        ((400, {}, {"error": {"code": "invalid_body", "message": "name"}}), InvalidBody, "invalid_body"),
        ((404, {}, {"error": {"code": "not_found", "message": "none"}}), NotFound, "not_found"),
        ((418, {}, None), MauveError, None),
        ((200, {}, ["not a metric"]), MauveError, None),
    ],
)
def test_an_error_is_raised_by_its_code_and_not_repeated(service, metrics, answer, error, code):
    service.answer = answer
    with pytest.raises(error) as raised:
        metrics.mau()
    assert raised.value.code == code
    assert len(service.requests) == 1


@pytest.mark.parametrize("answer", [(503, {}, None), (502, {}, None), "cut"])
def test_a_read_is_repeated_twice_while_the_service_is_unavailable(service, metrics, waits, answer):
    service.answers = [answer, answer, metric("mau", {"mau": 3})]
    assert metrics.mau().rows[0].mau == 3
    assert len(waits) == 2
    service.answer = answer
    with pytest.raises(Unavailable):
        metrics.mau()
    assert len(service.requests) == 6


def test_a_rate_limit_is_waited_for_as_long_as_it_says(service, metrics, waits):
    limited = (429, {"x-service-throttle": "rate_limit", "retry-after": "7"}, {"ok": False, "error": "slow"})
    service.answers = [limited, metric("mau", {"mau": 3})]
    assert metrics.mau().rows[0].mau == 3
    assert waits == [7]
    service.answer = limited
    with pytest.raises(RateLimited) as raised:
        metrics.mau()
    assert raised.value.retry_after == 7


@pytest.mark.parametrize("headers", [{"x-service-throttle": "new"}, {}])
def test_a_429_that_says_nothing_is_not_repeated(service, metrics, headers):
    service.answer = (429, {"retry-after": "1", **headers}, None)
    with pytest.raises(RateLimited) as raised:
        metrics.mau()
    assert (raised.value.retry_after, raised.value.code) == (None, None)
    assert len(service.requests) == 1


def test_a_rate_limit_that_does_not_say_how_long_is_waited_for_all_the_same(service, metrics, waits):
    limited = (429, {"x-service-throttle": "rate_limit"}, None)
    service.answers = [limited, limited, metric("mau", {"mau": 3})]
    assert metrics.mau().rows[0].mau == 3
    assert len(waits) == 2


def test_an_answer_nested_too_deeply_is_as_good_as_none(service, metrics):
    service.answer = (200, {}, b"[" * 200_000)
    with pytest.raises(Unavailable):
        metrics.mau()


def test_a_time_stands_for_its_day_in_utc(service, metrics):
    service.answer = metric("dau")
    metrics.dau(datetime(2026, 1, 1, 23, tzinfo=timezone(timedelta(hours=-5))), datetime(2026, 1, 30, 12))  # noqa: DTZ001
    assert "date_from=2026-01-02&date_to=2026-01-30" in service.requests[0][0]


def test_a_name_that_is_no_text_is_refused(service, metrics):
    with pytest.raises(InvalidBody, match="surrogate"):
        metrics.event_count("\ud800")
    assert service.requests == []


@pytest.mark.parametrize(("fraction", "microsecond"), [("", 0), (".5", 500_000), (".123456789", 123_456)])
def test_a_reset_may_have_any_fraction_of_a_second(service, metrics, fraction, microsecond):
    headers = {"x-service-throttle": "allowance:raw_scans", "x-service-reset": f"2026-12-01T00:00:00{fraction}Z"}
    service.answer = (429, headers, None)
    with pytest.raises(AllowanceSpent) as raised:
        metrics.event_names()
    assert raised.value.reset_at == datetime(2026, 12, 1, microsecond=microsecond, tzinfo=timezone.utc)


def test_a_spent_allowance_is_not_repeated_and_says_when_it_resets(service, metrics):
    headers = {"x-service-throttle": "allowance:raw_scans", "x-service-reset": "2026-12-01T00:00:00Z"}
    service.answer = (429, headers, {"ok": False, "reason": "allowance", "scope": "raw_scans", "error": "spent"})
    with pytest.raises(AllowanceSpent) as raised:
        metrics.event_names()
    assert raised.value.scope == "raw_scans"
    assert raised.value.reset_at == datetime(2026, 12, 1, tzinfo=timezone.utc)
    assert len(service.requests) == 1


@pytest.mark.parametrize("kind", [Metrics, Control])
@pytest.mark.parametrize(
    ("answer", "error", "advice"),
    [
        ((401, {}, {"ok": False, "error": "unauthorized"}), Unauthorized, "this is the publishable key pk_live_…wxyz"),
        ((403, {}, {"error": {"code": "insufficient_scope"}}), InsufficientScope, "needs a"),
        (
            (404, {}, {"ok": False, "error": "no such path"}),
            NotFound,
            "is the main address of the service, not its ingest port",
        ),
        ((403, {"content-type": "text/html"}, b"<html>"), InsufficientScope, "answered with a web page: check that"),
        ((200, {"content-type": "text/html"}, b"<html>"), MauveError, "not JSON: check that"),
    ],
)
def test_an_error_says_what_to_do_and_not_the_credential(service, kind, answer, error, advice):
    key = "pk_live_" + "q" * 36 + "wxyz"
    service.answer = answer
    client = kind(key, url=service.url)
    with pytest.raises(error, match=advice) as raised:
        client.mau() if kind is Metrics else client.apps()
    assert "qqqq" not in str(raised.value)
    assert raised.value.status == answer[0]


def test_an_address_where_nothing_listens_is_named_with_advice(waits):
    with pytest.raises(Unavailable, match=r"check the host and port in url.*url is http://127.0.0.1:1"):
        Metrics(KEY, url="http://127.0.0.1:1").mau()


def test_a_credential_of_no_known_kind_is_never_shown(service):
    service.answer = (401, {}, None)
    with pytest.raises(Unauthorized, match=r"Control needs a control token .* this is an unknown kind of credential$"):
        Control("hunter2" * 10, url=service.url).apps()


def test_apps_keys_and_secrets_are_managed(service, control):
    service.answers = [
        (201, {}, APP | {"sk_key": "sk_live_x"}), (200, {}, [APP]), (200, {}, APP), (200, {}, APP | {"name": "Two"}),
        (201, {}, {"key_id": "key_1", "key": "pk_live_x"}),
        (200, {}, [{"key_id": "key_1", "kind": "pk", "masked": "pk_live_…", "revoked": False, "mirrored_at": None,
                    "created_at": 1}]),
        (204, {}, None), (204, {}, None),
    ]  # fmt: skip
    created = control.create_app("One")
    assert created.sk_key == "sk_live_x"
    assert "sk_live_x" not in repr(created)
    assert control.apps()[0].has_biller_b_webhook
    assert control.app("app_1").app_id == "app_1"
    assert control.update_app("app_1", name="Two").name == "Two"
    minted = control.mint_key("app_1", "pk")
    assert minted.key == "pk_live_x"
    assert "pk_live_x" not in repr(minted)
    assert control.keys("app_1")[0].mirrored_at is None
    assert control.revoke_key("app_1", "../key") is None
    assert control.set_webhook_secret("app_1", "biller_a", "whsec") is None
    asked = [(headers["method"], path, body) for path, headers, body in service.requests]
    assert asked == [
        ("POST", "/v1/apps", {"name": "One"}),
        ("GET", "/v1/apps", None),
        ("GET", "/v1/apps/app_1", None),
        ("PATCH", "/v1/apps/app_1", {"name": "Two"}),
        ("POST", "/v1/apps/app_1/keys", {"kind": "pk"}),
        ("GET", "/v1/apps/app_1/keys", None),
        ("DELETE", "/v1/apps/app_1/keys/..%2Fkey", None),
        ("PUT", "/v1/apps/app_1/webhooks/biller_a", {"secret": "whsec"}),
    ]


def test_a_post_is_never_repeated(service, control):
    service.answer = (502, {}, {"error": {"code": "upstream_unavailable", "message": "later"}})
    with pytest.raises(Unavailable) as raised:
        control.create_app("One")
    assert raised.value.code == "upstream_unavailable"
    assert len(service.requests) == 1
    with pytest.raises(Unavailable):
        control.apps()
    assert len(service.requests) == 4


def test_asyncio_programs_await_the_same_calls(service, waits):
    async def program():
        service.answers = [metric("mrr", {"currency": "eur", "mrr": 5}), (200, {}, [APP])]
        result = await AsyncMetrics(KEY, url=service.url).mrr()
        return result.rows[0].mrr, (await AsyncControl(TOKEN, url=service.url).apps())[0].name

    assert asyncio.run(program()) == (5, "One")


@pytest.mark.parametrize("client", [AsyncMetrics, AsyncControl])
def test_reads_that_wait_leave_the_executor_of_the_loop_to_the_program(service, client):
    is_released = threading.Event()
    service.answers = [(503, {"retry-after": "60"}, None)]
    service.answer = lambda items: is_released.wait(PATIENCE_S) and (503, {"retry-after": "60"}, None)

    async def program():
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        reader = client(TOKEN, url=service.url)
        reads = [asyncio.create_task(reader.mau() if client is AsyncMetrics else reader.apps()) for _ in range(4)]
        while not service.requests:  # noqa: ASYNC110 - the service runs in another thread
            await asyncio.sleep(0.01)
        other = await asyncio.wait_for(asyncio.to_thread(lambda: "other work"), 50)
        is_any_over = any(each.done() for each in reads)
        for each in reads:
            each.cancel()
        is_released.set()
        return other, is_any_over, await asyncio.gather(*reads, return_exceptions=True)

    other, is_any_over, results = asyncio.run(program())
    assert (other, is_any_over) == ("other work", False)
    assert [type(each) for each in results] == [asyncio.CancelledError] * 4


def test_asyncio_programs_retry_reads_but_no_post_and_may_use_a_client_in_several_loops(service):
    limited = (429, {"x-service-throttle": "rate_limit", "retry-after": "1"}, None)
    metrics, control = AsyncMetrics(KEY, url=service.url), AsyncControl(TOKEN, url=service.url)

    async def read_many():
        results = await asyncio.gather(*(metrics.mau() for _ in range(40)))
        return [each.rows[0].mau for each in results]

    service.answer = metric("mau", {"mau": 3})
    for _ in range(2):
        service.answers = [limited]
        assert asyncio.run(read_many()) == [3] * 40
    assert len(service.requests) == 82
    service.answer = (503, {"retry-after": "1"}, None)
    with pytest.raises(Unavailable):
        asyncio.run(control.create_app("One"))
    assert len(service.requests) == 83


def test_both_forms_of_each_client_have_the_same_calls():
    def calls(kind):
        return {name for name in dir(kind) if not name.startswith("_")}

    assert calls(Metrics) == calls(AsyncMetrics)
    assert calls(Control) == calls(AsyncControl)
    assert calls(mauve_metrics.Mauve) == calls(mauve_metrics.AsyncMauve)
    assert len(calls(Metrics)) == 11
