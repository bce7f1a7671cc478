"""What a call accepts: money exactly if the service would, events as well as they can be sent."""

import json
import math
import string
from collections import UserDict
from datetime import datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mauve.core.app import Environment
from mauve.core.credential import KeyKind
from mauve.core.money import currency_codes
from mauve.core.problems import Problem
from mauve.ingest.rules import judge_events, judge_objects
from mauve.stores.published import PublishedKey

from mauve_metrics import Mauve, Stats
from mauve_metrics import _items as items
from mauve_metrics._currencies import CURRENCIES
from stub import PATIENCE_S, eventually

PUBLISHED = PublishedKey(
    "key_1", bytes(32), KeyKind.SERVER, Environment.LIVE, "proj_1", "app_1", "org_1", revoked=False
)
NOW_MS = 1_700_000_000_000

texts = st.text(st.characters(), max_size=5) | st.text(string.ascii_letters, max_size=5) | st.just("\ud800")
lengths = st.sampled_from([0, 1, 127, 128, 129, 255, 256, 257, 1023, 1024, 1025]).map("é".__mul__)
large = [10**4300 - 1, 10**4300, 1 - 10**4299, -(10**4299), -(10**4300), 2**53, 2**53 - 1, 1e308]
numbers = st.integers() | st.floats() | st.sampled_from(large)
values = texts | lengths | numbers | st.booleans() | st.none() | st.just([]) | st.just({"a": 1})
props = st.dictionaries(texts | st.integers(0, 3), values, max_size=4) | st.sampled_from(
    [
        {str(n): n for n in range(100)},
        {str(n): n for n in range(101)},
        {str(n): "\\" * 1024 for n in range(100)},
        [1],
        "",
    ]
)
money = st.sampled_from([0, 1, 2**53 - 1, 2**53, -1, True, None, 1.0, "1"])
codes = st.sampled_from(["eur", "EUR", "xyz", "", "hrk", "ﬀf", None, 5])


def as_sent(build):
    """Return the body that the client would send, or None if it raises."""
    try:
        return items.encoded(build())[:-1] + b',"sent_at":%d}' % NOW_MS
    except (TypeError, ValueError):
        return None


def is_accepted(validate, body):
    try:
        return not validate(body, PUBLISHED, NOW_MS).rejections
    except Problem:
        return False


def raw(item):
    """Encode what the client refused, as another client might send it; None if JSON has no form for it."""
    try:
        return json.dumps(item, allow_nan=False, default=str).encode()
    except ValueError:
        return None


def has_a_key_that_is_no_string(content):
    return isinstance(content, dict) and any(not isinstance(key, str) for key in content)


def check(validate, build, item):
    sent = as_sent(build)
    if sent is not None:
        assert is_accepted(validate, sent)
    elif not has_a_key_that_is_no_string(item.get("props")):
        body = raw(item)
        assert body is None or not is_accepted(validate, body[:-1] + b',"sent_at":%d}' % NOW_MS)


@given(texts | lengths | st.integers(), st.none() | texts | lengths | st.booleans(), st.none() | props)
@example("e", None, {str(n): "é" * 700 for n in range(100)})
@example("e", None, {"a": 1 - 10**4299})
@example("e", None, {"a": -(10**4299)})
def test_an_event_is_refused_exactly_if_the_service_would_reject_it(name, user, content):
    if name == "payment":
        return
    item = {"name": name, "id": "i", "at": NOW_MS} | ({} if user is None else {"user": user})
    item |= {} if content is None else {"props": content}
    check(judge_events, lambda: items.event_item(name, user, content, "i", NOW_MS), item)


@given(texts | lengths, money, codes, st.booleans() | st.just("no"), st.none() | props)
def test_a_payment_is_refused_exactly_if_the_service_would_reject_it(id_, amount, currency, earned, further):
    if isinstance(further, dict) and {"amount", "currency", "earned"} & set(further):
        return
    is_mapping = further is None or isinstance(further, dict)
    content = {"amount": amount, "currency": currency, "earned": earned} | (further or {}) if is_mapping else further

    def build():
        said = items.payment_props(amount, currency, earned=earned, props=further)
        return items.event_item("payment", None, said, id_, NOW_MS)

    if is_mapping and earned is True and len(content) > 100:
        return  # The client leaves the default out, which makes room for one more.
    check(judge_events, build, {"name": "payment", "id": id_, "at": NOW_MS, "props": content})


@given(texts | lengths | st.none(), texts | st.none(), money, codes)
def test_a_subscription_is_refused_exactly_if_the_service_would_reject_it(id_, status, mrr, currency):
    at = "2026-01-01T00:00:00.000000+00:00"
    item = {"type": "subscription", "id": id_, "status": status, "mrr": mrr, "currency": currency, "at": at}
    check(judge_objects, lambda: items.subscription_item(id_, status, mrr, currency, at), item)


def test_the_currencies_are_those_of_the_service():
    assert currency_codes() == CURRENCIES


