"""Which events and payments are accepted, and which items and requests are refused."""

import contextlib
import hashlib
import json

import msgspec
import pytest

from mauve.core.app import Environment
from mauve.core.credential import KeyKind
from mauve.core.events import Event
from mauve.core.problems import Code, Problem
from mauve.ingest.rules import EventsVerdict, judge_events, payment_digest
from mauve.stores.published import PublishedKey
from support.logged_events import events_in

NOW = 1_794_744_000_000
DAY = 86_400_000
SERVER = PublishedKey("key_1", b"", KeyKind.SERVER, Environment.LIVE, "proj_1", "app_1", "org_1", revoked=False)
PUBLISHABLE = msgspec.structs.replace(SERVER, kind=KeyKind.PUBLISHABLE)
EVENT = {"name": "opened", "user": "u1"}
PAYMENT = {"name": "payment", "id": "p1", "user": "u1", "props": {"amount": 1999, "currency": "eur"}}
ITEM_BYTES_MAX = 122_880


def judge(body, key=SERVER):
    return judge_events(body if isinstance(body, bytes) else json.dumps(body).encode(), key, NOW)


def payment(**changes):
    return PAYMENT | changes


def paid(**props):
    return payment(props=PAYMENT["props"] | props)


def only_payment(body):
    verdict = judge(body)
    assert verdict.rejections == []
    assert verdict.events is None
    [(_, payment)] = verdict.payments
    return payment


def reason(item, key=SERVER):
    """Judge the item among valid ones, and return why it alone was rejected."""
    text = item if isinstance(item, bytes) else json.dumps(item).encode()
    verdict = judge(b"[" + b",".join([json.dumps(EVENT).encode(), text, json.dumps(EVENT).encode()]) + b"]", key)
    assert verdict.item_count == 3
    assert verdict.event_count == 2
    assert json.loads(verdict.events) == [EVENT, EVENT]
    assert verdict.payments == []
    [rejection] = verdict.rejections
    assert rejection.index == 1
    return rejection.fault.text


