"""Token buckets in the catalog's database, for limits that machines share."""

from typing import Final

import sqlalchemy as sa

from mauve.overload.token_bucket import taken_from
from mauve.stores.catalog.schema import buckets
from mauve.stores.sql.database import Database
from mauve.stores.sql.dialects import escaped, upsert

_PRUNE_EVERY_MS: Final = 60_000


class SqlTokenBuckets:
    """One bucket per key, as `TokenBuckets`, on the clock of the database. A bucket that is full again is deleted."""

    def __init__(self, database: Database, kind: str, per_second: float, burst: float) -> None:
        self._database = database
        self._kind = kind
        self._per_second = per_second
        self._burst = burst
        self._pruned_at = 0

    def seconds_to_wait(self, key: str, now_ms: int) -> int:
        """Take one token and return 0, or return the whole seconds to wait if the bucket is empty."""
        name = f"{self._kind} {escaped(key)}"
        self._prune(now_ms)
        with self._database.writing(is_expendable=True) as tx:
            now_ms = self._database.time_of(tx, now_ms)
            insert = upsert(tx.dialect.name, buckets).values(name=name, tokens=self._burst, at=now_ms)
            lock = insert.on_conflict_do_update(index_elements=[buckets.c.name], set_={"name": insert.excluded.name})
            tokens, at = tx.execute(lock.returning(buckets.c.tokens, buckets.c.at)).one()
            left, wait_s = taken_from(tokens, now_ms - at, self._per_second, self._burst)
            tx.execute(sa.update(buckets).where(buckets.c.name == name).values(tokens=left, at=now_ms))
        return wait_s

    def _prune(self, now_ms: int) -> None:
        if abs(now_ms - self._pruned_at) < _PRUNE_EVERY_MS:
            return
        self._pruned_at = now_ms
        full_after_ms = int(self._burst / self._per_second * 1000)
        is_ours = buckets.c.name.startswith(f"{self._kind} ", autoescape=True)
        with self._database.writing(is_expendable=True) as tx:
            is_full = buckets.c.at < self._database.time_of(tx, now_ms) - full_after_ms
            tx.execute(sa.delete(buckets).where(is_ours & is_full))
