"""Keep retired words out of the repository: one word per idea, and the word that the field uses."""

import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENTS = ("docs/", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
SCANNED = (*DOCUMENTS, "src/", "bench/", "tests/", "Makefile")
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

# Also retired in documents and in the package: they read like a translation.
RETIRED_IN_TEXTS = {
    "(is|are|was|were|be|been) away": "is down, is unreachable",
    "(go|goes|going|went) on": "continue",
    "believ(es?|ed|ing)": "trust, assume",
    "by (itself|themselves)": "automatically, alone",
    "for good": "permanently",
    "forgiv(es?|en|ing)": "allow, retry",
    "hears?(?!tbeat)|heard": "receive",
    "heal(s|ed|ing)?": "recover",
    "knock(s|ed|ing)?": "connect, try",
    "knows? no": "does not support, has no",
    "meanwhile": "since, until then, or nothing",
    "mend(s|ed|ing)?": "fix",
    "(out of|within) reach": "unreachable, reachable",
    "so (many|often)": "the number, the interval",
    "stands? forever": "always wins",
    "(that|which|who) (is|are) no(?! longer| more)": "is not a",
    "whose turn": "lease, next",
}

# Also retired in documents. The code has identifiers and ordinary uses of these.
RETIRED_IN_DOCUMENTS = {
    "at once(?! per)": "immediately, simultaneously, together",
    "in turn": "one at a time",
    "in vain": "without result",
    r"judg(e|es|ed|ing|ments?)(?!\.py)": "evaluate, decide",
    "tells?|told|telling": "report, show, say",
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


_EVERYWHERE = any_of(RETIRED)
_IN_TEXTS = any_of(RETIRED | RETIRED_IN_TEXTS)
_IN_DOCUMENTS = any_of(ALL := RETIRED | RETIRED_IN_TEXTS | RETIRED_IN_DOCUMENTS)
_INSTEAD = {f"n{number}": instead for number, instead in enumerate(ALL.values())}


def retired_in(name: str) -> re.Pattern[str]:
    if name.startswith(DOCUMENTS):
        return _IN_DOCUMENTS
    return _IN_TEXTS if name.startswith("src/") else _EVERYWHERE


def retired_words_in(name: str, text: str) -> list[str]:
    return [
        f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {match.group()!r}: say {_INSTEAD[match.lastgroup]}"
        for match in retired_in(name).finditer(text)
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


def test_documents_and_the_package_use_fewer_words_than_tests():
    assert retired_words_in("tests/a.py", "while NATS is away, at once") == []
    assert retired_words_in("src/mauve/a.py", "while NATS is away, at once") == [
        "src/mauve/a.py:1: 'is away': say is down, is unreachable"
    ]
    assert len(retired_words_in("docs/a.md", "While NATS is away, it retries at once.")) == 2


def test_every_exception_is_still_needed():
    texts = dict(tracked_texts())
    assert [entry for entry in ALLOWED if entry[1] not in texts.get(entry[0], "").lower()] == []
