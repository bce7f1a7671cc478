"""When control tokens were last used: noted in memory, written down now and then."""

import threading
from typing import Final

from mauve.stores.catalog import Tokens

WRITE_EVERY_S: Final = 20.0


class TokenUses:
    """Costs a request next to nothing, and never fails one: what is lost with the process is a moment of the past."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._used_at: dict[str, int] = {}  # bounded by the number of tokens that exist
        self._noting = threading.Lock()

    def note(self, lookup_id: str, now_ms: int) -> None:
        """Note the use of a token that was found to be right."""
        with self._noting:
            self._used_at[lookup_id] = now_ms

    def write_down(self) -> None:
        with self._noting:
            used_at, self._used_at = self._used_at, {}
        self._tokens.note_uses(used_at)