class TestWholeRequests:
    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"  ",
            b"name=opened",
            b"1",
            b'"opened"',
            b"null",
            b"true",
            b'{"name":"opened"',
            b'[{"name":"opened"}',
            b'[{"name":"opened"},]',
            b'{"name":"opened"} x',
            b'{"name":"opened"},{"name":"opened"}',
            b'[{"name":"opened"}][]',
            b'[{"name":"opened","x":NaN}]',
            b'[{"name":"opened","props":{"x":Infinity}}]',
            b'[{"name":1},{"name":"opened","x":-Infinity}]',
            b'[{"name":"opened","x":01}]',
            b"{'name':'opened'}",
            b'{"name":"a\nb"}',
            b'{"name":"\\x41"}',
            b'{"name":"\xff"}',
            b'{"name":"opened","x":"\xff"}',
            b'{"name":"opened","x":"\xed\xa0\x80"}',
            b'\xef\xbb\xbf{"name":"opened"}',
            '{"name":"opened"}'.encode("utf-16"),
            b"[" * 100_000,
            b"[" * 100_000 + b"]" * 100_000,
            b'{"name":"opened","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
            b'[{"name":1},{"name":"opened","x":' + b'{"x":' * 50_000,
            b"[\\ud800]",
            b'[{"name":"\\ud800"},x]',
            b'[{"name":"opened",\\ud800:1}]',
        ],
    )
    def test_a_body_that_is_not_json_is_malformed(self, body):
        with pytest.raises(Problem) as problem:
            judge(body)
        assert problem.value.code is Code.MALFORMED

    @pytest.mark.parametrize(
        ("body", "expected"),
        [
            (b"", "it is empty"),
            (b" \n", "it is empty"),
            (b'[{"name":"opened"}', "it ends too early"),
            (b'{"name":"opened",}', "trailing comma in object at line 1, column 18 (byte 17)"),
            ('[{"name":"é"},\n {"name":"öffne" x}]'.encode(), "expected ',' or '}' at line 2, column 18 (byte 34)"),
            (b'[{"name":"\\ud800"},x]', "invalid character"),
        ],
    )
    def test_malformed_json_is_reported_with_its_position(self, body, expected):
        with pytest.raises(Problem) as problem:
            judge(body)
        assert str(problem.value) == f"the body is not valid JSON: {expected}"

    @pytest.mark.parametrize(
        ("body", "expected"),
        [
            (b"5", "the body must be a JSON object or an array of objects"),
            (b"null", "the body must be a JSON object or an array of objects"),
            (b"[" * 100_000, "the body is nested too deeply"),
            (b'{"name":"\xff"}', "the body is not valid UTF-8 at byte 9"),
        ],
    )
    def test_other_bodies_are_refused_for_what_they_are(self, body, expected):
        with pytest.raises(Problem) as problem:
            judge(body)
        assert str(problem.value) == expected

    @pytest.mark.parametrize("item", [b'{"name":"opened"}', b"0", b'{"name":"\\ud800"}', b'{"name":"payment"}'])
    @pytest.mark.parametrize("key", [SERVER, PUBLISHABLE])
    def test_more_than_500_items_are_too_many(self, item, key):
        with pytest.raises(Problem) as problem:
            judge(b"[" + b",".join([item] * 501) + b"]", key)
        assert problem.value.code is Code.TOO_LARGE

    def test_a_malformed_body_is_reported_before_too_many_items(self):
        with pytest.raises(Problem) as problem:
            judge(b"[" + b",".join([b'{"name":"opened"}'] * 501) + b",x]")
        assert problem.value.code is Code.MALFORMED

    def test_500_items_are_accepted(self):
        assert judge([EVENT] * 500).event_count == 500

    @pytest.mark.parametrize(
        "body",
        [
            PAYMENT,
            [PAYMENT, PAYMENT],
            [PAYMENT, {"name": "payment"}],
            [{"name": "payment", "props": {"x": {}}, "user": 1}],
            b'{"name":"payment","user":"\\ud800"}',
            b'{"name":"opened","name":"payment"}',
            b'{"name":"p\\u0061yment"}',
        ],
    )
    def test_a_publishable_key_may_not_send_only_payments(self, body):
        with pytest.raises(Problem) as problem:
            judge(body, PUBLISHABLE)
        assert problem.value.code is Code.FORBIDDEN
        assert judge(body, SERVER).item_count >= 1

    @pytest.mark.parametrize("other", [EVENT, 1, {}, {"name": 1}, {"name": "Payment"}])
    def test_one_other_item_makes_the_payments_rejections(self, other):
        verdict = judge([PAYMENT, other], PUBLISHABLE)
        assert verdict.rejections[0].fault.text == "a payment requires a server key"
        assert verdict.payments == []

    @pytest.mark.parametrize("key", [SERVER, PUBLISHABLE])
    def test_an_empty_batch_holds_nothing(self, key):
        assert judge(b" [ ] ", key) == EventsVerdict(None, 0, [], [], 0)


class TestNesting:
    @pytest.mark.parametrize("padding", [b"", b" " * ITEM_BYTES_MAX])
    @pytest.mark.parametrize("name", [b"opened", b"payment"])
    def test_nothing_breaks_at_the_nesting_limit(self, name, padding):
        for depth in range(300, 1100):
            nested = b'{"x":' * depth + b"0" + b"}" * depth
            body = b'[0,{"name":"%b","id":"p\\n","x":%b,"props":{"amount":1,"currency":"eur"}%b}]' % (
                name,
                nested,
                padding,
            )
            with contextlib.suppress(Problem):
                assert judge(body).item_count == 2


