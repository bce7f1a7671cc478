"""Hints about accepted items: which times were moved, and which values probably mean something else."""

import json
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mauve.core.app import Environment
from mauve.core.credential import KeyKind
from mauve.core.times import DAY_MS, occurred_at, parse_time_ms
from mauve.ingest.hints import NO_HINTS, SECONDS_HINT, TIME_NAMES
from mauve.ingest.rules import judge_events, judge_objects
from mauve.stores.published import PublishedKey

NOW = 1_794_744_000_000  # 2026-11-15T12:00:00Z
MINUTE = 60_000
SERVER = PublishedKey("key_1", b"", KeyKind.SERVER, Environment.LIVE, "proj_1", "app_1", "org_1", revoked=False)
PAYMENT = {"name": "payment", "id": "p1", "props": {"amount": 5, "currency": "eur"}}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def written(ms):
    return (EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds")


def hints(*items, key=SERVER):
    return judge_events(json.dumps(items).encode(), key, NOW).hints


def timed(at, sent_at=None, **fields):
    return {"name": "view", "at": at, **({} if sent_at is None else {"sent_at": sent_at}), **fields}


def moved(*items):
    return hints(*items).headers.get("x-service-moved")


def test_usual_times_give_no_hints():
    usual = [{"name": "view"}, {"name": "view", "sent_at": written(NOW)}]
    usual += [timed(form(NOW + offset)) for form in (int, written) for offset in (-7 * DAY_MS, -5, 0, 5 * MINUTE)]
    usual += [timed(form(NOW - 90 * DAY_MS), form(NOW - 90 * DAY_MS + 5)) for form in (int, written)]
    assert hints(*usual).words == {}
    assert hints(*usual).headers == {}
    assert hints({"name": "view"}, timed(written(NOW))) is NO_HINTS


@pytest.mark.parametrize("form", [int, written], ids=["integers", "texts"])
@pytest.mark.parametrize("with_fault", [False, True], ids=["clean", "mixed"])
def test_old_times_are_counted_by_the_day_or_month_they_claim(form, with_fault):
    ages = {"2026-11-07": 8, "2026-10-26": 20, "2026-09-16": 60, "2026-09": 61, "2025-12": 340, "earlier": 360}
    items = [timed(form(NOW - days * DAY_MS)) for days in ages.values()] + [timed(form(NOW))]
    found = hints(*items, *([{"name": ""}] if with_fault else []))
    assert found.words == {f"moved_past:{claim}": 1 for claim in ages}
    assert found.headers == {"x-service-moved": "6", "x-service-moved-items": "0-5"}


@pytest.mark.parametrize("form", [int, written], ids=["integers", "texts"])
def test_moved_items_are_named_by_their_index_in_the_batch(form):
    old, now = timed(form(NOW - 30 * DAY_MS)), timed(form(NOW))
    late = timed(form(NOW - 40 * DAY_MS), form(NOW - 20 * DAY_MS))
    paid = PAYMENT | {"at": form(NOW + DAY_MS)}
    for items, indexes in (
        ([now, old], "1"),
        ([old, now, old, old, {"name": "view"}, late], "0, 2-3, 5"),
        ([{"name": ""}, old, {"at": form(0)}, paid, now], "1, 3"),
        ([old] * 500, "0-499"),
    ):
        assert hints(*items).headers["x-service-moved-items"] == indexes
    alternating = hints(*([old, now] * 250)).headers["x-service-moved-items"]
    assert alternating.endswith(", 498")
    assert len(alternating) < 2_000


RESEMBLES_SIGNUP = "a name resembles user_signup: only user_signup counts as a signup"


@pytest.mark.parametrize(
    "name", ["User_Signup", "signup", "Sign Up", "SIGN-UP", "userSignup", "signed_up", " user_signup"]
)
def test_a_misspelled_signup_gives_a_hint(name):
    misspelled = {"name": name, "user": "ann"}
    for items, count in (([misspelled], 1), ([{"name": "view"}, misspelled, misspelled, PAYMENT, {}], 2)):
        found = hints(*items)
        assert found.words == {"signup_resembles": count}
        assert found.headers == {"x-service-hint": RESEMBLES_SIGNUP}
    both = hints(misspelled | {"at": NOW // 1000})
    assert both.headers["x-service-hint"] == f"{SECONDS_HINT}; {RESEMBLES_SIGNUP}"


@pytest.mark.parametrize("name", ["user_signup", "signup_opened", "user_signin", "payment_signup", "s" * 128])
def test_other_names_give_no_hint(name):
    assert hints({"name": name, "user": "ann"}) is NO_HINTS


def test_times_of_payments_are_counted_too():
    found = hints(PAYMENT | {"at": written(NOW - 30 * DAY_MS)}, timed(NOW - 30 * DAY_MS))
    assert found.words == {"moved_past:2026-10-16": 2}
    assert found.headers == {"x-service-moved": "2", "x-service-moved-items": "0-1"}


def test_rejected_items_are_not_counted():
    old = NOW - 30 * DAY_MS
    rejected = [{"name": "", "at": old}, PAYMENT | {"at": old, "id": ""}, timed(old, props={"a": {}})]
    assert hints(*rejected, timed(NOW)) is NO_HINTS
    assert moved(*rejected, timed(old)) == "1"


def test_future_times_are_counted():
    found = hints(timed(NOW + 6 * MINUTE), timed(10**40), timed("9999-12-31T23:59:59Z"))
    assert found.words == {"moved_future": 3}
    assert found.headers == {"x-service-moved": "3", "x-service-moved-items": "0-2"}


def test_epoch_seconds_are_recognized():
    found = hints(timed(NOW // 1000), timed(10**9), timed(10**10 - 1), timed(10**9 - 1), timed(10**10))
    assert found.words == {"at_in_seconds": 3, "moved_past:earlier": 2}
    assert found.headers == {"x-service-moved": "5", "x-service-moved-items": "0-4", "x-service-hint": SECONDS_HINT}


def test_epoch_seconds_are_recognized_even_if_they_are_not_moved():
    found = hints(timed(NOW // 1000 - 60, NOW // 1000))
    assert (found.words, found.headers) == ({"at_in_seconds": 1}, {"x-service-hint": SECONDS_HINT})


def test_a_client_cannot_make_many_counters():
    every_day = [timed(NOW - days * DAY_MS) for days in range(8, 8 + 500)]
    words = set(hints(*every_day).words) | set(hints(*(timed(NOW - days * DAY_MS) for days in range(508, 1_008))).words)
    assert len(words) == 53 + 10 + 1, "the last 60 days but those within the window, ten months, and earlier"


def test_leap_seconds_and_offsets_are_read():
    items = [timed("2026-06-30T23:59:60Z"), timed("2026-06-30T23:59:59.5-08:00"), timed("2026-07-01t00:00:00z")]
    assert hints(*items).words == {"moved_past:2026-07": 3}


@pytest.mark.parametrize("name", TIME_NAMES)
@pytest.mark.parametrize("batch", [[], [{"name": ""}], [PAYMENT]], ids=["clean", "mixed", "with a payment"])
def test_a_time_in_a_field_that_is_ignored_is_recognized(name, batch):
    found = hints({"name": "view", name: written(NOW)}, {"name": "view", name: NOW, "at": None}, *batch)
    assert found.words == {f"time_misnamed:{name}": 2}
    assert found.headers == {"x-service-hint": f"{name} is not a field: did you mean at?"}


def test_a_misnamed_time_of_a_payment_or_a_single_event_is_recognized():
    assert hints(PAYMENT | {"created_at": NOW}).words == {"time_misnamed:created_at": 1}
    assert judge_events(b'{"name": "view", "ts": 1}', SERVER, NOW).hints.words == {"time_misnamed:ts": 1}
    long = {"name": "view", "ts": NOW, "props": {"text": "ä" * 1024}}
    assert hints(long).words == {"time_misnamed:ts": 1}


def test_a_prop_or_a_value_is_not_taken_for_a_misnamed_time():
    props = dict.fromkeys(TIME_NAMES, NOW)
    assert hints({"name": "view", "props": props}, {"name": "time", "user": "ts", "id": "date"}) is NO_HINTS
    assert hints(timed(NOW, timestamp=NOW), timed(NOW, date="today")) is NO_HINTS
    assert hints({"name": "view", "props": {"date": "x" * 1024}}) is NO_HINTS
    assert hints({"name": "view", "date": None}, {"name": "view"}) is NO_HINTS


def test_a_misnamed_time_is_reported_beside_other_hints():
    found = hints({"name": "view", "ts": NOW}, timed(NOW // 1000))
    assert found.words == {"time_misnamed:ts": 1, "at_in_seconds": 1}
    assert found.headers["x-service-hint"] == f"{SECONDS_HINT}; ts is not a field: did you mean at?"


def test_offsets_of_sent_at_need_a_colon_whatever_else_is_sent():
    for at in ({}, {"at": NOW}, {"at": written(NOW)}):
        items = [{"name": "view", "sent_at": "2026-11-15T04:00:00-0800", **at}]
        verdict = judge_events(json.dumps(items).encode(), SERVER, NOW)
        assert [each.fault.code for each in verdict.rejections] == ["sent_at"], at


MOMENTS = st.one_of(
    st.integers(-(2**70), 2**70),
    st.integers(NOW - 8 * DAY_MS, NOW + 6 * MINUTE),
    st.integers(NOW - 8 * DAY_MS, NOW + DAY_MS).map(written),
    st.sampled_from(
        [written(NOW - 7 * DAY_MS + n) for n in (-1, 0, 1)] + [written(NOW + 5 * MINUTE + n) for n in (0, 1)]
    ),
    st.sampled_from(["2026-11-15T03:20:60.5+02:00", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"]),
)


@given(st.lists(st.tuples(MOMENTS, st.one_of(st.none(), MOMENTS)), min_size=1, max_size=5), st.booleans())
def test_exactly_the_times_that_count_elsewhere_are_moved(times, with_fault):
    items = [timed(*each) for each in times] + ([{"name": ""}] if with_fault else [])
    expected = 0
    for at, sent_at in times:
        at_ms, sent_ms = parse_time_ms(at), None if sent_at is None else parse_time_ms(sent_at)
        claim = at_ms if sent_ms is None else at_ms + NOW - sent_ms
        expected += occurred_at(at_ms, sent_ms, NOW) != claim
    assert moved(*items) == (str(expected) if expected else None)


def subscriptions(*statuses):
    items = [
        {"type": "subscription", "id": str(n), "status": status, "mrr": 1, "currency": "eur"}
        for n, status in enumerate(statuses)
    ]
    return judge_objects(msgspec.json.encode(items), SERVER, NOW).hints


def test_a_misspelled_status_is_counted_by_the_one_it_resembles():
    found = subscriptions("Active", "active ", "cancelled", "active", "vip")
    assert found.words == {"status_resembles:active": 2, "status_resembles:canceled": 1}
    assert found.headers["x-service-hint"].startswith("a status differs from active, canceled in case")
    assert subscriptions("active", "canceled", "vip", "") is NO_HINTS
