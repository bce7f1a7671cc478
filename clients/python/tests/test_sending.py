"""What an application sees when it sends: calls that return at once, and where its items end."""

import asyncio
import logging
import re
import socket
import ssl
import sys
import threading
from contextlib import suppress
from datetime import datetime, timezone
from http.client import HTTPResponse, HTTPSConnection
from unittest.mock import Mock
from uuid import UUID

import pytest

from mauve_metrics import AsyncMauve, Mauve, Stats, _delivery
from stub import KEY, PATIENCE_S, ManualClock, accept, eventually, total

DEAD = "http://127.0.0.1:1"


def settled(mauve, count):
    def is_settled():
        stats = mauve.stats
        return total(stats) - stats.queued == count

    eventually(is_settled)
    return mauve.stats


def test_every_kind_of_item_arrives_as_the_contract_says(service, client):
    mauve = client()
    mauve.track("report_opened", user="ann", props={"plan": "pro", "count": 3, "new": True, "none": None})
    mauve.signup(user="ann")
    mauve.payment(id="invoice-1", amount=1999, currency="eur", user="ann", earned=False, props={"country": "de"})
    mauve.subscription(id="sub-1", status="active", mrr=1999, currency="EUR")
    assert mauve.flush(PATIENCE_S)
    opened, signup, payment = service.items()
    assert opened["name"] == "report_opened"
    assert opened["props"] == {"plan": "pro", "count": 3, "new": True, "none": None}
    assert (signup["name"], signup["user"]) == ("user_signup", "ann")
    assert (payment["name"], payment["id"]) == ("payment", "invoice-1")
    assert payment["props"] == {"amount": 1999, "currency": "eur", "earned": False, "country": "de"}
    assert UUID(opened["id"]) != UUID(signup["id"])
    assert all(item["at"] <= item["sent_at"] for item in (opened, signup, payment))
    (subscription,) = service.items("/v1/objects")
    assert subscription | {"at": ""} == {
        "type": "subscription", "id": "sub-1", "status": "active", "mrr": 1999, "currency": "EUR", "at": "",
    }  # fmt: skip
    assert datetime.fromisoformat(subscription["at"]).tzinfo == timezone.utc
    assert mauve.stats == Stats(accepted=4)


def test_the_key_and_the_address_may_come_from_the_environment(service, monkeypatch):
    monkeypatch.setenv("MAUVE_KEY", KEY)
    monkeypatch.setenv("MAUVE_INGEST_URL", service.url + "/prefix/")
    with Mauve() as mauve:
        mauve.track("seen")
    (path, headers, _) = service.requests[0]
    assert (path, headers["authorization"]) == ("/prefix/v1/events", f"Bearer {KEY}")


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ((), {"url": DEAD}),
        ((KEY,), {}),
        ((KEY,), {"url": "ingest.example.com"}),
        ((KEY,), {"url": "https://ingest.example.com/a b"}),
        (("ctl_live_abc",), {"url": DEAD}),
        (("sk live",), {"url": DEAD}),
        ((KEY,), {"url": DEAD, "batch_size": 501}),
        ((KEY,), {"url": DEAD, "max_queue": 0}),
        ((KEY,), {"url": DEAD, "timeout": -1}),
    ],
)
def test_a_client_that_can_never_work_is_refused_with_advice(arguments, options):
    with pytest.raises(ValueError, match=r"must|missing"):
        Mauve(*arguments, **options)


def test_an_item_keeps_its_id_and_time_through_retries_and_its_sending_time_changes(service, client):
    clock = ManualClock()
    mauve = client(_clock=clock, flush_interval=0)
    service.answers = [(503, {}, {"ok": False}), (500, {}, None), (200, {}, {"ok": True}), "cut", "cut"]
    mauve.track("seen", user="ann")
    for _ in range(200):
        if mauve.stats.accepted:
            break
        clock.advance(30)
        threading.Event().wait(0.02)
    sent = service.items()
    assert mauve.stats.accepted == 1
    assert len({(item["id"], item["at"]) for item in sent}) == 1
    assert len({item["sent_at"] for item in sent}) >= 4
    assert mauve.stats.retries >= 4


