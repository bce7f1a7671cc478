"""When a rule is true, when it sends, and when a digest is due."""

import itertools
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mauve.alerts.evaluate import Measure, Watch, evaluate_deliveries, evaluate_metric, evaluate_silence, questions_of
from mauve.alerts.rules import (
    TERMS,
    Change,
    DeliveriesFailing,
    Direction,
    NoEvents,
    RuleState,
    Side,
    Threshold,
    after_evaluation,
    after_sending,
    after_unknown,
    check,
    minor_units,
    should_send,
)
from mauve.alerts.schedule import (
    ATTEMPTS_MAX,
    HOUR_MS,
    Cadence,
    digest_window,
    is_quiet,
    next_digest_at,
    retry_at,
)
from mauve.core.app import App, AppType, Ownership
from mauve.core.problems import Problem
from mauve.core.window import Window
from mauve.stores.alerts import OrganizationTimes
from mauve.stores.deliveries import Tally

NOW = int(datetime(2026, 11, 16, 12, tzinfo=UTC).timestamp()) * 1000
TODAY = date(2026, 11, 16)
APP = App("app_1", "org_1", "proj_1", None, "Shop", Ownership.MINE, AppType.SAAS, None, False, False, 0)  # noqa: FBT003


def watch(terms, created_at=0):
    return Watch(terms, APP, created_at, NOW)


class Known:
    """Answers by metric and first day."""

    def __init__(self, rows):
        self._rows = rows

    def current_rows(self, question):
        return self._rows.get((question.metric.name, question.window))


def threshold(metric, side, value, rows, currency=None, days=7):
    terms = Threshold(metric=metric, days=days, side=side, value=value, currency=currency)
    check(terms)
    (question,) = questions_of(watch(terms))
    return evaluate_metric(watch(terms), terms, Known({(question.metric.name, question.window): rows}))


@pytest.mark.parametrize(
    ("side", "value", "is_true"),
    [(Side.ABOVE, 9, True), (Side.ABOVE, 10, False), (Side.BELOW, 11, True), (Side.BELOW, 10, False)],
)
def test_a_value_is_above_or_below_only_beyond_the_limit(side, value, is_true):
    assert threshold("mau", side, value, [{"mau": 10}]).is_true is is_true


def test_dau_is_the_average_over_the_days():
    rows = [{"day": "2026-11-14", "dau": 7}, {"day": "2026-11-15", "dau": 6}]
    assert threshold("dau", Side.ABOVE, 1, rows).found == "1.9"
    assert threshold("dau", Side.ABOVE, 1, rows).is_true
    assert not threshold("dau", Side.ABOVE, 2, rows).is_true


def test_money_counts_in_its_own_currency():
    rows = [
        {"day": "2026-11-16", "currency": "eur", "revenue": 100},
        {"day": "2026-11-15", "currency": "eur", "revenue": 150},
        {"day": "2026-11-15", "currency": "usd", "revenue": 9_000},
    ]
    evaluated = threshold("revenue", Side.ABOVE, 200, rows, "eur")
    assert evaluated.is_true
    assert "2.50\N{NO-BREAK SPACE}EUR" in evaluated.draft.reason
    assert not threshold("revenue", Side.ABOVE, 0, rows, "jpy").is_true
    assert threshold("mrr", Side.BELOW, 500, [{"currency": "eur", "mrr": 499}], "eur").is_true


def test_numbers_that_cannot_be_read_decide_nothing():
    terms = Change(metric="mau", days=7, direction=Direction.EITHER, percent=10)
    now, before = questions_of(watch(terms))
    assert evaluate_metric(watch(terms), terms, Known({})) is None
    assert evaluate_metric(watch(terms), terms, Known({("mau", now.window): [{"mau": 1}]})) is None
    assert (now.window.last, before.window) == (date(2026, 11, 15), now.window.before)


@given(
    now=st.integers(0, 10**9),
    before=st.integers(0, 10**9),
    percent=st.integers(1, 10_000),
    direction=st.sampled_from(Direction),
)
def test_a_change_is_exact_and_needs_an_earlier_number(now, before, percent, direction):
    terms = Change(metric="mau", days=30, direction=direction, percent=percent)
    first, second = questions_of(watch(terms))
    evaluated = evaluate_metric(
        watch(terms), terms, Known({("mau", first.window): [{"mau": now}], ("mau", second.window): [{"mau": before}]})
    )
    is_beyond = before > 0 and abs(now - before) / before > percent / 100
    is_wanted = direction is Direction.EITHER or (now > before) is (direction is Direction.UP)
    assert evaluated.is_true is (is_beyond and is_wanted)