class TestLoggedEvents:
    @pytest.mark.parametrize(
        "body",
        [
            b'{"name":"opened"}',
            b' \r\n\t{ "name" : "opened" } ',
            b'[{"name":"opened"}]',
            b' [ {"name":"opened", "x":[[1e400]]} , {"name" : "user_signup"} ] ',
            b'[{"name":"a","at":5,"props":{"x":1e2,"y":123456789012345678901234567890}}]',
        ],
    )
    def test_valid_events_are_logged_unchanged(self, body):
        verdict = judge(body)
        assert verdict.events == body
        assert verdict.event_count == verdict.item_count == len(events_in(body))
        assert verdict.rejections == verdict.payments == []

    def test_a_large_body_of_small_events_is_logged_unchanged(self):
        body = json.dumps([EVENT | {"props": {"x": "y" * 900}}] * 200).encode()
        assert len(body) > ITEM_BYTES_MAX
        assert judge(body).events == body

    def test_the_valid_events_of_a_mixed_batch_are_logged_unchanged(self):
        verdict = judge(b'[ {"name" : "a"}, 5, {"name":"payment"}, {"name":"b","x":"\\u00e9"}]')
        assert verdict.events == b'[{"name" : "a"},{"name":"b","x":"\\u00e9"}]'
        assert (verdict.event_count, verdict.item_count) == (2, 4)
        assert [rejection.index for rejection in verdict.rejections] == [1, 2]

    def test_payments_and_events_are_separated(self):
        verdict = judge([EVENT, payment(id="a"), EVENT, payment(id="b")])
        assert json.loads(verdict.events) == [EVENT, EVENT]
        assert [(index, each.id) for index, each in verdict.payments] == [(1, "a"), (3, "b")]

    def test_nothing_is_logged_when_nothing_is_valid(self):
        assert judge([1, {}]).events is None


class TestItems:
    @pytest.mark.parametrize(
        "item",
        [
            {"name": "n" * 128},
            {"name": "😀" * 128, "user": "é" * 256, "id": "😀" * 256},
            {"name": " "},
            {"name": "a\u0000b"},
            {"name": "a", "user": "", "id": ""},
            {"name": "a", "user": None, "id": None, "at": None, "sent_at": None, "props": None},
            {"name": "a", "at": "2026-11-15T03:20:00Z", "sent_at": 1_763_176_800_000},
            {"name": "a", "at": -(10**30), "sent_at": 10**400},
            {"name": "a", "props": {}},
            {"name": "a", "props": {"s": "😀" * 1024, "i": 10**30, "f": -1.5, "t": True, "n": None, "": ""}},
            {"name": "a", "props": {str(number): number for number in range(100)}},
            {"name": "a", "amount": {"deep": [{}]}, "type": 5},
            {"name": "user_signup"},
            {"name": "Payment"},
        ],
    )
    def test_an_item_within_the_contract_is_an_event(self, item):
        for key in (SERVER, PUBLISHABLE):
            assert judge(item, key).event_count == 1
            assert judge([1, item], key).event_count == 1

    @pytest.mark.parametrize(
        ("item", "expected"),
        [
            (5, "an item must be a JSON object"),
            (None, "an item must be a JSON object"),
            ("opened", "an item must be a JSON object"),
            ([EVENT], "an item must be a JSON object"),
            ({}, "name is required"),
            ({"user": "u"}, "name is required"),
            ({"name": None}, "name is required"),
            ({"name": 1}, "name must be a string of 1 to 128 characters"),
            ({"name": ""}, "name must be"),
            ({"name": "n" * 129}, "name must be"),
            ({"name": "😀" * 129}, "name must be"),
            (EVENT | {"user": 1}, "user must be"),
            (EVENT | {"user": "u" * 257}, "user must be"),
            (EVENT | {"id": True}, "id must be"),
            (EVENT | {"id": "i" * 257}, "id must be"),
            (EVENT | {"at": "yesterday"}, "at must be"),
            (EVENT | {"at": ""}, "at must be"),
            (EVENT | {"at": "2026-11-15T03:20:00"}, "at must be"),
            (EVENT | {"at": 1.5}, "at must be"),
            (EVENT | {"at": 1.0}, "at must be"),
            (EVENT | {"at": True}, "at must be"),
            (EVENT | {"at": []}, "at must be"),
            (EVENT | {"sent_at": "2026-11-15"}, "sent_at must be"),
            (EVENT | {"sent_at": {}}, "sent_at must be"),
            (EVENT | {"props": []}, "props must be"),
            (EVENT | {"props": "x"}, "props must be"),
            (EVENT | {"props": {str(number): number for number in range(101)}}, "props must be"),
            (EVENT | {"props": {"x": {}}}, "each value in props"),
            (EVENT | {"props": {"x": []}}, "each value in props"),
            (EVENT | {"props": {"x": "s" * 1025}}, "each value in props"),
            (b'{"name":"a","props":{"x":1e400}}', "props holds a number that is out of range"),
            (b'{"name":"a","props":{"x":' + b"9" * 5000 + b"}}", "props holds a number that is out of range"),
            (b'{"name":"a","at":' + b"9" * 5000 + b"}", "at holds a number that is out of range"),
        ],
    )
    def test_an_invalid_item_is_rejected_alone_and_the_field_is_named(self, item, expected):
        assert reason(item).startswith(expected)
        assert reason(item, PUBLISHABLE).startswith(expected)

    @pytest.mark.parametrize(
        "text",
        [
            rb'{"name":"\ud800"}',
            rb'{"name":"a","user":"\udc00"}',
            rb'{"name":"a","x":["\uD83D\u0041"]}',
            rb'{"name":"a","props":{"\ud83d":1}}',
            rb'{"name":"a","x":"\\\ud800"}',
            rb'{"name":"a","x":"\ud83d\ud83d\ude00"}',
            rb'{"name":"a","x":"\\ud83d\ude00"}',
        ],
    )
    def test_a_lone_surrogate_affects_only_its_own_item(self, text):
        assert "lone surrogate" in reason(text)

    @pytest.mark.parametrize("text", [rb'{"name":"\ud83d\ude00"}', rb'{"name":"\\ud800"}', rb'{"name":"\\\\ud800"}'])
    def test_text_that_only_looks_like_a_lone_surrogate_is_accepted(self, text):
        verdict = judge(b'[{"name":"\\ud800"},' + text + b"]")
        assert verdict.events == b"[" + text + b"]"

    @pytest.mark.parametrize("text", [b'{"name":"a","name":"b"}', b'{"name":"a","props":{"x":1,"x":"y"},"name":"b"}'])
    def test_the_last_of_a_repeated_key_counts(self, text):
        assert events_in(judge(text).events)[0].name == "b"
        assert judge(text).events == text

    def test_no_reason_echoes_a_value(self):
        canary = "canary - at `$.name`"
        items = [
            *[EVENT | {field: {canary: canary}} for field in ("name", "user", "id", "at", "sent_at")],
            *[EVENT | {"at": canary}, EVENT | {"props": canary}, EVENT | {"props": {canary: [canary]}}, canary],
            *[payment(id={canary: canary}), paid(amount=canary), paid(currency=canary), paid(earned=canary)],
        ]
        rejections = judge(items).rejections
        assert len(rejections) == len(items)
        assert not any("canary" in rejection.fault.text for rejection in rejections)