def test_items_rejected_inside_a_202_are_reported_one_by_one(service, client):
    rejected = []
    on_reject = lambda item, reason: rejected.append((item["name"], "sent_at" in item, reason))  # noqa: E731
    mauve = client(on_reject=on_reject, flush_interval=60)
    error = {"index": 1, "reason": "conflicting payload"}
    service.answers = [(202, {}, {"ok": True, "accepted": 2, "rejected": 1, "errors": [error]})]
    for name in ("a", "b", "c"):
        mauve.track(name)
    assert mauve.flush(PATIENCE_S)
    assert mauve.stats == Stats(accepted=2, rejected=1)
    assert rejected == [("b", False, "conflicting payload")]


@pytest.mark.parametrize("status", [400, 415, 422, 403])
def test_what_can_never_be_accepted_is_dropped_with_its_reason_and_the_rest_goes_on(service, client, status):
    dropped = []
    mauve = client(on_drop=lambda item, reason: dropped.append((item["name"], reason)))
    service.answers = [(status, {}, {"ok": False, "error": "no", "errors": [{"index": 0, "reason": "name is bad"}]})]
    mauve.track("bad")
    assert mauve.flush(PATIENCE_S)
    mauve.track("good")
    assert mauve.flush(PATIENCE_S)
    assert mauve.stats == Stats(accepted=1, dropped=1)
    assert dropped == [("bad", f"{status} no" if status == 403 else "name is bad")]


def test_a_batch_that_is_too_large_is_halved_until_only_the_culprit_is_dropped(service, client):
    dropped = []
    service.answer = lambda items: (413, {}, None) if any(i["name"] == "huge" for i in items) else accept(items)
    mauve = client(on_drop=lambda item, reason: dropped.append(item["name"]), flush_interval=60)
    for number in range(40):
        mauve.track("huge" if number == 17 else f"event {number}")
    assert mauve.flush(PATIENCE_S)
    assert mauve.stats.accepted == 39
    assert mauve.stats.dropped == 1
    assert dropped == ["huge"]
    assert [len(items) for _, _, items in service.requests[:3]] == [40, 20, 10]


@pytest.mark.parametrize(
    ("answer", "at_least_s", "at_most_s"),
    [
        ((401, {}, {"ok": False, "error": "unauthorized"}), 1, 300),
        ((402, {}, {"ok": False, "code": "ingest_suspended"}), 60, 60),
        ((403, {}, {"code": "event_cap_reached", "resets_at": (1_700_000_000 + 90) * 1000}), 90, 90),
        ((403, {}, {"code": "event_cap_reached", "resets_at": (1_700_000_000 + 9999) * 1000}), 600, 600),
        ((429, {"retry-after": "17"}, None), 17, 17),
        ((503, {"retry-after": "17"}, None), 17, 17),
        ((503, {}, None), 1, 60),
        ((404, {}, None), 1, 60),
        ((403, {}, {"code": "event_cap_reached", "resets_at": 10**400}), 600, 600),
        ((403, {}, b'{"code": "event_cap_reached", "resets_at": NaN}'), 600, 600),
        ((202, {}, b'{"a":' + b"[" * 200_000), 1, 60),
        ((103, {}, None), 1, 60),
        ("cut", 1, 60),
        ("half an answer", 1, 60),  # It may have named rejected items.
        ("half an answer without a length", 1, 60),
    ],
)
def test_a_held_batch_waits_as_long_as_the_answer_says(service, client, caplog, answer, at_least_s, at_most_s):
    clock = ManualClock()
    mauve = client(_clock=clock, flush_interval=0)
    service.answers = [answer]
    mauve.track("seen")
    eventually(lambda: "is held" in caplog.text)
    assert mauve.stats.queued == 1
    clock.advance(at_least_s - 0.01)
    threading.Event().wait(0.05)
    assert len(service.requests) == 1
    clock.advance(at_most_s - at_least_s + 0.02)
    assert settled(mauve, 1) == Stats(accepted=1, retries=1)


def test_a_flush_does_not_shorten_a_hold(service, client):
    mauve = client()
    service.answers = [(402, {}, None)]
    mauve.track("seen")
    assert not mauve.flush(0.3)
    assert not mauve.flush(0.3)
    assert len(service.requests) == 1


