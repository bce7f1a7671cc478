"""When credentials were last used. Approximate on purpose: it costs a request almost nothing and never fails one."""

import threading
from typing import TYPE_CHECKING, Final

from mauve.core.clock import Clock
from mauve.core.times import DAY_MS
from mauve.stores.ingest_stats import DAYS_KEPT

if TYPE_CHECKING:
    from mauve.stores.catalog.credentials import Keys, Tokens
    from mauve.stores.ledger.usage import IngestStatsReader

USES_FLUSH_EVERY_S: Final = 20.0
_OVERLAP_MS: Final = 120_000  # Processes write their uses at different times: look back far enough to miss none.


class CredentialUses:
    """The uses of control tokens and keys in this process, in memory until `flush`; a crash loses a few seconds."""

    def __init__(self, tokens: "Tokens", keys: "Keys") -> None:
        self._tokens = tokens
        self._keys = keys
        # Bounded by the numbers of tokens and keys that exist: only authenticated ones are noted.
        self._token_used_at: dict[str, int] = {}  # by lookup id
        self._key_used_at: dict[str, int] = {}  # by key id
        self._lock = threading.Lock()

    def note_token(self, lookup_id: str, now_ms: int) -> None:
        with self._lock:
            self._token_used_at[lookup_id] = now_ms

    def note_key(self, key_id: str, now_ms: int) -> None:
        with self._lock:
            self._key_used_at[key_id] = now_ms

    def flush(self) -> None:
        with self._lock:
            token_used_at, self._token_used_at = self._token_used_at, {}
            key_used_at, self._key_used_at = self._key_used_at, {}
        self._tokens.note_uses(token_used_at)
        self._keys.note_uses(key_used_at)


class KeyUseCopy:
    """Copies the uses that ingest processes have written to the ledger into the catalog, which they never touch."""

    def __init__(self, stats: "IngestStatsReader", keys: "Keys", clock: Clock) -> None:
        self._stats = stats
        self._keys = keys
        self._clock = clock
        # At the start copy all that are kept: the core may have been down for long.
        self._since = clock.now_ms() - DAYS_KEPT * DAY_MS

    def copy(self) -> None:
        now_ms = self._clock.now_ms()
        self._since = min(self._since, now_ms - _OVERLAP_MS)
        found = self._stats.key_uses(self._since, now_ms)
        used_at = {key_id: min(at, now_ms) for key_id, at in found.items()}  # A clock may have run ahead.
        self._keys.note_uses(used_at)
        self._since = max([self._since, *(at - _OVERLAP_MS for at in used_at.values())])