class TestItemSize:
    def test_an_item_over_120_kb_is_rejected_with_its_size(self):
        item = EVENT | {"x": "y" * ITEM_BYTES_MAX}
        size = len(json.dumps(item, separators=(",", ":")))
        assert f" {size} bytes" in reason(item)

    @pytest.mark.parametrize(
        ("text", "is_kept"),
        [
            (b'{"name":"a","x":"' + b"y" * (ITEM_BYTES_MAX - 19) + b'"}', True),
            (b'{"name":"a","x":"' + b"y" * (ITEM_BYTES_MAX - 18) + b'"}', False),
            (b'{"name":"a"' + b" " * ITEM_BYTES_MAX + b"}", True),
            (b'{"name":"a","x":"' + b"\\u00e9" * 50_000 + b'"}', True),
            (b'{"name":"a","x":"' + b"\\u00e9" * 62_000 + b'"}', False),
            (b'{"name":"a","x":' + b"9" * (ITEM_BYTES_MAX - 17) + b" }", True),
            (b'{"name":"a","x":' + b"9" * (ITEM_BYTES_MAX - 16) + b" }", False),
        ],
    )
    def test_the_size_is_that_of_compact_json_in_utf_8(self, text, is_kept):
        assert judge(text).event_count == is_kept
        assert judge(b"[" + text + b"]").event_count == is_kept

    def test_an_event_at_every_limit_in_ascii_is_accepted(self):
        props = {f"{number:03}" + "k" * 125: "v" * 1024 for number in range(100)}
        assert judge({"name": "n" * 128, "user": "u" * 256, "id": "i" * 256, "props": props}).event_count == 1