def test_events_that_are_held_do_not_hold_objects(service, client):
    mauve = client()
    service.answers = [(402, {}, None)]
    mauve.track("seen")
    eventually(lambda: service.requests)
    mauve.subscription(id="sub-1", status="active", mrr=1, currency="eur")
    eventually(lambda: mauve.stats.accepted == 1)
    assert mauve.stats == Stats(queued=1, accepted=1)


def test_a_wrong_key_is_logged_once(service, client, caplog):
    clock = ManualClock()
    mauve = client(_clock=clock, flush_interval=0)
    service.answer = (401, {}, {"ok": False, "error": "unauthorized"})
    mauve.track("seen")
    for tries in range(2, 8):
        eventually(lambda tries=tries: clock.advance(50) or len(service.requests) >= tries)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "401" in caplog.text
    assert KEY not in caplog.text


def test_the_line_about_a_wrong_key_says_which_and_where_to_get_another(service, client, caplog, monkeypatch):
    key = "sk_live_" + "q" * 36 + "wxyz"
    monkeypatch.setenv("MAUVE_KEY", key)
    service.answer = (401, {}, {"ok": False, "error": "unauthorized"})
    mauve = client(None, flush_interval=60)
    for _ in range(12):
        mauve.track("seen")
    mauve.subscription(id="s", status="active", mrr=1, currency="eur")
    assert not mauve.flush(0.2)
    eventually(lambda: len(caplog.records) == 2)
    lines = {record.message.split(" ")[2]: record.message for record in caplog.records}
    assert lines["events"] == (
        f"mauve: 12 events are held: {service.url} answered 401 unauthorized. The service does not accept the server "
        "key sk_live_…wxyz from MAUVE_KEY: mint a key on the app's page in the dashboard or with `mauve key mint`, "
        "and check that url is the address of the service that minted it"
    )
    assert lines["subscription"].startswith(f"mauve: 1 subscription is held: {service.url} answered 401")
    assert "qqqq" not in caplog.text


@pytest.mark.parametrize(
    ("answer", "advice"),
    [
        ((404, {}, {"ok": False, "error": "no such path"}), "This is not Mauve: check the host, the port and the path"),
        ((405, {"content-type": "text/html"}, b"<html>"), "405 with a web page: check that url"),
        ((200, {"content-type": "text/html; charset=utf-8"}, b"<html>"), "200 with a web page: check that url"),
        ((308, {"location": "https://other.example"}, None), "It redirects to 'https://other.example': use that"),
        ((402, {}, {"code": "ingest_suspended"}), "the operator of the service can resume it"),
        ((403, {}, {"code": "event_cap_reached"}), "raise it in the dashboard"),
        ((503, {}, None), "answered 503. The client retries automatically"),
    ],
)
def test_a_hold_is_logged_with_the_address_and_advice(service, client, caplog, answer, advice):
    service.answer = answer
    client().track("seen")
    eventually(lambda: "mauve: 1 event is held" in caplog.text)
    assert f"{service.url} answered {answer[0]}" in caplog.text
    assert advice in caplog.text


def test_an_address_where_nothing_listens_is_logged_with_advice(client, caplog):
    client(url=DEAD).track("seen")
    eventually(lambda: "is held" in caplog.text)
    assert f"mauve: 1 event is held: {DEAD} did not answer: ConnectionRefusedError" in caplog.text
    assert "check the host and port in url" in caplog.text


def test_a_host_that_does_not_exist_is_logged_with_advice(client, caplog, monkeypatch):
    monkeypatch.setattr(socket, "getaddrinfo", Mock(side_effect=socket.gaierror(-2, "Name or service not known")))
    client(url="http://nowhere.invalid").track("seen")
    eventually(lambda: "The host name is unknown: check url" in caplog.text)


def test_tls_to_a_port_without_it_is_logged_with_advice(service, client, caplog):
    client(url=service.url.replace("http:", "https:")).track("seen")
    eventually(lambda: "use http:// in url" in caplog.text)


def test_a_certificate_that_is_not_trusted_is_logged_with_advice(client, caplog, monkeypatch):
    refused = ssl.SSLCertVerificationError("certificate verify failed: self-signed certificate")
    monkeypatch.setattr(HTTPSConnection, "connect", Mock(side_effect=refused))
    client(url="https://ingest.example").track("seen")
    eventually(lambda: "The certificate is not trusted: check the host name in url" in caplog.text)


