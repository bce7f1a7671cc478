"""Text that must not be shown."""

import re
from typing import Final, final

# The last line of defense: nothing should log a credential, and if something does, it is masked.
_CREDENTIAL: Final = re.compile(r"\b((?:sk|pk|ctl)_(?:live|test)_|whsec_|polar_whs_)[0-9A-Za-z+/=_-]+")


@final
class Secret:
    """A credential or signing secret. Its repr shows nothing; `.reveal()` is the only way to read it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return "Secret(…)"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


def masked_text(text: str) -> str:
    return _CREDENTIAL.sub(r"\1…", text)