@given(st.datetimes(timezones=st.timezones() | st.just(timezone(timedelta(hours=-14)))))
def test_a_time_is_accepted_as_it_is_written(at):
    try:
        text = items.rfc_3339(at)
    except ValueError:
        assert at.year in {1, 9999}
        return
    since = at - datetime(1970, 1, 1, tzinfo=timezone.utc)  # A time that a clock shows twice equals none in UTC.
    assert datetime.fromisoformat(text) - datetime(1970, 1, 1, tzinfo=timezone.utc) == since
    item = {"type": "subscription", "id": "s", "status": "active", "mrr": 1, "currency": "eur", "at": text}
    assert is_accepted(judge_objects, json.dumps(item).encode())
    assert items.epoch_ms(at) == since // timedelta(milliseconds=1)


UNSENDABLE_BEHAVIOR = [
    (lambda mauve: mauve.track(""), ValueError),
    (lambda mauve: mauve.track(5), TypeError),
    (lambda mauve: mauve.track(None), TypeError),
    (lambda mauve: mauve.track("\ud800"), ValueError),
    (lambda mauve: mauve.track("e" * 129), ValueError),
    (lambda mauve: mauve.track("e", user=object()), TypeError),
    (lambda mauve: mauve.track("e", user=True), TypeError),
    (lambda mauve: mauve.track("e", user=math.nan), TypeError),
    (lambda mauve: mauve.track("e", user="u" * 257), ValueError),
    (lambda mauve: mauve.track("e", props=[1]), TypeError),
    (lambda mauve: mauve.track("e", props="text"), TypeError),
    (lambda mauve: mauve.track("e", id=5), TypeError),
    (lambda mauve: mauve.track("e", props={str(n): "\\" * 1024 for n in range(100)}), ValueError),
    (lambda mauve: mauve.track("e", at=datetime(2026, 1, 1)), ValueError),  # noqa: DTZ001 - the point
    (lambda mauve: mauve.track("e", at="2026-01-01"), TypeError),
    (lambda mauve: mauve.track("payment"), ValueError),
    (lambda mauve: mauve.track("payment", id="p", props={"amount": 1, "currency": "eur"}), ValueError),
    (lambda mauve: mauve.signup(user=None), ValueError),
    (lambda mauve: mauve.signup(user=""), ValueError),
    (lambda mauve: mauve.signup(user=b"ann"), TypeError),
]
UNSENDABLE_MONEY = [
    (lambda mauve: mauve.payment(id="", amount=1, currency="eur"), ValueError),
    (lambda mauve: mauve.payment(id=5, amount=1, currency="eur"), TypeError),
    (lambda mauve: mauve.payment(id="p", amount=1.0, currency="eur"), TypeError),
    (lambda mauve: mauve.payment(id="p", amount=-1, currency="eur"), ValueError),
    (lambda mauve: mauve.payment(id="p", amount=1, currency="EUR"), ValueError),
    (lambda mauve: mauve.payment(id="p", amount=1, currency="eur", user=5), TypeError),
    (lambda mauve: mauve.payment(id="p", amount=1, currency="eur", props={"amount": 2}), ValueError),
    (lambda mauve: mauve.payment(id="p", amount=1, currency="eur", props={"text": "x" * 1025}), ValueError),
    (lambda mauve: mauve.payment(id="p", amount=1, currency="eur", props={"nested": []}), TypeError),
    (lambda mauve: mauve.subscription(id="", status="active", mrr=1, currency="eur"), ValueError),
    (lambda mauve: mauve.subscription(id="s", status=None, mrr=1, currency="eur"), TypeError),
    (lambda mauve: mauve.subscription(id="s" * 130_000, status="active", mrr=1, currency="eur"), ValueError),
]
CONVERTED = [
    (lambda mauve: mauve.track("e", user=42), TypeError),
    (lambda mauve: mauve.signup(user=42), TypeError),
    (lambda mauve: mauve.track("e", props={"a": math.nan}), ValueError),
    (lambda mauve: mauve.track("e", props={"a": "x" * 1025}), ValueError),
    (lambda mauve: mauve.track("e", props={"a": object()}), TypeError),
    (lambda mauve: mauve.track("e", props={str(n): n for n in range(101)}), ValueError),
]


@pytest.mark.parametrize(("call", "error"), UNSENDABLE_MONEY)
def test_money_that_cannot_be_sent_raises_and_queues_nothing(client, call, error):
    mauve = client(url="http://127.0.0.1:1")
    with pytest.raises(error):
        call(mauve)
    assert mauve.stats == Stats()


@pytest.mark.parametrize(("call", "error"), UNSENDABLE_BEHAVIOR + UNSENDABLE_MONEY + CONVERTED)
def test_with_strict_every_call_raises_for_what_cannot_be_sent_as_it_is(client, call, error):
    mauve = client(url="http://127.0.0.1:1", strict=True)
    with pytest.raises(error):
        call(mauve)
    assert mauve.stats == Stats()