def test_plain_http_to_a_port_with_tls_is_logged_with_advice(client, caplog):
    def refuse(listener):
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(bytes.fromhex("15030300020246"))  # a TLS alert

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=refuse, args=(listener,), daemon=True)
        thread.start()
        client(url=f"http://127.0.0.1:{listener.getsockname()[1]}").track("seen")
        eventually(lambda: "use https:// in url" in caplog.text)
        thread.join(PATIENCE_S)


def test_a_page_that_refuses_is_named_in_the_reason(service, client, caplog):
    dropped = []
    service.answers = [(403, {"content-type": "text/html"}, b"<html>")]
    mauve = client(on_drop=lambda item, reason: dropped.append(reason))
    mauve.track("seen")
    assert mauve.flush(PATIENCE_S)
    assert dropped == ["403 with a web page: check that url is the address of the service"]
    assert "mauve: dropped 1 item" in caplog.text


def drop_lines(caplog):
    return [record.message for record in caplog.records if record.message.startswith("mauve: dropped")]


def test_a_full_queue_drops_the_oldest_and_logs_how_many_once_a_minute(service, client, caplog):
    dropped = []
    clock = ManualClock()
    service.answer = (402, {}, None)
    on_drop = lambda item, reason: dropped.append((item["name"], reason))  # noqa: E731
    mauve = client(max_queue=10, flush_interval=60, _clock=clock, on_drop=on_drop)
    for number in range(25):
        mauve.track(str(number))
    stats = mauve.stats
    assert (total(stats), stats.queued) == (25, 10)
    assert len(dropped) == stats.dropped == 15
    assert {reason for _, reason in dropped} == {"the queue is full"}
    assert drop_lines(caplog) == []
    clock.advance(2)
    eventually(lambda: drop_lines(caplog))
    advice = "Last reason: the queue is full. Call wait() in a loop that sends, or raise max_queue"
    assert drop_lines(caplog) == [f"mauve: dropped 15 items. {advice}"]
    for number in range(5):
        mauve.track(str(number))
    assert not mauve.flush(0)
    assert len(drop_lines(caplog)) == 1
    clock.advance(61)
    eventually(lambda: len(drop_lines(caplog)) == 2)
    assert drop_lines(caplog)[1] == f"mauve: dropped 5 more, 20 in all. {advice}"


def test_payments_in_a_loop_that_overflow_the_queue_make_the_flush_false_and_the_log_says_how_many(
    service, client, caplog
):
    is_released = threading.Event()
    service.answer = lambda items: is_released.wait(PATIENCE_S) and accept(items)
    mauve = client(timeout=PATIENCE_S)
    for number in range(1500):
        mauve.payment(id=str(number), amount=1, currency="eur")
    is_released.set()
    assert not mauve.flush(PATIENCE_S)
    assert mauve.stats == Stats(accepted=1000, dropped=500)
    mauve.payment(id="next", amount=1, currency="eur")
    assert mauve.flush(PATIENCE_S), "what the last flush reported is not reported again"
    assert mauve.close()
    logged = [int(count) for line in drop_lines(caplog) for count in re.findall(r"dropped (\d+)", line)]
    assert sum(logged) == 500
    assert len(logged) <= 2


@pytest.mark.parametrize("end", ["flush", "close"])
def test_what_was_dropped_unsent_is_reported_whenever_it_was_dropped(service, client, end):
    mauve = client(max_queue=2, flush_interval=60)
    service.answers = [(402, {}, None)]
    for name in "abc":
        mauve.track(name)
    eventually(lambda: mauve.stats.dropped == 1)
    assert not getattr(mauve, end)(0.5)


def test_what_the_service_refused_was_answered(service, client):
    service.answers = [(400, {}, None)]
    mauve = client()
    mauve.track("bad")
    assert mauve.flush(PATIENCE_S)
    assert mauve.stats == Stats(dropped=1)


