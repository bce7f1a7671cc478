"""Which subscription versions are accepted, and which items and requests are refused."""

import contextlib
import json

import pytest

from mauve.core.app import Environment
from mauve.core.credential import KeyKind
from mauve.core.problems import Code, Problem
from mauve.ingest.rules import ObjectsVerdict, judge_objects
from mauve.stores.published import PublishedKey

NOW = 1_794_744_000_000
KEY = PublishedKey("key_1", b"", KeyKind.SERVER, Environment.LIVE, "proj_1", "app_1", "org_1", revoked=False)
SUBSCRIPTION = {"type": "subscription", "id": "s1", "status": "active", "mrr": 999, "currency": "eur"}
ITEM_BYTES_MAX = 122_880


WRONG_TYPE = 'type is not supported: only "subscription" is supported'
NO_CURRENCY = "currency is not an ISO 4217 code"


def judge(body):
    return judge_objects(body if isinstance(body, bytes) else json.dumps(body).encode(), KEY, NOW)


def subscription(**changes):
    return SUBSCRIPTION | changes


def without(field):
    return {name: value for name, value in SUBSCRIPTION.items() if name != field}


def only_version(body):
    verdict = judge(body)
    assert verdict.rejections == []
    [(_, version)] = verdict.subscriptions
    return version


def reason(item):
    """Judge the item among valid ones, and return why it alone was rejected."""
    good = json.dumps(SUBSCRIPTION).encode()
    text = item if isinstance(item, bytes) else json.dumps(item).encode()
    verdict = judge(b"[" + b",".join([good, text, good]) + b"]")
    assert verdict.item_count == 3
    assert [index for index, _ in verdict.subscriptions] == [0, 2]
    [rejection] = verdict.rejections
    assert rejection.index == 1
    return rejection.fault.text


def test_a_subscription_is_recorded_exactly():
    text = json.dumps(subscription(at="2026-11-15T12:00:00.123456Z", unknown={"x": [1]})).encode()
    taken = only_version(text)
    assert (taken.project, taken.id, taken.status) == ("proj_1", "s1", "active")
    assert (taken.mrr, taken.currency) == (999, "eur")
    assert (taken.at, taken.received_at, taken.payload) == (1_794_744_000_123_456, NOW, text)


def test_a_batch_keeps_its_order():
    verdict = judge([subscription(id="a"), subscription(id="b")])
    assert [(index, version.id) for index, version in verdict.subscriptions] == [(0, "a"), (1, "b")]


def test_an_empty_batch_holds_nothing():
    assert judge(b"[]") == ObjectsVerdict([], [], 0)


@pytest.mark.parametrize("item", [SUBSCRIPTION, subscription(at=None)])
def test_a_missing_time_becomes_the_receive_time(item):
    assert only_version(item).at == NOW * 1000


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        ("0001-01-01T00:00:00Z", -62_135_596_800_000_000),
        ("9999-12-31T23:59:59.999999Z", 253_402_300_799_999_999),
    ],
)
def test_the_version_time_is_not_clamped(at, expected):
    assert only_version(subscription(at=at)).at == expected


@pytest.mark.parametrize("currency", ["eur", "EUR", "Eur"])
def test_a_currency_is_lowercased(currency):
    assert only_version(subscription(currency=currency)).currency == "eur"


@pytest.mark.parametrize("id_", ["i" * 257, "\0", "\N{FAMILY}" * 100_000])
def test_an_id_is_limited_only_by_the_body(id_):
    assert only_version(subscription(id=id_)).id == id_


@pytest.mark.parametrize("status", ["", "s" * 129, "s" * 200, " active", "Active", "\0"])
def test_a_status_is_any_text(status):
    assert only_version(subscription(status=status)).status == status


def test_a_long_status_is_kept_in_the_payload_and_identified_by_a_fingerprint():
    taken = [only_version(subscription(status="s" * 100_000 + end)) for end in "ab"]
    assert all(len(each.status) == 200 + len("#truncated#") + 16 for each in taken)
    assert taken[0].status != taken[1].status
    assert json.loads(taken[0].payload)["status"] == "s" * 100_000 + "a"