@pytest.mark.parametrize("call", [call for call, _ in UNSENDABLE_BEHAVIOR])
def test_an_event_that_cannot_be_sent_is_dropped_and_reported_and_never_raises(service, client, caplog, call):
    dropped = []
    mauve = client(on_drop=lambda item, reason: dropped.append((item, reason)))
    call(mauve)
    mauve.track("next")
    assert not mauve.flush(PATIENCE_S), "it was dropped unsent"
    assert mauve.stats == Stats(accepted=1, dropped=1)
    ((item, reason),) = dropped
    assert item["id"]
    assert "must" in reason or "takes" in reason or "surrogate" in reason
    assert f"mauve: dropped 1 item. Last reason: {reason}" in caplog.messages


def test_a_mapping_that_fails_does_not_fail_the_caller(service, client):
    class Broken(UserDict):
        def __iter__(self):
            raise RuntimeError("broken")

    mauve = client()
    mauve.track("seen", props=Broken(a=1))
    assert mauve.stats == Stats(dropped=1)


@pytest.mark.parametrize(
    ("user", "sent"), [(42, "42"), (0, "0"), (42.0, "42"), (1.5, "1.5"), (Decimal(7), "7"), (10**30, str(10**30))]
)
def test_a_number_as_user_is_sent_as_text(service, client, caplog, user, sent):
    mauve = client(flush_interval=60)
    mauve.track("seen", user=user)
    mauve.signup(user=user)
    assert mauve.flush(PATIENCE_S)
    assert [item["user"] for item in service.items()] == [sent, sent]
    assert caplog.messages == ["mauve: user is a number, and is sent as text: pass a string"]


def test_a_property_that_is_too_long_is_truncated_and_one_that_cannot_be_sent_is_left_out(service, client, caplog):
    mauve = client(flush_interval=60)
    unsendable = {
        "nan": math.nan, "infinite": -math.inf, "nested": {"a": 1}, "listed": [1], "bytes": b"b", "huge": 10**4300,
        "surrogate": "\ud800", "\ud800": 1, 5: 1, None: 1,
    }  # fmt: skip
    for _ in range(3):
        mauve.track("seen", props={"long": "é" * 1025, "kept": "é" * 1024, "none": None, **unsendable})
    assert mauve.flush(PATIENCE_S)
    expected = {"long": "é" * 1024, "kept": "é" * 1024, "none": None}
    assert [item["props"] for item in service.items()] == [expected] * 3
    assert mauve.stats == Stats(accepted=3)
    assert sum("'long' is truncated to 1024 characters" in line for line in caplog.messages) == 1
    for name in ("nan", "infinite", "nested", "listed", "bytes", "huge", "surrogate"):
        assert sum(f"the property '{name}' is left out" in line for line in caplog.messages) == 1
    assert len(caplog.messages) == len(set(caplog.messages)) <= 11


def test_properties_beyond_a_hundred_are_left_out(service, client, caplog):
    mauve = client()
    mauve.track("seen", props={"bad": math.nan, **{str(number): number for number in range(102)}})
    assert mauve.flush(PATIENCE_S)
    (item,) = service.items()
    assert item["props"] == {str(number): number for number in range(100)}
    assert caplog.messages[1:] == ["mauve: props beyond 100 keys are left out"]


def test_notes_about_any_number_of_properties_do_not_silence_failed_deliveries(service, client, caplog):
    service.answer = lambda _items: (503, {}, {})
    mauve = client(flush_interval=60)
    for number in range(1100):
        mauve.track("seen", props={f"name-{number}": math.nan})
    assert not mauve.flush(0.5)
    notes = [line for line in caplog.messages if "is left out" in line]
    assert 0 < len(notes) <= 100
    eventually(lambda: any("held" in line for line in caplog.messages))


@given(
    texts | lengths | st.integers() | st.none(),
    st.none() | texts | lengths | st.booleans() | numbers | st.just([]),
    st.none() | props | st.integers(),
)
def test_whatever_is_tracked_nothing_raises_and_what_is_queued_is_accepted(name, user, content):
    with Mauve("sk_live_x", url="http://127.0.0.1:1", timeout=0) as mauve:
        mauve.track(name, user=user, props=content)
        mauve.signup(user=user, props=content)
        assert mauve.stats.queued + mauve.stats.dropped == 2
        for outbox in mauve._delivery._outboxes.values():  # noqa: SLF001
            for entry in outbox.clear():
                assert is_accepted(judge_events, entry.body)


def test_an_empty_user_is_none_as_it_is_for_the_service(service, client):
    mauve = client()
    mauve.track("seen", user="")
    mauve.payment(id="p", amount=1, currency="eur", user="")
    assert mauve.flush(PATIENCE_S)
    assert ["user" in item for item in service.items()] == [False, False]


def test_a_publishable_key_sends_events_only(service):
    with Mauve("pk_live_x", url=service.url) as mauve:
        mauve.track("seen")
        with pytest.raises(ValueError, match="server key"):
            mauve.payment(id="p", amount=1, currency="eur")
        with pytest.raises(ValueError, match="server key"):
            mauve.subscription(id="s", status="active", mrr=1, currency="eur")
    assert mauve.stats.accepted == 1