class TestPayments:
    def test_a_payment_is_recorded_exactly(self):
        item = payment(at="2026-11-15T12:00:00Z", sent_at=1, extra={"x": 1})
        text = json.dumps(item).encode()
        taken = only_payment(text)
        assert (taken.org_id, taken.project, taken.id, taken.user) == ("org_1", "proj_1", "p1", "u1")
        assert (taken.amount, taken.currency, taken.earned) == (1999, "eur", True)
        assert taken.claimed_at == 1_794_744_000_000
        assert taken.occurred_at == NOW + 300_000
        assert (taken.received_at, taken.payload, taken.source) == (NOW, text, "api")

    @pytest.mark.parametrize(
        ("times", "claimed_at", "occurred_at"),
        [
            ({}, None, NOW),
            ({"at": None, "sent_at": 5}, None, NOW),
            ({"at": NOW - 5}, NOW - 5, NOW - 5),
            ({"at": 1000, "sent_at": 1040}, 1000, NOW - 40),
            ({"at": 0}, 0, NOW - 7 * DAY),
            ({"at": 10**30}, 2**62, NOW + 300_000),
            ({"at": -(10**30)}, -(2**62), NOW - 7 * DAY),
        ],
    )
    def test_the_claimed_time_is_kept_and_the_effective_time_clamped(self, times, claimed_at, occurred_at):
        taken = only_payment(payment(**times))
        assert (taken.claimed_at, taken.occurred_at) == (claimed_at, occurred_at)

    @pytest.mark.parametrize(
        ("amount", "expected"), [(b"0", 0), (b"-0", 0), (b"1", 1), (b"9007199254740991", 2**53 - 1)]
    )
    def test_an_amount_is_a_whole_number_of_minor_units(self, amount, expected):
        text = b'{"name":"payment","id":"p","props":{"amount":%b,"currency":"usd"}}' % amount
        assert only_payment(text).amount == expected

    @pytest.mark.parametrize(
        "amount",
        [
            b"1.0",
            b"1.5",
            b"1e2",
            b"1E0",
            b"-0.0",
            b'"1"',
            b'""',
            b"true",
            b"9007199254740992",
            b"1%018d" % 0,
        ],
    )
    def test_any_other_amount_is_rejected(self, amount):
        text = b'{"name":"payment","id":"p","props":{"amount":%b,"currency":"usd"}}' % amount
        assert reason(text).startswith("props.amount must be")

    @pytest.mark.parametrize("amount", [-1, -(2**53), -(10**30)])
    def test_a_negative_amount_is_rejected_as_a_refund(self, amount):
        assert reason(paid(amount=amount)).startswith("props.amount must not be negative: refunds are not recorded")

    @pytest.mark.parametrize(
        ("item", "expected"),
        [
            (payment(id=None), "id is required"),
            (payment(id=""), "id is required"),
            (payment(id="i" * 257), "id must be"),
            (payment(props=None), "props.amount is required"),
            (payment(props={}), "props.amount is required"),
            (paid(amount=None), "props.amount is required"),
            (payment(props={"amount": 5}), "props.currency is required"),
            (paid(currency=None), "props.currency is required"),
            (paid(currency="EUR"), "props.currency must be in lowercase letters"),
            (paid(currency="zzz"), "props.currency is not an ISO 4217 code"),
            (paid(currency="\u212arw"), "props.currency is not an ISO 4217 code"),
            (paid(currency=978), "props.currency must be an ISO 4217 code"),
            (paid(currency=""), "props.currency is not an ISO 4217 code"),
            (paid(earned="true"), "props.earned"),
            (paid(earned=1), "props.earned"),
            (paid(earned=0.0), "props.earned"),
            (payment(at="soon"), "at must be"),
            (payment(sent_at="soon"), "sent_at must be"),
        ],
    )
    def test_a_payment_that_breaks_a_rule_is_rejected(self, item, expected):
        assert reason(item).startswith(expected)

    @pytest.mark.parametrize(
        "text",
        [
            b'{"id":"p","name":"payment","id":"p","props":{"amount":1,"currency":"eur"}}',
            b'{"id":"p","name":"opened","name":"payment","props":{"amount":1,"currency":"eur"}}',
            b'{"name":"payment","id":"p","props":{"amount":1,"currency":"eur","amount":1}}',
            b'{"name":"payment","id":"p","props":{"amount":1,"currency":"eur","\\u0061mount":1}}',
            b'{"name":"payment","id":"p","x":1,"x":1e400,"props":{"amount":1,"currency":"eur"}}',
            b'{"name":"payment","id":"p","props":{},"props":{"amount":1,"currency":"eur"}}',
        ],
    )
    def test_a_payment_with_a_repeated_key_is_rejected(self, text):
        assert reason(text) == "no key may appear twice"

    @pytest.mark.parametrize(
        "text",
        [
            b'{"name":"payment","id":"id","props":{"amount":1,"currency":"eur","id":"id","name":"\\"name\\":"}}',
            b'{ "name" : "payment" , "id" : "\\u0000", "props" : {"amount":1, "currency":"eur","x:":":"} }',
            b'{"name":"payment","id":"p","x":1e400,"props":{"amount":1,"currency":"eur"}}',
            b'{"name":"payment","id":"p","x":{"y":1,"y":2},"props":{"amount":1,"currency":"eur"}}',
        ],
    )
    def test_a_key_that_only_looks_repeated_is_accepted(self, text):
        assert only_payment(text).amount == 1

    @pytest.mark.parametrize(("earned", "expected"), [(None, True), (True, True), (False, False)])
    def test_a_payment_is_earned_unless_it_says_otherwise(self, earned, expected):
        assert only_payment(paid(earned=earned)).earned is expected

    def test_a_payment_from_a_publishable_key_is_rejected_alone(self):
        assert reason(PAYMENT, PUBLISHABLE) == "a payment requires a server key"