def test_events_are_missed_from_the_last_one_or_from_the_making_of_the_rule():
    terms = NoEvents(hours=2)
    assert evaluate_silence(watch(terms), terms, NOW - 2 * HOUR_MS).is_true
    assert not evaluate_silence(watch(terms), terms, NOW - 2 * HOUR_MS + 1).is_true
    assert evaluate_silence(watch(terms, created_at=NOW - 2 * HOUR_MS), terms, None).is_true
    assert not evaluate_silence(watch(terms, created_at=NOW), terms, None).is_true
    assert not evaluate_silence(watch(terms), terms, NOW + HOUR_MS).is_true, "another machine's clock is ahead"


def tally(word, at, provider="biller_a"):
    return Tally("proj_1", provider, word, 3, at)


@pytest.mark.parametrize(
    ("tallies", "is_true"),
    [
        ([], False),
        ([tally("stored", NOW)], False),
        ([tally("signature_mismatch", NOW - 1)], True),
        ([tally("refused", NOW - 1), tally("signature_missing", NOW - 1)], False),
        ([tally("refused", NOW - 1), tally("signature_malformed", NOW - 1)], False),
        ([tally("refused", NOW - 1), tally("timestamp_outside_window", NOW - 1)], False),
        ([tally("signature_mismatch", NOW - 25 * HOUR_MS)], False),
        ([tally("signature_mismatch", NOW - 5), tally("stored", NOW - 9)], True),
        ([tally("signature_mismatch", NOW - 9), tally("ignored", NOW - 5)], False),
        ([tally("signature_mismatch", NOW - 9), tally("stored", NOW - 5, "biller_b")], True),
    ],
)
def test_deliveries_fail_if_none_was_verified_after_the_last_mismatch(tallies, is_true):
    terms = DeliveriesFailing(hours=24)
    assert evaluate_deliveries(watch(terms), terms, tallies).is_true is is_true