@pytest.mark.parametrize("code", ["BGN", "hrk", "ang", "dem"])
def test_a_withdrawn_currency_is_accepted(code):
    assert only_version(subscription(currency=code)).currency == code.lower()


@pytest.mark.parametrize("mrr", [0, 1, 2**53 - 1])
def test_mrr_is_a_whole_number_of_minor_units(mrr):
    assert only_version(subscription(mrr=mrr)).mrr == mrr


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (5, "an item must be a JSON object"),
        ([SUBSCRIPTION], "an item must be a JSON object"),
        *[(without(field), f"{field} is required") for field in SUBSCRIPTION],
        *[(subscription(**{field: None}), f"{field} is required") for field in SUBSCRIPTION],
        *[(subscription(**{field: {}}), f"{field} must be") for field in SUBSCRIPTION if field != "type"],
        *[(subscription(**{field: ""}), f"{field} must be") for field in ("id", "mrr")],
        *[(subscription(type=type_), WRONG_TYPE) for type_ in ("invoice", "Subscription", "", {}, 5, False)],
        ({"type": "customer"}, WRONG_TYPE),
        ({"type": "customer", "id": 5, "status": None}, WRONG_TYPE),
        ({"status": 5, "type": "customer"}, WRONG_TYPE),
        ({"status": 5}, 'type is required: only "subscription" is supported'),
        ({}, 'type is required: only "subscription" is supported'),
        (subscription(id=5), "id must be"),
        (subscription(status=5), "status must be"),
        *[(subscription(mrr=mrr), "mrr must be") for mrr in (-1, 1.0, 1.5, "1", True, 2**53, 10**30)],
        (json.dumps(SUBSCRIPTION).replace("999", "1e2").encode(), "mrr must be"),
        (subscription(currency=978), "currency must be an ISO 4217 code"),
        *[(subscription(currency=code), NO_CURRENCY) for code in ("zzz", "euro", "", " eur", "\u212arw")],
        *[(subscription(at=at), "at must be") for at in (5, 1.5, True, "", "2026-11-15", "2026-11-15T12:00:00", [])],
        (b'{"id":"a",' + json.dumps(SUBSCRIPTION).encode()[1:], "no key may appear twice"),
        (json.dumps(SUBSCRIPTION).encode()[:-1] + b', "x":1, "\\u0078":1}', "no key may appear twice"),
        (rb'{"x":"\ud800",' + json.dumps(SUBSCRIPTION).encode()[1:], "a string holds a lone surrogate"),
    ],
)
def test_an_invalid_item_is_rejected_alone_and_the_field_is_named(item, expected):
    assert reason(item).startswith(expected)


def test_an_item_may_be_as_large_as_the_body():
    assert only_version(subscription(x="y" * ITEM_BYTES_MAX)).id == "s1"


def test_no_reason_echoes_a_value():
    canary = "canary - at `$.type`"
    items = [subscription(**{field: canary}) for field in ("type", "mrr", "currency", "at")]
    rejections = judge(items).rejections
    assert len(rejections) == len(items)
    assert not any("canary" in rejection.fault.text for rejection in rejections)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", Code.MALFORMED),
        (b"5", Code.MALFORMED),
        (b"[{]", Code.MALFORMED),
        (b'[{"type":"\xff"}]', Code.MALFORMED),
        (b'[{"type":NaN}]', Code.MALFORMED),
        (b"[" * 100_000, Code.MALFORMED),
        (b"[" + b",".join([b"{}"] * 501) + b"]", Code.TOO_LARGE),
    ],
)
def test_an_invalid_request_fails_with_its_problem(body, code):
    with pytest.raises(Problem) as problem:
        judge(body)
    assert problem.value.code is code


def test_nothing_breaks_at_the_nesting_limit():
    for depth in range(300, 1100):
        nested = b'"\\n":' + b"[" * depth + b"]" * depth
        with contextlib.suppress(Problem):
            assert judge(json.dumps(SUBSCRIPTION).encode()[:-1] + b"," + nested + b"}").item_count == 1