def test_two_flushes_at_once_both_report_what_was_dropped_before(service):
    is_released = threading.Event()
    service.answer = lambda items: is_released.wait(PATIENCE_S) and accept(items)

    async def program():
        async with AsyncMauve(KEY, url=service.url, max_queue=1, flush_interval=0, timeout=PATIENCE_S) as mauve:
            mauve.track("sent")
            eventually(lambda: service.requests)
            mauve.track("dropped")
            flushes = [asyncio.create_task(mauve.flush(PATIENCE_S)) for _ in range(2)]
            await asyncio.sleep(0)  # Both have begun.
            is_released.set()
            return await asyncio.gather(*flushes), await mauve.flush(0)

    assert asyncio.run(program()) == ([False, False], True)


@pytest.mark.parametrize("has_spool", [False, True])
def test_events_are_dropped_before_payments_and_the_oldest_first(service, client, tmp_path, has_spool):
    service.answer = (402, {}, None)
    dropped = []
    # In the spool, items of this size fill the queue at 30 or so; only three are in memory.
    limits = {"max_queue": 3, "spool": tmp_path, "spool_max_bytes": 40_000} if has_spool else {"max_queue": 30}
    mauve = client(flush_interval=0, on_drop=lambda item, reason: dropped.append(item["props"]["n"]), **limits)
    mauve.track("in flight", props={"n": "first"})
    eventually(lambda: service.requests)
    props = {"text": "x" * 900}
    for number in range(10):
        mauve.payment(id=f"a{number}", amount=1, currency="eur", props={"n": f"paid {number}", **props})
        mauve.track("seen", props={"n": number, **props})
    for number in range(10, 60):
        mauve.track("seen", props={"n": number, **props})
    lost = len(dropped)
    assert lost > 20
    assert dropped[0] == "first"
    assert dropped[1:] == list(range(lost - 1))
    for number in range(60):
        mauve.payment(id=f"b{number}", amount=1, currency="eur", props={"n": f"paid {number + 10}", **props})
    paid = [each for each in dropped if str(each).startswith("paid")]
    assert [each for each in dropped if not str(each).startswith("paid")] == ["first", *range(60)]
    assert dropped[-len(paid) :] == paid == [f"paid {number}" for number in range(len(paid))]
    mauve.track("seen", props={"n": "last", **props})
    assert dropped[-1] == "last", "payments are not dropped for an event"
    assert total(mauve.stats) == 132


def test_a_loop_that_waits_for_room_loses_nothing(service, client):
    mauve = client(max_queue=20, batch_size=10)
    for number in range(300):
        assert mauve.wait(PATIENCE_S)
        mauve.payment(id=str(number), amount=1, currency="eur")
        mauve.subscription(id=str(number), status="active", mrr=1, currency="eur")
    assert mauve.flush(PATIENCE_S)
    assert mauve.stats == Stats(accepted=600)


@pytest.mark.parametrize("has_spool", [False, True])
def test_a_wait_without_room_ends_with_its_time(service, client, tmp_path, has_spool):
    service.answer = (402, {}, None)
    mauve = client(max_queue=1, **({"spool": tmp_path, "spool_max_bytes": 20_000} if has_spool else {}))
    assert mauve.wait(0)
    mauve.subscription(id="s", status="active", mrr=1, currency="eur")
    assert not mauve.wait(0.2)
    assert not mauve.wait(0)
    mauve.close(0)
    assert not mauve.wait(PATIENCE_S), "a closed client never has room"


def test_with_a_spool_there_is_room_as_long_as_the_disk_has_some(client, tmp_path):
    mauve = client(url=DEAD, max_queue=1, spool=tmp_path)
    for _ in range(50):
        assert mauve.wait(0)
        mauve.track("seen")
    assert mauve.stats.queued == 50


def test_asyncio_programs_wait_for_room_too(service):
    async def program():
        async with AsyncMauve(KEY, url=service.url, max_queue=5, flush_interval=0.01) as mauve:
            for number in range(100):
                assert await mauve.wait(PATIENCE_S)
                mauve.payment(id=str(number), amount=1, currency="eur")
            assert await mauve.flush(PATIENCE_S)
            return mauve.stats

    assert asyncio.run(program()) == Stats(accepted=100)


def test_times_that_the_service_moved_are_logged_with_their_count_and_advice(service, client, caplog):
    moved = lambda count: (202, {"x-service-moved": count}, {"ok": True})  # noqa: E731
    service.answers = [moved("3"), moved("4"), moved("nonsense"), moved("-1")]
    mauve = client(flush_interval=60)
    for _ in range(4):
        mauve.payment(id="p", amount=1, currency="eur", at=datetime(2020, 1, 1, tzinfo=timezone.utc))
        assert mauve.flush(PATIENCE_S)
    mauve.close()
    first, second = caplog.messages
    assert first.startswith("mauve: the service moved the time of 3 items: at may be")
    assert "mauve import" in first
    assert "4 more, 7 in all" in second


