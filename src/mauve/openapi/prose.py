"""The texts of the document as HTML: paragraphs, lists and `code`, of CommonMark no more than we write."""

import re
from typing import Final

from markupsafe import Markup, escape

_CODE: Final = re.compile(r"`([^`]+)`")


def line(text: str) -> Markup:
    """Return one line of text with its code marked."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704 - escaped just here


def prose(text: str) -> Markup:
    """Return paragraphs, and a list where every line of one begins with a dash."""
    return Markup("").join(_block(block.splitlines()) for block in text.split("\n\n"))


def _block(lines: list[str]) -> Markup:
    if all(each.startswith("- ") for each in lines):
        items = Markup("").join(Markup("<li>{}</li>").format(line(each[2:])) for each in lines)
        return Markup("<ul>{}</ul>").format(items)
    return Markup("<p>{}</p>").format(line(" ".join(lines)))
