"""Any input gives a problem or a consistent verdict, and the same one by every way of parsing it."""

import json
from datetime import UTC, datetime, timedelta, timezone

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from mauve.core.app import Environment
from mauve.core.credential import KeyKind
from mauve.core.events import Event
from mauve.core.problems import Code, Problem
from mauve.core.times import occurred_at, parse_time_ms, parse_time_us
from mauve.ingest.rules import judge_events, judge_objects, payment_digest
from mauve.stores.published import PublishedKey
from support.logged_events import events_in

NOW = 1_794_744_000_000
SERVER = PublishedKey("key_1", b"", KeyKind.SERVER, Environment.LIVE, "proj_1", "app_1", "org_1", revoked=False)
PUBLISHABLE = msgspec.structs.replace(SERVER, kind=KeyKind.PUBLISHABLE)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()
)
VALUES = st.one_of(SCALARS, st.lists(SCALARS, max_size=3), st.dictionaries(st.text(), SCALARS, max_size=3))
TIMES = st.one_of(st.integers(), st.sampled_from(["2026-11-15T03:20:00Z", "2026-11-15T03:20:60.5+02:00", "x"]), VALUES)
PROPS = st.dictionaries(
    st.one_of(st.sampled_from(["amount", "currency", "earned"]), st.text()),
    st.one_of(SCALARS, st.sampled_from(["eur", "EUR"]), VALUES),
    max_size=6,
)
NAMES = st.one_of(st.sampled_from(["opened", "payment", "user_signup", ""]), VALUES)
LIKELY_ITEMS = st.fixed_dictionaries(
    {},
    optional={"name": NAMES, "user": VALUES, "id": VALUES, "at": TIMES, "sent_at": TIMES, "props": PROPS, "x": VALUES},
)
PAYMENTS = st.fixed_dictionaries(
    {
        "name": st.just("payment"),
        "id": st.text(min_size=1, max_size=9),
        "props": st.fixed_dictionaries(
            {"amount": st.integers(0, 3), "currency": st.sampled_from(["eur", "usd"])},
            optional={"earned": st.sampled_from([True, False, None]), "x": SCALARS},
        ),
    },
    optional={"user": st.one_of(st.none(), st.text(max_size=2)), "at": st.integers(), "unknown": VALUES},
)
ITEMS = st.one_of(LIKELY_ITEMS, PAYMENTS, VALUES)
FRAGMENTS = st.sampled_from(
    [
        *rb"""[ ] { } , : " \ \u d800 udc00 1 - . e9 0 true nul NaN "name" "payment" "a": {"name":"a"}""".split(),
        *[b" ", b"\n", b"\x00", b"\xff", "é".encode()],
    ]
)
BODIES = st.one_of(
    st.binary(max_size=60),
    st.lists(FRAGMENTS, max_size=25).map(b"".join),
    st.lists(ITEMS, max_size=4).map(lambda items: json.dumps(items).encode()),
    st.builds(
        lambda items, piece, place: splice(json.dumps(items).encode(), piece, place),
        st.lists(LIKELY_ITEMS, min_size=1, max_size=3),
        FRAGMENTS,
        st.integers(0, 200),
    ),
)
KEYS = st.sampled_from([SERVER, PUBLISHABLE])


def splice(body, piece, place):
    return body[:place] + piece + body[place:]


def is_json_by_the_standard_library(body):
    def refuse(_):
        raise ValueError

    try:
        return isinstance(json.loads(body.decode(), parse_constant=refuse, parse_int=str), dict | list)
    except ValueError:
        return False


def judged(body, judge, key=SERVER):
    try:
        return judge(body, key, NOW)
    except Problem as problem:
        return problem.code


def result_for_last(verdict):
    """Return the result for the last item."""
    last = verdict.item_count - 1
    refused = [rejection.fault.text for rejection in verdict.rejections if rejection.index == last]
    taken = [payment for index, payment in verdict.payments if index == last]
    return refused or taken or events_in(verdict.events)[-1]


@given(BODIES, KEYS)
def test_any_bytes_give_a_problem_or_a_consistent_verdict(body, key):
    verdict = judged(body, judge_events, key)
    if isinstance(verdict, Code):
        assert verdict in {Code.MALFORMED, Code.FORBIDDEN}
        return
    assert verdict.event_count + len(verdict.payments) + len(verdict.rejections) == verdict.item_count
    assert (verdict.events is None) == (verdict.event_count == 0)
    places = [index for index, _ in verdict.payments] + [rejection.index for rejection in verdict.rejections]
    assert len(set(places)) == len(places)
    assert all(0 <= place < verdict.item_count for place in places)


@given(BODIES)
def test_any_bytes_give_a_problem_or_a_verdict_on_objects(body):
    verdict = judged(body, judge_objects)
    if isinstance(verdict, Code):
        assert verdict is Code.MALFORMED
        return
    assert len(verdict.subscriptions) + len(verdict.rejections) == verdict.item_count


@given(BODIES)
def test_a_malformed_body_is_invalid_for_the_standard_library_too(body):
    is_malformed = judged(body, judge_events) is Code.MALFORMED
    assert is_malformed != is_json_by_the_standard_library(body)


