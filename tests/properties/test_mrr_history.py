"""The history of MRR against the simplest model: for every day, look at every version of every subscription."""

import math
from datetime import date, timedelta

from hypothesis import example, given
from hypothesis import strategies as st

from mauve.core.subscriptions import MrrStep
from mauve.core.window import Window
from mauve.metrics.mrr_history import mrr_by_day, steps_end_at

EPOCH = date(1970, 1, 1)
BASE = date(2026, 11, 15)
DAY_US = 86_400_000_000
BASE_US = (BASE - EPOCH).days * DAY_US

moments = st.integers(-6 * DAY_US, 6 * DAY_US).map(lambda offset: BASE_US + offset)
days = st.integers(-7, 7).map(lambda offset: BASE + timedelta(days=offset))
versions = st.tuples(
    st.just("proj_1"),
    st.sampled_from([b"one", b"two", b"three"]),
    moments | st.sampled_from([BASE_US - 1, BASE_US, BASE_US + DAY_US]),
    st.sampled_from(["eur", "usd"]),
    st.none() | st.sampled_from([0, 1, 2**53 - 1]),
).map(MrrStep._make)


def by_model(recorded, window, today):
    rows = []
    day = window.first
    while day <= min(window.last, today):
        ends_us = math.inf if day == today else ((day - EPOCH).days + 1) * DAY_US - 1
        current = {}
        for number, step in enumerate(recorded):
            held = current.get(step.subscription)
            if step.at <= ends_us and (held is None or (step.at, number) > held[0]):
                current[step.subscription] = ((step.at, number), step)
        active = [step for _, step in current.values() if step.mrr is not None]
        rows += [
            (day.isoformat(), currency, sum(step.mrr for step in active if step.currency == currency))
            for currency in sorted({step.currency for step in active})
        ]
        day += timedelta(days=1)
    return rows


def as_the_ledger_gives_them(recorded, window, today):
    known = [step for step in recorded if step.at < steps_end_at(window, today)]
    return sorted(known, key=lambda step: (step.subscription, step.at))  # stable: equal moments stay as recorded


@given(st.lists(versions, max_size=12), days, days, days)
@example([MrrStep("proj_1", b"one", BASE_US, "eur", 0)], BASE, BASE, BASE)
@example([MrrStep("proj_1", b"one", BASE_US, "eur", 5), MrrStep("proj_1", b"one", BASE_US, "usd", 7)], BASE, BASE, BASE)
def test_every_day_is_what_the_versions_say_of_its_end(recorded, one, other, today):
    window = Window(min(one, other), max(one, other))
    steps = as_the_ledger_gives_them(recorded, window, today)
    assert list(mrr_by_day(steps, window, today)) == by_model(recorded, window, today)


def test_a_version_dated_in_the_future_counts_from_today_on_as_it_does_in_the_current_mrr():
    ends_later = [
        MrrStep("proj_1", b"one", BASE_US - 2 * DAY_US, "eur", 100),
        MrrStep("proj_1", b"one", BASE_US + 10 * DAY_US, "eur", None),
        MrrStep("proj_1", b"two", BASE_US + 10 * DAY_US, "eur", 500),
    ]
    window = Window(BASE - timedelta(days=2), BASE)
    steps = as_the_ledger_gives_them(ends_later, window, BASE)
    assert list(mrr_by_day(steps, window, BASE)) == [
        ("2026-11-13", "eur", 100),
        ("2026-11-14", "eur", 100),
        ("2026-11-15", "eur", 500),
    ]


def test_all_of_time_has_rows_from_the_first_version_to_today_alone():
    window = Window(date.min, date.max)
    rows = list(mrr_by_day([MrrStep("proj_1", b"one", BASE_US, "eur", 5)], window, BASE + timedelta(days=2)))
    assert rows == [("2026-11-15", "eur", 5), ("2026-11-16", "eur", 5), ("2026-11-17", "eur", 5)]


def test_a_version_from_before_our_calendar_counts_from_the_first_day_asked_for():
    step = MrrStep("proj_1", b"one", -62_135_596_800_000_000 - 3_600_000_000, "eur", 5)  # 0000-12-31 23:00
    assert list(mrr_by_day([step], Window(BASE, BASE), BASE)) == [("2026-11-15", "eur", 5)]


def test_a_window_in_the_future_is_empty():
    window = Window(BASE + timedelta(days=1), BASE + timedelta(days=9))
    assert list(mrr_by_day([MrrStep("proj_1", b"one", BASE_US, "eur", 5)], window, BASE)) == []


def test_the_history_of_a_window_ends_with_it_unless_today_is_in_it():
    window = Window(BASE, BASE)
    assert steps_end_at(window, BASE + timedelta(days=1)) == BASE_US + DAY_US
    assert steps_end_at(window, BASE) == steps_end_at(Window(BASE, date.max), BASE) == 2**63 - 1
