"""Text of a notice for every channel: hostile names made harmless, lengths kept, facts grouped by app."""

import re
from collections.abc import Callable, Iterable
from typing import Final

from mauve.alerts.notice import Fact

# Control characters, line separators, halves of surrogate pairs, and characters that turn the direction of a line.
_UNSHOWN: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
_SPACES: Final = re.compile(" {2,}")
_ELLIPSIS: Final = "…"


def one_line(text: str) -> str:
    """Return the text on one line, without characters that end a header or hide what follows.

    Spaces that do not break stay: they hold the digits of a number together.
    """
    return _SPACES.sub(" ", _UNSHOWN.sub(" ", text)).strip()


def fitted(text: str, characters_max: int, escape: Callable[[str], str] = str) -> str:
    """Return the text on one line, escaped, and no longer than allowed. Never cut through an escaped character."""
    escaped = [escape(character) for character in one_line(text)]
    if sum(map(len, escaped)) <= characters_max:
        return "".join(escaped)
    kept, left = "", characters_max - len(_ELLIPSIS)
    for part in escaped:
        if len(part) > left:
            break
        kept, left = kept + part, left - len(part)
    return kept.rstrip() + _ELLIPSIS


def by_app(facts: Iterable[Fact]) -> dict[str, list[Fact]]:
    """Return the facts of each app, in the order in which the apps first appear."""
    grouped: dict[str, list[Fact]] = {}
    for fact in facts:
        grouped.setdefault(fact.app, []).append(fact)
    return grouped


def sentence_of(fact: Fact) -> str:
    """Return a fact as plain text, such as `Revenue: €12 (before: €9)`."""
    before = "" if fact.before is None else f" (before: {fact.before})"
    return f"{fact.label}: {fact.value}{before}"