@given(st.lists(ITEMS, max_size=5))
def test_every_accepted_item_is_accepted_alone(items):
    verdict = judge_events(json.dumps(items).encode(), SERVER, NOW)
    events = [] if verdict.events is None else events_in(verdict.events)
    assert len(events) == verdict.event_count
    assert all(event.name != "payment" for event in events)
    for _, payment in verdict.payments:
        [(_, again)] = judge_events(payment.payload, SERVER, NOW).payments
        assert again == payment


@given(ITEMS)
def test_an_item_gets_the_same_result_by_every_way_of_parsing(item):
    text = json.dumps(item, ensure_ascii=False).encode()
    alone = judge_events(b"[" + text + b"]", SERVER, NOW)
    next_to_a_mistake = judge_events(b"[0," + text + b"]", SERVER, NOW)
    next_to_a_payment = judge_events(b'[{"name":"payment"},' + text + b"]", SERVER, NOW)
    next_to_a_lone_surrogate = judge_events(rb'[{"name":"\udead"},' + text + b"]", SERVER, NOW)
    expected = result_for_last(alone)
    assert result_for_last(next_to_a_mistake) == expected
    assert result_for_last(next_to_a_payment) == expected
    assert result_for_last(next_to_a_lone_surrogate) == expected


@given(st.lists(st.sampled_from([r"\ud83d", r"\ude00", r"\\", "ud83d", "ude00", r"\n", "x"]), max_size=8))
def test_lone_surrogates_are_found_as_by_the_standard_library(pieces):
    text = '[{"name":"a","x":"' + "".join(pieces) + '"},{"name":"b"}]'
    is_lone = any(0xD800 <= ord(character) <= 0xDFFF for character in json.loads(text)[0]["x"])
    verdict = judge_events(text.encode(), SERVER, NOW)
    assert [rejection.index for rejection in verdict.rejections] == ([0] if is_lone else [])


def meaning(item):
    """Return the payment as the contract compares it."""
    props = {name: (isinstance(value, bool), value) for name, value in item["props"].items()}
    props["earned"] = item["props"].get("earned") is not False
    return item["id"], item.get("user") or None, props


@given(PAYMENTS, PAYMENTS)
def test_digests_are_equal_exactly_if_the_payments_are(one, other):
    digests = [payment_digest(msgspec.convert(item, Event)) for item in (one, other)]
    assert (digests[0] == digests[1]) == (meaning(one) == meaning(other))


@given(PAYMENTS, SCALARS, st.randoms())
def test_a_digest_ignores_order_times_and_unknown_fields(item, extra, random):
    props = list(item["props"].items())
    random.shuffle(props)
    changed = {"unknown": extra, "sent_at": 5, "at": 7} | item | {"props": dict(props)}
    assert payment_digest(msgspec.convert(changed, Event)) == payment_digest(msgspec.convert(item, Event))


@given(st.one_of(st.none(), st.integers()), st.one_of(st.none(), st.integers()), st.integers(0, 2**50))
def test_an_event_occurs_near_its_arrival(at, sent_at, received_at):
    assert received_at - 7 * 86_400_000 <= occurred_at(at, sent_at, received_at) <= received_at + 300_000


@given(
    st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29)),  # noqa: DTZ001 - the zone is drawn below
    st.integers(-1439, 1439),
    st.sampled_from(["auto", "seconds", "milliseconds", "microseconds"]),
)
def test_a_formatted_time_parses_to_the_same_time(naive, offset_minutes, timespec):
    text = naive.replace(tzinfo=timezone(timedelta(minutes=offset_minutes))).isoformat(timespec=timespec)
    since_epoch = datetime.fromisoformat(text) - EPOCH
    assert parse_time_ms(text) == since_epoch // timedelta(milliseconds=1)
    assert parse_time_us(text) == since_epoch // timedelta(microseconds=1)
    assert parse_time_ms(text.replace("T", "t")) == parse_time_ms(text.replace("T", " ")) == parse_time_ms(text)


@given(st.one_of(st.text(), st.text("0123456789-:.+TZtz ", max_size=30), st.integers()))
def test_any_text_is_a_time_or_none(text):
    found = parse_time_ms(text)
    assert found is None or isinstance(found, int)


MOMENTS = st.from_regex(
    r"(19|20)\d\d-[01]\d-[0-3]\d[Tt _][0-2]\d:[0-5]\d:[0-6]\d([.,]\d{0,9})?([Zz]|[+-]\d\d:?\d\d|)", fullmatch=True
)


@given(st.lists(MOMENTS, min_size=1, max_size=3), st.booleans())
def test_a_batch_is_judged_alike_on_the_fast_and_the_slow_path(moments, is_sent):
    """Everything that the fast decoder accepts as a time is a valid time."""
    batch = [{"name": "view", "at": text, **({"sent_at": text} if is_sent else {})} for text in moments]
    body = msgspec.json.encode(batch)
    verdict = judge_events(body, SERVER, NOW)
    refused = {rejection.index for rejection in verdict.rejections}
    assert refused == {index for index, text in enumerate(moments) if parse_time_ms(text) is None}