def test_items_in_flight_are_not_dropped_by_a_full_queue(service, client):
    is_released = threading.Event()
    service.answer = lambda items: is_released.wait(PATIENCE_S) and accept(items)
    mauve = client(max_queue=5, timeout=PATIENCE_S)
    mauve.track("first")
    eventually(lambda: service.requests)
    for number in range(20):
        mauve.track(str(number))
    is_released.set()
    assert not mauve.flush(PATIENCE_S)
    assert mauve.stats == Stats(accepted=5, dropped=16)
    assert [item["name"] for item in service.items()] == ["first", "16", "17", "18", "19"]


def test_a_failing_callback_is_logged_and_changes_nothing(service, client, caplog):
    def fail(item, reason):
        raise RuntimeError("broken callback")

    mauve = client(on_drop=fail)
    service.answers = [(400, {}, None)]
    mauve.track("bad")
    assert mauve.flush(PATIENCE_S)
    mauve.track("good")
    assert mauve.flush(PATIENCE_S)
    assert mauve.stats == Stats(accepted=1, dropped=1)
    assert "broken callback" in caplog.text


def test_a_callback_that_ends_its_thread_does_not_end_delivery(service, client, caplog):
    mauve = client(on_drop=lambda item, reason: sys.exit(1))
    service.answers = [(400, {}, None)]
    mauve.track("bad")
    assert mauve.flush(PATIENCE_S)
    mauve.track("good")
    assert mauve.flush(PATIENCE_S)
    assert mauve.stats == Stats(accepted=1, dropped=1)
    assert "SystemExit" in caplog.text


def test_a_thread_that_has_ended_is_started_again(service, client, monkeypatch):
    mauve = client()
    with monkeypatch.context() as patch:
        patch.setattr(threading, "excepthook", lambda arguments: None)
        patch.setattr(_delivery, "classify", Mock(side_effect=SystemExit))
        mauve.track("first")
        eventually(lambda: service.requests)
        eventually(lambda: all(each.name != "mauve-delivery" for each in threading.enumerate()))
    mauve.track("second")
    assert mauve.flush(PATIENCE_S)
    assert mauve.stats.accepted == 2


def test_a_failure_holds_only_the_items_concerned(service, client, monkeypatch, caplog):
    def fail_for_events(answer, *arguments):
        if len(service.items("/v1/objects")) == 0:
            raise RuntimeError("a bug")
        return classify(answer, *arguments)

    classify = _delivery.classify
    monkeypatch.setattr(_delivery, "classify", fail_for_events)
    clock = ManualClock()
    mauve = client(_clock=clock, flush_interval=0)
    mauve.track("seen")
    eventually(lambda: "a bug" in caplog.text)
    mauve.subscription(id="s", status="active", mrr=1, currency="eur")
    eventually(lambda: mauve.stats.accepted == 1)
    assert mauve.stats.queued == 1
    eventually(lambda: clock.advance(1) or mauve.stats.accepted == 2)


@pytest.mark.parametrize("loss", ["full", "expired"])
def test_a_flush_is_not_true_for_what_was_given_up_while_it_waited(service, client, caplog, loss):
    clock = ManualClock()
    mauve = client(_clock=clock, max_queue=1, flush_interval=0)
    service.answer = (503, {"retry-after": "3600"}, None)
    mauve.track("lost")
    eventually(lambda: "is held" in caplog.text)
    results = []
    thread = threading.Thread(target=lambda: results.append(mauve.flush(1e9)), daemon=True)
    thread.start()
    threading.Event().wait(0.2)
    service.answer = accept
    if loss == "full":
        mauve.track("next")
    else:
        clock.advance(7 * 86_400)
    thread.join(PATIENCE_S)
    assert results == [False]
    assert mauve.stats.dropped + mauve.stats.expired == 1


