from datetime import UTC, date, datetime, timedelta

import pytest

from mauve.core.times import DAY_MS, day_number, occurred_at, parse_time_ms, parse_time_us
from mauve.core.window import midnight_ms

NOON = int(datetime(2026, 11, 15, 12, tzinfo=UTC).timestamp()) * 1000
MINUTE = 60_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-15T12:00:00Z", NOON),
        ("2026-11-15T12:00:00.123Z", NOON + 123),
        ("2026-11-15T12:00:00.1Z", NOON + 100),
        ("2026-11-15T12:00:00.123999Z", NOON + 123),
        ("2026-11-15T12:00:00.123999999Z", NOON + 123),
        ("2026-11-15T12:00:00.1239999999999999999999Z", NOON + 123),
        ("2026-11-15T14:00:00+02:00", NOON),
        ("2026-11-15T14:00:00.5+02:00", NOON + 500),
        ("2026-11-15T06:30:00-05:30", NOON),
        ("2026-11-15T12:00:00-00:00", NOON),
        ("2026-11-14T12:01:00-23:59", NOON),
        ("2026-11-15t12:00:00z", NOON),
        ("2026-11-15 12:00:00Z", NOON),
        ("2026-11-15 12:00:00.25z", NOON + 250),
        ("2026-11-15T11:59:60Z", NOON),
        ("2026-11-15T13:59:60.5+02:00", NOON + 500),
        ("2024-02-29T00:00:00Z", 1_709_164_800_000),
        ("1970-01-01T00:00:00Z", 0),
        ("1969-12-31T23:59:59.9999Z", -1),
        ("0001-01-01T00:00:00+23:59", -62_135_683_140_000),
        ("9999-12-31T23:59:60-23:59", 253_402_387_140_000),
    ],
)
def test_an_rfc_3339_time_is_parsed(text, expected):
    assert parse_time_ms(text) == expected


@pytest.mark.parametrize("number", [0, -1, NOON, 2**63, 2**64 + 1, -(2**70), 10**400])
def test_an_integer_of_any_size_is_epoch_milliseconds(number):
    assert parse_time_ms(number) == number


@pytest.mark.parametrize(
    "nonsense",
    [
        "",
        "now",
        "2026-11-15",
        "2026-11-15T12:00:00",
        "2026-11-15T12:00:00.123",
        "2026-11-15T12:00Z",
        "2026-11-15T12Z",
        "20261115T120000Z",
        "2026-W46-7T12:00:00Z",
        "2026-319T12:00:00Z",
        "2026-11-15_12:00:00Z",
        "2026-11-15T12:00:00,5Z",
        "2026-11-15T12:00:00.Z",
        "2026-11-15T12:00:00+02",
        "2026-11-15T12:00:00+0200",
        "2026-11-15T12:00:00+02:00:00",
        "2026-11-15T12:00:00+02:60",
        "2026-11-15T12:00:00.5+02:75",
        "2026-11-15T12:00:00+24:00",
        "2026-11-15T12:00:00 Z",
        "2026-11-15T12:00:00ZZ",
        " 2026-11-15T12:00:00Z",
        "2026-11-15T12:00:00Z\n",
        "2026-13-15T12:00:00Z",
        "2026-00-15T12:00:00Z",
        "2026-02-30T12:00:00Z",
        "2025-02-29T12:00:00Z",
        "2026-11-15T24:00:00Z",
        "2026-11-15T12:60:00Z",
        "2026-11-15T12:00:61Z",
        "0000-01-01T00:00:00Z",
        "12026-11-15T12:00:00Z",
        "-2026-11-15T12:00:00Z",
        "\uff12\uff10\uff12\uff16-11-15T12:00:00Z",
        "2026-11-15T12:00:00.५Z",
        "\ud800",
        "1763208000000",
        "9" * 10_000,
        True,
        False,
    ],
)
def test_anything_else_is_not_a_time(nonsense):
    assert parse_time_ms(nonsense) is None


def test_microseconds_are_kept_and_finer_digits_are_truncated():
    assert parse_time_us("2026-11-15T12:00:00.123456789Z") == NOON * 1000 + 123_456
    assert parse_time_us("1969-12-31T23:59:59.9999999Z") == -1
    assert parse_time_us("2026-11-15T12:00:00") is None


@pytest.mark.parametrize(
    ("at", "sent_at", "expected"),
    [
        (None, None, NOON),
        (None, NOON - DAY_MS, NOON),
        (NOON - 5, None, NOON - 5),
        (NOON - DAY_MS, NOON - DAY_MS + 40, NOON - 40),
        (NOON + DAY_MS, NOON + DAY_MS + 40, NOON - 40),
        (NOON - 7 * DAY_MS, None, NOON - 7 * DAY_MS),
        (NOON - 7 * DAY_MS - 1, None, NOON - 7 * DAY_MS),
        (NOON + 5 * MINUTE, None, NOON + 5 * MINUTE),
        (NOON + 5 * MINUTE + 1, None, NOON + 5 * MINUTE),
        (10**400, None, NOON + 5 * MINUTE),
        (-(10**400), None, NOON - 7 * DAY_MS),
        (10**400, 10**400 + 7, NOON - 7),
    ],
)
def test_the_time_of_occurrence_is_corrected_for_skew_and_clamped(at, sent_at, expected):
    assert occurred_at(at, sent_at, NOON) == expected


@pytest.mark.parametrize(
    ("moment", "day", "number"),
    [
        (0, "1970-01-01", 0),
        (DAY_MS - 1, "1970-01-01", 0),
        (-1, "1969-12-31", -1),
        (NOON, "2026-11-15", 20_772),
        (-62_135_596_800_000, "0001-01-01", -719_162),
        (253_402_300_799_999, "9999-12-31", 2_932_896),
    ],
)
def test_a_day_begins_at_midnight_utc(moment, day, number):
    assert day_number(moment) == number
    assert midnight_ms(date.fromisoformat(day)) == number * DAY_MS


@pytest.mark.parametrize(
    "text",
    ["9999-12-31T23:59:60Z", "9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59"],
)
def test_a_time_outside_the_calendar_is_not_a_time_of_a_subscription(text):
    assert parse_time_us(text) is None


def test_the_ends_of_the_calendar_are_times():
    for text, expected in [
        ("0001-01-01T00:00:00Z", datetime.min.replace(tzinfo=UTC)),
        ("9999-12-31T23:59:59.999999Z", datetime.max.replace(tzinfo=UTC)),
    ]:
        since_epoch = expected - datetime(1970, 1, 1, tzinfo=UTC)
        assert parse_time_us(text) == since_epoch // timedelta(microseconds=1)
