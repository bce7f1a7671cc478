"""Numbers, amounts and moments as text, for pages and messages."""

from datetime import UTC, datetime, timedelta
from typing import Final

from mauve.core.money import minor_digits
from mauve.core.window import Window

_HUNDRED: Final = 100
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MS: Final = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)
_LAST_MS: Final = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)


def day(moment_ms: int) -> str:
    """Return a moment as `15 Nov 2026`."""
    moment = moment_at(moment_ms)
    return f"{moment.day} {moment:%b %Y}"


def days(window: Window) -> str:
    """Return a period as `9 Nov to 15 Nov 2026`. No line ends within a date."""
    first, last = window
    end = f"{last.day}\N{NO-BREAK SPACE}{last:%b}\N{NO-BREAK SPACE}{last.year}"
    return end if first == last else f"{first.day}\N{NO-BREAK SPACE}{first:%b} to {end}"


def moment(moment_ms: int) -> str:
    """Return a moment as `15 Nov 2026, 06:27 UTC`."""
    return f"{day(moment_ms)}, {moment_at(moment_ms):%H:%M} UTC"


def moment_at(moment_ms: int) -> datetime:
    """Return a moment, or the nearest one that a calendar has."""
    return _EPOCH + timedelta(milliseconds=min(max(moment_ms, _FIRST_MS), _LAST_MS))


def count(number: int) -> str:
    """Return a number with a thousands separator."""
    return f"{number:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def counted(number: int, noun: str) -> str:
    """Return a number of things: `1 event`, `2 events`."""
    return f"{count(number)} {noun}{'' if number == 1 else 's'}"


def tenths(number: int) -> str:
    """Return a number of tenths, with one decimal below ten: `3.4`, `12`."""
    return f"{number // 10}.{number % 10}" if 0 < number < _HUNDRED else count((number + 5) // 10)


def money(minor: int, currency: str) -> str:
    """Return an exact amount: `1 234.50 EUR`, `1 234 JPY`."""
    digits = minor_digits(currency)
    sign, text = ("-" if minor < 0 else ""), str(abs(minor)).rjust(digits + 1, "0")
    whole, rest = (text[:-digits], "." + text[-digits:]) if digits else (text, "")
    return f"{sign}{count(int(whole))}{rest}\N{NO-BREAK SPACE}{currency.upper()}"
