import pytest

from mauve.dashboard import wording

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