class TestDigests:
    @pytest.mark.parametrize(
        "same",
        [
            paid(earned=True),
            paid(earned=None),
            payment(at=5, sent_at="2026-11-15T12:00:00Z", unknown=[1]),
            dict(reversed(payment(props=dict(reversed(PAYMENT["props"].items()))).items())),
        ],
    )
    def test_equal_payloads_have_equal_digests(self, same):
        assert only_payment(same).digest == only_payment(PAYMENT).digest

    @pytest.mark.parametrize(("one", "other"), [(1, 1.0), (0, -0.0), (10**22, 1e22), (0.1, 0.10)])
    def test_numbers_of_equal_value_are_equal(self, one, other):
        assert only_payment(paid(x=one)).digest == only_payment(paid(x=other)).digest

    def test_an_absent_and_an_empty_user_are_equal(self):
        silent = {name: value for name, value in PAYMENT.items() if name != "user"}
        digests = {only_payment(item).digest for item in (silent, payment(user=None), payment(user=""))}
        assert len(digests) == 1

    def test_different_payloads_have_different_digests(self):
        items = [
            PAYMENT,
            payment(id="p2"),
            payment(user="u2"),
            payment(user=None),
            paid(amount=2000),
            paid(currency="usd"),
            paid(earned=False),
            *[
                paid(x=value)
                for value in (None, True, False, 0, 1, "1", "", "true", 1.5, "0x1.8000000000000p+0", "null")
            ],
            paid(y=1),
        ]
        assert len({only_payment(item).digest for item in items}) == len(items)

    def test_the_digest_format_never_changes(self):
        event = Event(
            "payment", "ü\u0000", "p1", props={"x": 0.1, "amount": 5, "earned": True, "big": 10**20, "z": 2.0}
        )
        form = r'["payment","ü\u0000","p1",{"amount":5,"big":100000000000000000000,"x":["0x1.999999999999ap-4"],"z":2}]'
        assert payment_digest(event) == hashlib.sha256(form.encode()).digest()
