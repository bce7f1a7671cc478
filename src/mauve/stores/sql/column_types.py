"""Column types that store anything a client may send, on every engine."""

import re
from typing import Final

import sqlalchemy as sa

_ESCAPED: Final = re.compile(r"\\(.)")


def escaped(text: str) -> str:
    r"""Return the text without U+0000, which PostgreSQL rejects: NUL as `\0`, a backslash as `\\`."""
    if "\\" not in text and "\0" not in text:
        return text
    return text.replace("\\", "\\\\").replace("\0", "\\0")


def unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    return _ESCAPED.sub(lambda match: "\0" if match[1] == "0" else match[1], text)


class AnyText(sa.TypeDecorator[str]):
    """Text that may contain NUL. Equal texts have equal stored forms."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:  # noqa: ARG002 - the base class's signature
        return None if value is None else escaped(value)

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> str | None:  # noqa: ARG002 - the base class's signature
        return None if value is None else unescaped(value)


class WholeNumber(sa.TypeDecorator[int]):
    """An integer of any size, as decimal text: 64 bits are too few for sums of money."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: int | None, dialect: sa.Dialect) -> str | None:  # noqa: ARG002 - the base class's signature
        return None if value is None else str(value)

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> int | None:  # noqa: ARG002 - the base class's signature
        return None if value is None else int(value)