def test_an_informational_answer_does_not_pass_for_the_next_one(client):
    def answer(listener):
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 103 Early Hints\r\n\r\n")
            threading.Event().wait(0.3)
            connection.sendall(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n")
            while connection.recv(65536):
                pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer, args=(listener,), daemon=True)
        thread.start()
        mauve = client(url=f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=1)
        mauve.track("first")
        mauve.track("second")
        thread.join(PATIENCE_S)  # The client has ended the connection.
        assert not thread.is_alive()
        mauve.close(0)
    assert mauve.stats.accepted == 0


def test_an_answer_is_read_in_small_pieces(service, client, monkeypatch):
    asked = []
    original = HTTPResponse.read

    def read(response, size=None):
        asked.append(size)
        return original(response, size)

    monkeypatch.setattr(HTTPResponse, "read", read)
    service.answers = [(202, {}, {"ok": True, "padding": "x" * 1_000_000})]
    mauve = client()
    mauve.track("seen")
    assert mauve.flush(PATIENCE_S)
    assert mauve.stats.accepted == 1
    assert max(asked) <= 65536


def test_a_callback_that_queues_again_does_not_call_itself_without_end(service, client):
    mauve = client(url=DEAD, max_queue=1, on_drop=lambda item, reason: mauve.track("again"))
    for _ in range(10):
        mauve.track("seen")
    assert total(mauve.stats) == 19
    assert mauve.stats.queued == 1


def test_what_a_call_of_on_reject_drops_reaches_on_drop(service, client):
    dropped = []
    options = {"max_queue": 2, "flush_interval": 60, "timeout": 1}
    error = [{"index": n, "reason": "conflict"} for n in range(2)]
    service.answers = [(202, {}, {"ok": True, "accepted": 0, "rejected": 2, "errors": error}), (402, {}, None)]
    mauve = client(
        on_reject=lambda item, reason: [mauve.track(f"{item['name']} again {n}") for n in range(2)],
        on_drop=lambda item, reason: dropped.append((item["name"], reason)),
        **options,
    )
    mauve.track("a")
    mauve.track("b")
    eventually(lambda: mauve.stats.dropped == 2 and len(dropped) == 2)
    assert dropped == [("a again 0", "the queue is full"), ("a again 1", "the queue is full")]
    assert total(mauve.stats) == 6


def test_what_close_drops_inside_a_callback_is_reported_after_it(service, client):
    calls = []

    def close(item, reason):
        calls.append((item["name"], "begins"))
        mauve.close(PATIENCE_S)
        calls.append((item["name"], "ends"))

    is_released = threading.Event()
    service.answer = lambda items: is_released.wait(PATIENCE_S) and (400, {}, None)
    mauve = client(on_drop=close, batch_size=1, timeout=PATIENCE_S)
    for name in "abc":
        mauve.track(name)
    is_released.set()
    eventually(lambda: len(calls) == 6)
    assert calls == [(name, step) for name in "abc" for step in ("begins", "ends")]
    assert mauve.stats == Stats(dropped=3)


def test_close_delivers_and_later_calls_are_dropped(service, client):
    dropped = []
    mauve = client(flush_interval=60, on_drop=lambda item, reason: dropped.append((item["name"], reason)))
    mauve.track("seen")
    assert mauve.close()
    mauve.track("late")
    mauve.subscription(id="s", status="active", mrr=1, currency="eur")
    assert mauve.close()
    assert mauve.stats == Stats(accepted=1, dropped=2)
    assert dropped[0] == ("late", "the client is closed")


def test_what_close_could_not_deliver_is_dropped(service, client):
    dropped = []
    mauve = client(url=DEAD, on_drop=lambda item, reason: dropped.append(item["name"]))
    mauve.track("seen")
    assert not mauve.close(0.5)
    assert dropped == ["seen"]
    assert mauve.stats.dropped == 1
    assert not mauve.flush(0)


def test_close_does_not_wait_for_a_hold_that_ends_too_late(service, client, caplog):
    service.answers = [(402, {}, None)]
    mauve = client()
    mauve.track("seen")
    eventually(lambda: "is held" in caplog.text)
    is_over = threading.Event()
    threading.Thread(target=lambda: (mauve.close(50), is_over.set()), daemon=True).start()
    assert is_over.wait(40), "it waited although nothing could happen"


