"""Keep retired words out of the repository: one word per idea, and the word that the field uses."""

import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCANNED = ("src/", "bench/", "docs/", "tests/", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile")
SUFFIXES = {".py", ".md", ".html", ".js", ""}
EXEMPT = ("tests/tidy/test_words.py", "tests/samples/", "tests/golden/errors/")

# A space matches spaces, underscores and line breaks, so a phrase is also found in identifiers and wrapped comments.
RETIRED = {
    "anew": "again",
    "crowd(ed|s)?": "queue, overload",
    "doors?": "endpoint, port",
    "errands?": "command, admin request",
    "for ever": "forever",
    "has its turn": "is served",
    "in the way": "blocking",
    "is told(?! to)": "gets, sees, is reported",
    "lately": "recently",
    "made up": "generated",
    "nobody": "no client, no process, none",
    "of late": "recently",
    "of old": "old",
    "remark(s|ed)?": "warning",
    "shown out": "disconnected",
    "somebody": "a client, a caller, a user",
    "stretch(es)?": "range, step",
    "tell whether": "return whether, true if",
    "tells? of": "report, describe",
    "those who": "clients that, callers that",
    "turned away": "refused",
    "under way": "in flight, in progress",
    "upkeep": "maintenance",
    "who(so)?ever": "the client, the caller",
}

_GAP = r"(?:[ _-]|[ ]*\n\s*(?:[#*]\s*)?)"

# Legitimate uses, each with its reason: ("the/file.py", "the text as found there, in lower case").
ALLOWED: frozenset[tuple[str, str]] = frozenset()


def tracked_texts() -> Iterator[tuple[str, str]]:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    for name in listing.split("\0"):
        path = ROOT / name
        if name.startswith(SCANNED) and not name.startswith(EXEMPT) and path.suffix in SUFFIXES and path.is_file():
            yield name, path.read_text(errors="ignore")


def any_of(phrases: Iterable[str]) -> re.Pattern[str]:
    """Match whole words, also as a part of a snake_case or CamelCase name. Group N is phrase N."""
    groups = "|".join(f"(?P<n{number}>{words.replace(' ', _GAP)})" for number, words in enumerate(phrases))
    return re.compile(rf"(?:(?<![A-Za-z])|(?<=[a-z])(?=[A-Z]))(?i:{groups})(?![a-z])")


_ANY_RETIRED = any_of(RETIRED)
_INSTEAD = {f"n{number}": instead for number, instead in enumerate(RETIRED.values())}


def retired_words_in(name: str, text: str) -> list[str]:
    return [
        f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {match.group()!r}: say {_INSTEAD[match.lastgroup]}"
        for match in _ANY_RETIRED.finditer(text)
        if (name, match.group().lower()) not in ALLOWED
    ]


def test_no_file_uses_a_retired_word():
    hits = [hit for name, text in tracked_texts() for hit in retired_words_in(name, text)]
    assert hits == [], "\n".join(["retired words:", *hits])


def test_a_retired_word_is_found_in_prose_identifiers_and_wrapped_comments():
    assert retired_words_in("a.py", "x = 1\n# The line, made\n# up of late\n") == [
        "a.py:2: 'made\\n# up': say generated",
        "a.py:3: 'of late': say recently",
    ]
    assert retired_words_in("a.py", "def test_nobody_waits(): ...") == [
        "a.py:1: 'nobody': say no client, no process, none"
    ]
    assert len(retired_words_in("a.py", "_errand = Errands(); class OpenErrandSocket: ...")) == 3
    assert retired_words_in("a.py", "outdoors, renewed") == []


def test_every_exception_is_still_needed():
    texts = dict(tracked_texts())
    assert [entry for entry in ALLOWED if entry[1] not in texts.get(entry[0], "").lower()] == []