def test_an_alert_that_stays_true_repeats_only_after_the_cooldown():
    state, sent = RuleState(), []
    for minute in range(0, 72 * 60, 5):
        at = NOW + minute * 60_000
        state = after_evaluation(state, at, "", is_true=True)
        if should_send(state, at, 24, is_quiet=False):
            state = after_sending(state, at)
            sent.append(minute // 60)
    assert sent == [0, 24, 48]
    assert state.true_since == NOW


@given(st.lists(st.tuples(st.integers(1, 600), st.sampled_from([True, False, None]), st.booleans()), max_size=80))
def test_no_two_messages_of_a_rule_are_closer_than_its_cooldown_and_none_is_sent_in_vain(steps):
    state, at, sent = RuleState(), NOW, []
    for minutes, is_true, is_quiet_now in steps:
        at += minutes * 60_000
        before = state
        if is_true is None:
            state = after_unknown(state)
            assert (state.true_since, state.sent_at) == (before.true_since, before.sent_at)
            continue
        state = after_evaluation(state, at, "", is_true=is_true)
        if should_send(state, at, 6, is_quiet=is_quiet_now):
            assert is_true
            assert not is_quiet_now
            state = after_sending(state, at)
            sent.append(at)
        elif is_true and not is_quiet_now:
            assert at - sent[-1] < 6 * HOUR_MS, "only the cooldown holds it back"
    assert all(later - earlier >= 6 * HOUR_MS for earlier, later in itertools.pairwise(sent))


def test_a_clock_that_was_set_back_does_not_silence_a_rule():
    state = RuleState(true_since=NOW, sent_at=NOW + 10 * HOUR_MS)
    assert should_send(state, NOW, 1, is_quiet=False)


@given(
    st.integers(0, 2**40),
    st.integers(0, 23),
    st.integers(0, 23),
    st.sampled_from(["UTC", "Asia/Kolkata", "Pacific/Apia"]),
)
def test_quiet_hours_are_those_of_the_local_clock(at_s, first, until, zone):
    local = datetime.fromtimestamp(at_s % 2**32, ZoneInfo(zone)).hour
    hours = {(first + step) % 24 for step in range((until - first) % 24)}
    assert is_quiet(OrganizationTimes(zone, first, until, 8), (at_s % 2**32) * 1000) is (local in hours)
    assert not is_quiet(OrganizationTimes(zone), at_s)


@given(
    st.integers(0, 2**32),
    st.integers(0, 23),
    st.sampled_from(["UTC", "Europe/Berlin", "America/St_Johns", "Pacific/Auckland"]),
    st.sampled_from([Cadence.DAILY, Cadence.WEEKLY]),
)
def test_the_next_digest_is_the_first_after_now_at_its_hour(at_s, hour, zone, cadence):
    next_at = next_digest_at(OrganizationTimes(zone, None, None, hour), cadence, at_s * 1000)
    local = datetime.fromtimestamp(next_at / 1000, ZoneInfo(zone))
    assert next_at > at_s * 1000
    assert next_at - at_s * 1000 <= (1 if cadence is Cadence.DAILY else 7) * 24 * HOUR_MS + HOUR_MS
    assert cadence is Cadence.DAILY or local.isoweekday() == 1
    is_skipped = not is_real(datetime(local.year, local.month, local.day, hour, tzinfo=ZoneInfo(zone)))
    assert local.hour == hour or is_skipped


def is_real(local):
    """Return whether the clocks of a day show this time."""
    return local.astimezone(UTC).astimezone(local.tzinfo).replace(fold=0) == local


def test_no_digest_is_due_for_a_member_without_one():
    assert next_digest_at(OrganizationTimes(), Cadence.NEVER, NOW) is None


def test_a_digest_reports_on_whole_days():
    assert digest_window(Cadence.DAILY, TODAY) == Window(date(2026, 11, 15), date(2026, 11, 15))
    assert digest_window(Cadence.WEEKLY, TODAY) == Window(date(2026, 11, 9), date(2026, 11, 15))


def test_further_attempts_come_later_and_later_and_end():
    waits = [retry_at(attempts, 0) for attempts in range(1, ATTEMPTS_MAX)]
    assert waits == sorted(set(waits))
    assert sum(waits) > timedelta(hours=20) / timedelta(milliseconds=1)
    assert retry_at(ATTEMPTS_MAX, 0) is None
    assert retry_at(ATTEMPTS_MAX + 5, 0) is None


@pytest.mark.parametrize(
    "terms",
    [
        NoEvents(hours=24),
        DeliveriesFailing(hours=1, cooldown_h=6),
        Threshold(metric="revenue", days=30, side=Side.BELOW, value=5, currency="eur"),
        Change(metric="dau", days=90, direction=Direction.DOWN, percent=50),
    ],
)
def test_terms_are_stored_and_read_back(terms):
    assert TERMS.decode(msgspec.json.encode(terms)) == terms


@pytest.mark.parametrize(
    ("terms", "advice"),
    [
        (NoEvents(hours=0), "1 to 168 hours"),
        (NoEvents(hours=1, cooldown_h=0), "cooldown"),
        (Threshold(metric="volume", days=7, side=Side.ABOVE, value=1), "metrics"),
        (Threshold(metric="mau", days=8, side=Side.ABOVE, value=1), "7, 30, 90 days"),
        (Threshold(metric="mau", days=7, side=Side.ABOVE, value=1, currency="eur"), "leave the currency empty"),
        (Threshold(metric="mrr", days=7, side=Side.ABOVE, value=1), "currency"),
        (Threshold(metric="mrr", days=7, side=Side.ABOVE, value=1, currency="zzz"), "currency"),
        (Threshold(metric="mau", days=7, side=Side.ABOVE, value=10**16), "too large"),
        (Change(metric="mau", days=7, direction=Direction.UP, percent=0), "change of 1"),
    ],
)
def test_terms_out_of_bounds_are_refused_with_advice(terms, advice):
    with pytest.raises(Problem, match=advice):
        check(terms)


@pytest.mark.parametrize(
    ("text", "currency", "minor"),
    [("250", None, 250), ("12.5", "eur", 1250), ("12", "eur", 1200), ("7", "jpy", 7), ("1.234", "bhd", 1234)],
)
def test_a_value_is_read_in_the_units_of_its_currency(text, currency, minor):
    assert minor_units(text, currency) == minor


@pytest.mark.parametrize("text", ["", "x", "-1", "1,5", "1.234", "1e3", "٣", "9" * 40, "1_0"])
def test_a_value_that_is_no_amount_is_refused(text):
    with pytest.raises(Problem, match=r"1234\.50"):
        minor_units(text, "eur")


def test_a_measure_asks_the_question_of_the_pages():
    window = Window(date(2026, 11, 9), date(2026, 11, 15))
    assert Measure("proj_1", "mau", window).question.key == "proj_1/mau/2026-11-09/2026-11-15/"
