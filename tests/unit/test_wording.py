import pytest

from mauve.dashboard import text as wording
from mauve.dashboard.charts.series import change

NOW = 1_794_724_020_000  # 15 Nov 2026, 06:27 UTC
MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR


def test_moments_are_spelled_for_people_and_for_machines():
    assert wording.day(NOW) == "15 Nov 2026"
    assert wording.moment(NOW) == "15 Nov 2026, 06:27 UTC"
    assert wording.instant(NOW) == "2026-11-15T06:27:00Z"


@pytest.mark.parametrize(
    ("passed_ms", "spelled"),
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
def test_the_past_is_told_as_long_as_it_is_near(passed_ms, spelled):
    assert wording.ago(NOW - passed_ms, NOW) == spelled


@pytest.mark.parametrize(
    ("number", "spelled"), [(0, "0"), (999, "999"), (1000, "1\u202f000"), (10**7, "10\u202f000\u202f000")]
)
def test_thousands_are_set_apart(number, spelled):
    assert wording.count(number) == spelled


@pytest.mark.parametrize(
    ("agent", "spelled"),
    [
        ("Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0", "Firefox on Linux"),
        ("Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 Chrome/140.0 Safari/537.36 Edg/140.0", "Edge on Windows"),
        ("Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) Version/19.0 Safari/605.1.15", "Safari on macOS"),
        ("Mozilla/5.0 (Linux; Android 16) Chrome/140.0 Mobile Safari/537.36", "Chrome on Android"),
        ("curl/8.10", "curl/8.10"),
        ("", "Unknown browser"),
    ],
)
def test_a_browser_is_called_by_its_name(agent, spelled):
    assert wording.browser(agent) == spelled


def test_a_message_becomes_a_sentence():
    assert wording.sentence("the name is too long: shorten it") == "The name is too long: shorten it."
    assert wording.sentence("Really?") == "Really?"
    assert [wording.words(name) for name in ("saas", "client_operated")] == ["SaaS", "Client operated"]


@pytest.mark.parametrize(
    ("minor", "currency", "spelled"),
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
def test_money_is_spelled_with_every_digit_that_its_currency_has(minor, currency, spelled):
    assert wording.money(minor, currency).replace("\N{NARROW NO-BREAK SPACE}", " ") == spelled.replace(
        f" {currency.upper()}", f"\N{NO-BREAK SPACE}{currency.upper()}"
    )


@pytest.mark.parametrize(
    ("number", "spelled"), [(999, "999"), (1000, "1k"), (12_550, "12.5k"), (2_000_000, "2M"), (10**15, "1 000T")]
)
def test_an_axis_has_short_numbers(number, spelled):
    assert wording.short_count(number).replace("\N{NARROW NO-BREAK SPACE}", " ") == spelled


@pytest.mark.parametrize(
    ("now", "before", "spelled"),
    [(3, 2, "+50 %"), (1, 2, "\N{MINUS SIGN}50 %"), (2, 2, "0 %"), (1, 0, "new"), (0, 0, "")],
)
def test_a_change_says_which_way(now, before, spelled):
    assert wording.change(change(now, before)).replace("\N{NARROW NO-BREAK SPACE}", " ") == spelled
