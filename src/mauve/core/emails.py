"""E-mail addresses, as far as we look at them: somebody can be told apart, nobody is written to."""

import re
from typing import Final

_ADDRESS: Final = re.compile(r"[^\s@]+@[^\s@]+")
CHARACTERS_MAX: Final = 254


def email_from(text: str) -> str | None:
    """Return the address in the one spelling that is stored; None if it cannot be one."""
    address = text.strip().lower()
    is_one = len(address) <= CHARACTERS_MAX and address.isprintable() and _ADDRESS.fullmatch(address) is not None
    return address if is_one else None
