"""State shared by the processes of all machines to enforce limits: one row each, in the catalog's database."""

import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import sqlalchemy as sa

from mauve.core.accepted import AcceptedCounts
from mauve.stores import StoreUnavailableError
from mauve.stores.catalog.schema import processes
from mauve.stores.limits.accepted import decoded, encoded
from mauve.stores.limits.presence import ABSENT_AFTER_S
from mauve.stores.sql.database import Database
from mauve.stores.sql.dialects import now_ms, upsert

_COUNTS_MS: Final = 3 * 86_400_000
_SHARE_AGAIN_S: Final = 86_400.0

_EMPTY: Final = encoded({})


def _put(database: Database, process: str, time_column: str, **values: Any) -> None:  # noqa: ANN401 - of any column
    with database.writing(is_expendable=True) as tx:
        changes = values | {time_column: now_ms(tx.dialect.name)}
        insert = upsert(tx.dialect.name, processes).values(process=process, **changes)
        tx.execute(insert.on_conflict_do_update(index_elements=[processes.c.process], set_=changes))


class SqlAcceptedCounts:
    """The exchange of accepted counts. Used from one thread at a time. Counts expire after three days."""

    def __init__(self, database: Database, process: str, ticks: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._ticks = ticks
        self._seen: dict[str, bytes] = {}
        # The counts of an earlier process with this name are still valid; if they cannot be read, use another name.
        self._process = process if self._has_read() else f"{process}-{secrets.token_hex(4)}"
        self._shared, self._shared_at = self._seen.get(self._process, _EMPTY), ticks()
        with suppress(StoreUnavailableError):
            _forget_gone(database)

    def share(self, accepted: Mapping[int, AcceptedCounts]) -> None:
        content = encoded(accepted)
        may_expire = content != _EMPTY and self._ticks() - self._shared_at > _SHARE_AGAIN_S
        if content == self._shared and not may_expire:
            return
        _put(self._database, self._process, "accepted_at", accepted=content)
        self._shared, self._shared_at = content, self._ticks()

    def own(self) -> dict[int, AcceptedCounts]:
        counts = decoded(self._seen.get(self._process, _EMPTY))
        return {stream: accepted.copy() for stream, accepted in counts.items()}

    def others(self) -> list[tuple[int, AcceptedCounts]]:
        """Return the counts of the others; while the database is down, the last known ones."""
        self._has_read()
        others = (content for process, content in self._seen.items() if process != self._process)
        return [pair for content in others for pair in decoded(content).items()]

    def _has_read(self) -> bool:
        with suppress(StoreUnavailableError), self._database.reading() as tx:
            is_recent = processes.c.accepted_at > now_ms(tx.dialect.name) - _COUNTS_MS
            rows = tx.execute(sa.select(processes.c.process, processes.c.accepted).where(is_recent)).all()
            self._seen = {process: bytes(accepted) for process, accepted in rows}
            return True
        return False


def beat_in_database(database: Database, process: str) -> int:
    """Record a heartbeat of this process; return how many have sent one recently."""
    _put(database, process, "beat_at")
    with database.reading() as tx:
        present_since = now_ms(tx.dialect.name) - int(ABSENT_AFTER_S * 1000)
        return tx.execute(sa.select(sa.func.count()).where(processes.c.beat_at > present_since)).scalar_one()


def _forget_gone(database: Database) -> None:
    """Delete the rows of processes that have ended long ago: a machine may have a new name at every start."""
    with database.writing(is_expendable=True) as tx:
        began_at = now_ms(tx.dialect.name) - _COUNTS_MS
        times = (sa.func.coalesce(column, 0) for column in (processes.c.accepted_at, processes.c.beat_at))
        tx.execute(sa.delete(processes).where(*(at < began_at for at in times)))