def test_a_callback_may_close_the_client(service, client):
    is_closed = threading.Event()
    mauve = client(on_drop=lambda item, reason: (mauve.close(PATIENCE_S), is_closed.set()))
    service.answers = [(400, {}, None)]
    mauve.track("bad")
    assert is_closed.wait(PATIENCE_S)
    assert mauve.stats == Stats(dropped=1)


def test_at_most_500_items_and_900_kb_go_into_a_request_and_large_bodies_are_compressed(service, client):
    mauve = client(flush_interval=60, max_queue=2000)
    for _ in range(1100):
        mauve.track("small")
    for _ in range(20):
        mauve.track("large", props={str(number): "x" * 1000 for number in range(100)})
    assert mauve.flush(PATIENCE_S)
    assert mauve.stats.accepted == 1120
    assert max(len(items) for _, _, items in service.requests) <= 500
    assert all(headers.get("content-encoding") == "gzip" for _, headers, items in service.requests if len(items) > 20)
    large = [items for _, _, items in service.requests if items[-1]["name"] == "large"]
    assert len(large) >= 3


def test_small_bodies_and_all_bodies_without_compression_are_sent_as_they_are(service, client):
    mauve, plain = client(), client(compress=False)
    mauve.track("small")
    assert mauve.flush(PATIENCE_S)
    plain.track("large", props={"text": "x" * 1024, "more": "y" * 1024})
    assert plain.flush(PATIENCE_S)
    assert ["content-encoding" in headers for _, headers, _ in service.requests] == [False, False]


def test_items_held_for_almost_seven_days_expire_but_payments_do_not(service, client):
    clock = ManualClock()
    mauve = client(_clock=clock, flush_interval=0)
    service.answer = (503, {}, None)
    mauve.track("seen")
    mauve.payment(id="p", amount=1, currency="eur")
    eventually(lambda: clock.advance(1) or len(service.items()) >= 3)
    clock.advance(6 * 86400 + 23 * 3600 - 60)
    tries = len(service.requests)
    eventually(lambda: clock.advance(0.5) or len(service.requests) > tries)
    assert mauve.stats.expired == 0
    clock.advance(120)
    eventually(lambda: clock.advance(1) or mauve.stats.expired == 1)
    service.answer = accept
    eventually(lambda: clock.advance(60) or mauve.stats.accepted == 1)
    assert service.items()[-1]["name"] == "payment"
    assert total(mauve.stats) == 2


def test_a_day_of_refusals_loses_nothing(service, client):
    clock = ManualClock()
    mauve = client(_clock=clock, flush_interval=0)
    service.answer = (503, {"retry-after": "600"}, None)
    for number in range(100):
        mauve.track(str(number))
    while clock.elapsed_s < 86_400:
        tries = len(service.requests)
        eventually(lambda tries=tries: clock.advance(200) or len(service.requests) > tries)
    service.answer = accept
    eventually(lambda: clock.advance(200) or mauve.stats.accepted == 100)
    assert total(mauve.stats) == 100


def test_the_counts_add_up_at_every_moment(service, client):
    service.answer = lambda items: (413, {}, None) if len(items) > 3 else accept(items)
    mauve = client(max_queue=50)
    sums = []
    for number in range(500):
        mauve.track(str(number))
        sums.append(total(mauve.stats))
    assert sums == list(range(1, 501))
    mauve.flush(PATIENCE_S)
    assert mauve.stats.queued == 0
    assert total(mauve.stats) == 500


def test_the_statistics_are_a_frozen_snapshot(service, client):
    mauve = client()
    before = mauve.stats
    mauve.track("seen")
    assert before.queued == 0
    with pytest.raises(AttributeError):
        before.queued = 5


def test_a_server_that_answers_byte_by_byte_is_given_up_after_the_timeout(client, caplog):
    is_over = threading.Event()

    def trickle(listener):
        connection, _ = listener.accept()
        with connection:
            while not is_over.wait(0.05):
                with suppress(OSError):
                    connection.sendall(b"H")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=trickle, args=(listener,), daemon=True)
        thread.start()
        mauve = client(url=f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=0.5)
        mauve.track("seen")
        eventually(lambda: "timed out" in caplog.text)
        is_over.set()
        mauve.close(0)
        thread.join(PATIENCE_S)
    assert mauve.stats.accepted == 0
