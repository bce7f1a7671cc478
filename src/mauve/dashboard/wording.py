"""How numbers and moments are spelled on a page."""

from datetime import UTC, datetime
from typing import Final

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


def day(moment_ms: int) -> str:
    """Return a moment as `15 Nov 2026`."""
    moment = datetime.fromtimestamp(moment_ms / 1000, UTC)
    return f"{moment.day} {moment:%b %Y}"


def moment(moment_ms: int) -> str:
    """Return a moment as `15 Nov 2026, 06:27 UTC`."""
    return f"{day(moment_ms)}, {datetime.fromtimestamp(moment_ms / 1000, UTC):%H:%M} UTC"


def instant(moment_ms: int) -> str:
    """Return a moment as machines read it."""
    return datetime.fromtimestamp(moment_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def ago(moment_ms: int, now_ms: int) -> str:
    """Return how long ago a moment was; after a month, the day."""
    passed_ms = now_ms - moment_ms
    if passed_ms < _MINUTE_MS:
        return "just now"
    for below_ms, unit_ms, unit in _STEPS:
        if passed_ms < below_ms:
            number = passed_ms // unit_ms
            return f"{number} {unit}{'' if number == 1 else 's'} ago"
    return day(moment_ms)


def count(number: int) -> str:
    """Return a number with its thousands set apart."""
    return f"{number:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def browser(agent: str) -> str:
    """Return what somebody would call their browser: `Firefox on Linux`."""
    name = next((name for mark, name in _BROWSERS if mark in agent), None)
    system = next((system for mark, system in _SYSTEMS if mark in agent), None)
    if name is None:
        return agent.partition(" ")[0] or "Unknown browser"
    return name if system is None else f"{name} on {system}"


def sentence(text: str) -> str:
    """Return a message as a sentence: a capital first, a full stop last."""
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def words(name: str) -> str:
    """Return a name of ours as a person writes it: `client_operated` as `Client operated`."""
    return "SaaS" if name == "saas" else name.replace("_", " ").capitalize()
