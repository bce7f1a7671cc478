"""Format numbers, amounts and times for pages."""

import shlex
from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Final

from mauve.core.app import Environment
from mauve.core.money import minor_digits
from mauve.core.text import count, counted, day, moment_at
from mauve.ingest.webhooks.parsed import DeliveryWarning
from mauve.metrics.summaries import Change

_TEN, _HUNDRED, _THOUSAND = 10, 100, 1000
_MINUTE_MS: Final = 60_000
_STEPS: Final = (
    (60 * _MINUTE_MS, _MINUTE_MS, "minute"),
    (24 * 60 * _MINUTE_MS, 60 * _MINUTE_MS, "hour"),
    (30 * 24 * 60 * _MINUTE_MS, 24 * 60 * _MINUTE_MS, "day"),
)
_BROWSERS: Final = (
    ("Edg/", "Edge"),
    ("OPR/", "Opera"),
    ("Firefox/", "Firefox"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
)
_SYSTEMS: Final = (
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Android", "Android"),
    ("Windows", "Windows"),
    ("Mac OS", "macOS"),
    ("Linux", "Linux"),
)


def instant(moment_ms: int) -> str:
    return moment_at(moment_ms).strftime("%Y-%m-%dT%H:%M:%SZ")


def ago(moment_ms: int, now_ms: int) -> str:
    """Return how long ago a moment was, or its date after a month."""
    passed_ms = now_ms - moment_ms
    if passed_ms < _MINUTE_MS:
        return "just now"
    for below_ms, unit_ms, unit in _STEPS:
        if passed_ms < below_ms:
            return f"{counted(passed_ms // unit_ms, unit)} ago"
    return day(moment_ms)


def age(moment_ms: int, now_ms: int) -> str:
    """Return how long ago a moment was, in seconds below a minute."""
    passed_ms = max(0, now_ms - moment_ms)
    return f"{passed_ms // 1000} s ago" if passed_ms < _MINUTE_MS else ago(moment_ms, now_ms)


def clock_time(moment_ms: int, now_ms: int) -> str:
    """Return a moment as `14:02:31 UTC`, with its date unless that is today."""
    then, now = (datetime.fromtimestamp(each / 1000, UTC) for each in (moment_ms, now_ms))
    time_of_day = f"{then:%H:%M:%S} UTC"
    return time_of_day if then.date() == now.date() else f"{day(moment_ms)}, {time_of_day}"


def duration(seconds: int) -> str:
    """Return a number of seconds as text: `5 minutes`, `90 seconds`."""
    return counted(seconds // 60, "minute") if seconds % 60 == 0 else counted(seconds, "second")


def listed(names: Sequence[str]) -> str:
    """Return names as text: `a`, `a and b`, `a, b and c`."""
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)


def short_count(number: int) -> str:
    """Return a short number for an axis: `12.5k`, `1.25M`."""
    for size, letter in ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "k")):
        if number >= size:
            digits = 2 if number < _TEN * size else 1
            whole, rest = divmod(number * 10**digits // size, 10**digits)
            return f"{count(whole)}{f'.{rest:0{digits}}'.rstrip('0') if rest else ''}{letter}"
    return str(number)


def short_money(minor: int, currency: str) -> str:
    """Return a short amount for an axis, without the currency: `12.5k`, `2.50`."""
    digits = minor_digits(currency)
    whole, rest = divmod(minor, 10**digits)
    return f"{whole}.{rest:0{digits}}" if rest and whole < _THOUSAND else short_count(whole)


def change(difference: Change) -> str:
    """Return a change as text: `+12 %`."""
    if difference.percent is None:
        return "new" if difference.direction == "up" else ""
    sign = {"up": "+", "down": "\N{MINUS SIGN}"}.get(difference.direction, "")
    return f"{sign}{count(abs(difference.percent))}\N{NARROW NO-BREAK SPACE}%"


def weekday(moment_day: date) -> str:
    """Return a day as `Sun 15 Nov 2026`."""
    return f"{moment_day:%a} {moment_day.day} {moment_day:%b %Y}"


def short_day(moment_day: date) -> str:
    """Return a day as `15 Nov`."""
    return f"{moment_day.day} {moment_day:%b}"


def browser(agent: str) -> str:
    """Return the common name of a browser: `Firefox on Linux`."""
    name = next((name for mark, name in _BROWSERS if mark in agent), None)
    system = next((system for mark, system in _SYSTEMS if mark in agent), None)
    if name is None:
        return agent.partition(" ")[0] or "Unknown browser"
    return name if system is None else f"{name} on {system}"


def sentence(text: str) -> str:
    """Return a message as a sentence, with a capital letter and a full stop."""
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def shell_quoted(text: str) -> str:
    """Return a text as one word of a shell command."""
    return shlex.quote(text)


def words(name: str) -> str:
    """Return an identifier as plain text: `client_operated` as `Client operated`."""
    return "SaaS" if name == "saas" else name.replace("_", " ").capitalize()


def delivery_word(word: str, environment: Environment) -> str:
    """Return the result of a delivery in an environment, or a warning about it, as plain text."""
    if word == DeliveryWarning.PLANE_MISMATCH:
        other = Environment.LIVE if environment is Environment.TEST else Environment.TEST
        return f"{other} delivery at the {environment} address"
    return "payload without the object" if word == DeliveryWarning.THIN_EVENT else words(word).lower()
