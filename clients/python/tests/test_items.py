"""A call raises exactly for what the service would reject."""

import json
import math
import string
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mauve.core.app import Environment
from mauve.core.credential import KeyKind
from mauve.core.money import currency_codes
from mauve.core.problems import Problem
from mauve.ingest.rules import judge_events, judge_objects
from mauve.stores.edge import PublishedKey

from mauve_metrics import Mauve
from mauve_metrics import _items as items
from mauve_metrics._currencies import CURRENCIES
from stub import PATIENCE_S

PUBLISHED = PublishedKey(
    "key_1", 1, bytes(32), KeyKind.SERVER, Environment.LIVE, "proj_1", "app_1", "org_1", revoked=False
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


def is_accepted(judge, body):
    try:
        return not judge(body, PUBLISHED, NOW_MS).rejections
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


def check(judge, build, item):
    sent = as_sent(build)
    if sent is not None:
        assert is_accepted(judge, sent)
    elif not has_a_key_that_is_no_string(item.get("props")):
        body = raw(item)
        assert body is None or not is_accepted(judge, body[:-1] + b',"sent_at":%d}' % NOW_MS)


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


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda mauve: mauve.track(""), ValueError),
        (lambda mauve: mauve.track(5), TypeError),
        (lambda mauve: mauve.track("e", user=5), TypeError),
        (lambda mauve: mauve.track("e", props=[1]), TypeError),
        (lambda mauve: mauve.track("e", props={"a": math.nan}), ValueError),
        (lambda mauve: mauve.track("e", props={"a": object()}), TypeError),
        (lambda mauve: mauve.track("e", at=datetime(2026, 1, 1)), ValueError),  # noqa: DTZ001 - the point
        (lambda mauve: mauve.track("e", at="2026-01-01"), TypeError),
        (lambda mauve: mauve.track("payment"), (TypeError, ValueError)),
        (lambda mauve: mauve.signup(), TypeError),
        (lambda mauve: mauve.signup(user=None), ValueError),
        (lambda mauve: mauve.signup(user=""), ValueError),
        (lambda mauve: mauve.signup(user=5), TypeError),
        (lambda mauve: mauve.payment(id="", amount=1, currency="eur"), ValueError),
        (lambda mauve: mauve.payment(id=5, amount=1, currency="eur"), TypeError),
        (lambda mauve: mauve.payment(id="p", amount=1.0, currency="eur"), TypeError),
        (lambda mauve: mauve.payment(id="p", amount=-1, currency="eur"), ValueError),
        (lambda mauve: mauve.payment(id="p", amount=1, currency="EUR"), ValueError),
        (lambda mauve: mauve.payment(id="p", amount=1, currency="eur", props={"amount": 2}), ValueError),
        (lambda mauve: mauve.subscription(id="", status="active", mrr=1, currency="eur"), ValueError),
        (lambda mauve: mauve.subscription(id="s", status=None, mrr=1, currency="eur"), TypeError),
    ],
)
def test_a_refused_call_queues_nothing(client, call, error):
    mauve = client(url="http://127.0.0.1:1")
    with pytest.raises(error):
        call(mauve)
    assert mauve.stats.queued == 0


def test_an_empty_user_is_none_as_it_is_for_the_service(service, client):
    mauve = client()
    mauve.track("seen", user="")
    mauve.payment(id="p", amount=1, currency="eur", user="")
    assert mauve.flush(PATIENCE_S)
    assert ["user" in item for item in service.items()] == [False, False]
    with pytest.raises(ValueError, match="pass the id of the new one"):
        mauve.signup(user="")


def test_a_publishable_key_sends_events_only(service):
    with Mauve("pk_live_x", url=service.url) as mauve:
        mauve.track("seen")
        with pytest.raises(ValueError, match="server key"):
            mauve.payment(id="p", amount=1, currency="eur")
        with pytest.raises(ValueError, match="server key"):
            mauve.track("payment", id="p", props={"amount": 1, "currency": "eur"})
        with pytest.raises(ValueError, match="server key"):
            mauve.subscription(id="s", status="active", mrr=1, currency="eur")
    assert mauve.stats.accepted == 1
