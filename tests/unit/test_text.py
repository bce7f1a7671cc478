import pytest

from mauve.core import text as core_text
from mauve.dashboard import text
from mauve.metrics.summaries import change

NOW = 1_794_724_020_000  # 15 Nov 2026, 06:27 UTC
MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR


def test_things_are_counted_in_the_singular_and_the_plural():
    counts = [text.counted(number, "event") for number in (0, 1, 2, 1_000)]
    assert counts == ["0 events", "1 event", "2 events", "1\N{NARROW NO-BREAK SPACE}000 events"]


def test_an_average_has_a_decimal_below_ten():
    shown = [core_text.tenths(number) for number in (0, 1, 34, 99, 100, 104, 105, 12_345)]
    assert shown == ["0", "0.1", "3.4", "9.9", "10", "10", "11", "1\N{NARROW NO-BREAK SPACE}235"]


def test_names_are_listed_with_a_last_and():
    assert [text.listed("abc"[:length]) for length in range(4)] == ["", "a", "a and b", "a, b and c"]


def test_moments_are_formatted_for_people_and_for_machines():
    assert text.day(NOW) == "15 Nov 2026"
    assert core_text.moment(NOW) == "15 Nov 2026, 06:27 UTC"
    assert text.instant(NOW) == "2026-11-15T06:27:00Z"


@pytest.mark.parametrize(
    ("passed_ms", "expected"),
    [
        (-5 * MINUTE, "just now"),
        (0, "just now"),
        (MINUTE - 1, "just now"),
        (MINUTE, "1 minute ago"),
        (59 * MINUTE, "59 minutes ago"),
        (HOUR, "1 hour ago"),
        (DAY - 1, "23 hours ago"),
        (2 * DAY, "2 days ago"),
        (30 * DAY, "16 Oct 2026"),
    ],
)
def test_recent_moments_are_relative_and_older_ones_are_dates(passed_ms, expected):
    assert text.ago(NOW - passed_ms, NOW) == expected


def test_the_age_of_a_figure_is_exact_to_the_second_below_a_minute():
    assert [text.age(NOW - passed_ms, NOW) for passed_ms in (-5, 0, 42_999, MINUTE)] == [
        "0 s ago",
        "0 s ago",
        "42 s ago",
        "1 minute ago",
    ]


def test_a_time_of_day_has_its_date_unless_that_is_today():
    assert text.clock_time(NOW + 31_000, NOW) == "06:27:31 UTC"
    assert text.clock_time(NOW - DAY, NOW) == "14 Nov 2026, 06:27:00 UTC"


def test_a_duration_is_in_minutes_if_it_is_whole_minutes():
    assert [text.duration(seconds) for seconds in (300, 60, 90, 1)] == [
        "5 minutes",
        "1 minute",
        "90 seconds",
        "1 second",
    ]


@pytest.mark.parametrize(
    ("number", "expected"), [(0, "0"), (999, "999"), (1000, "1\u202f000"), (10**7, "10\u202f000\u202f000")]
)
def test_thousands_are_separated(number, expected):
    assert text.count(number) == expected


@pytest.mark.parametrize(
    ("agent", "expected"),
    [
        ("Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0", "Firefox on Linux"),
        ("Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 Chrome/140.0 Safari/537.36 Edg/140.0", "Edge on Windows"),
        ("Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) Version/19.0 Safari/605.1.15", "Safari on macOS"),
        ("Mozilla/5.0 (Linux; Android 16) Chrome/140.0 Mobile Safari/537.36", "Chrome on Android"),
        ("curl/8.10", "curl/8.10"),
        ("", "Unknown browser"),
    ],
)
def test_a_browser_is_shown_by_its_common_name(agent, expected):
    assert text.browser(agent) == expected


def test_a_message_becomes_a_sentence():
    assert text.sentence("the name is too long: shorten it") == "The name is too long: shorten it."
    assert text.sentence("Really?") == "Really?"
    assert [text.words(name) for name in ("saas", "client_operated")] == ["SaaS", "Client operated"]


@pytest.mark.parametrize(
    ("minor", "currency", "expected"),
    [
        (0, "eur", "0.00 EUR"),
        (5, "eur", "0.05 EUR"),
        (123_456, "usd", "1 234.56 USD"),
        (123_456, "jpy", "123 456 JPY"),
        (1, "bhd", "0.001 BHD"),
        (12_345, "clf", "1.2345 CLF"),
        (7, "xau", "7 XAU"),
        (2**80, "eur", "12 089 258 196 146 291 747 061.76 EUR"),
    ],
)
def test_money_has_every_digit_of_its_currency(minor, currency, expected):
    assert core_text.money(minor, currency).replace("\N{NARROW NO-BREAK SPACE}", " ") == expected.replace(
        f" {currency.upper()}", f"\N{NO-BREAK SPACE}{currency.upper()}"
    )


@pytest.mark.parametrize(
    ("number", "expected"),
    [(999, "999"), (1000, "1k"), (1_250, "1.25k"), (12_550, "12.5k"), (2_000_000, "2M"), (10**15, "1 000T")],
)
def test_an_axis_shows_short_numbers(number, expected):
    assert text.short_count(number).replace("\N{NARROW NO-BREAK SPACE}", " ") == expected


@pytest.mark.parametrize(
    ("now", "before", "expected"),
    [(3, 2, "+50 %"), (1, 2, "\N{MINUS SIGN}50 %"), (2, 2, "0 %"), (1, 0, "new"), (0, 0, "")],
)
def test_a_change_shows_its_direction(now, before, expected):
    assert text.change(change(now, before)).replace("\N{NARROW NO-BREAK SPACE}", " ") == expected


def test_a_moment_outside_the_calendar_is_shown_as_its_end():
    assert text.instant(10**18) == "9999-12-31T23:59:59Z"
    assert text.day(-(10**18)).startswith("1 Jan")
    assert core_text.moment(253_402_300_800_000) == "31 Dec 9999, 23:59 UTC"
