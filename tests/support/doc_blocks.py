"""The fenced code blocks of the documents."""

import itertools
import re
import subprocess
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
RUNNABLE = ("sh", "python", "ts", "tsx", "js", "html")
OUTPUT = ("json", "text")
_FENCE = re.compile(
    r"^(?P<marker> *<!-- not run: (?P<reason>[^\n]+?) -->\n\s*)?"
    r"^(?P<indent> *)```(?P<language>\w*)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A block of code: what it is, why it is not run if so, and what it prints if the document shows that."""

    document: str
    line: int
    language: str
    title: str | None
    text: str
    reason: str | None
    expected: str | None

    def __str__(self) -> str:
        return f"{self.document}:{self.line} ({self.language})"


def documents() -> list[str]:
    """Return the tracked documents that have blocks to run."""
    listing = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in listing.split() if (ROOT / name).is_file() and blocks_of(name)]


def blocks_of(document: str) -> list[Block]:
    return blocks_in((ROOT / document).read_text(), document)


def blocks_in(text: str, document: str) -> list[Block]:
    """Return the blocks to run, in order. A block of output right after one is what that prints."""
    found = list(_FENCE.finditer(text))
    blocks = []
    for match, after in itertools.zip_longest(found, found[1:]):
        if match["language"] not in RUNNABLE:
            continue
        is_output = after and after["language"] in OUTPUT and not text[match.end() : after.start()].strip()
        blocks.append(
            Block(
                document,
                text.count("\n", 0, match.start("text")),
                match["language"],
                match["title"],
                textwrap.dedent(match["text"]),
                match["reason"],
                textwrap.dedent(after["text"]) if is_output else None,
            )
        )
    return blocks
