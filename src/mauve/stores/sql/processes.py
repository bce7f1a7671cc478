"""State shared by the processes of all machines to enforce limits: one row each, in the catalog's database."""

import secrets
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec
import sqlalchemy as sa

from mauve.core.accepted import AcceptedCounts, OrgPeriod, Subtotal
from mauve.stores import StoreUnavailableError
from mauve.stores.catalog.schema import processes
from mauve.stores.sql.database import Database
from mauve.stores.sql.dialects import now_ms, upsert

BEAT_EVERY_S: Final = 1.0
ABSENT_AFTER_S: Final = 5.0
USE_S: Final = 30.0
"""How long a process counts as a user of a limit after its last use."""
_COUNTS_MS: Final = 3 * 86_400_000
_SHARE_AGAIN_S: Final = 86_400.0

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(list[tuple[int, list[tuple[str, str, list[Subtotal]]]]])  # by stream
_EMPTY: Final = _encoder.encode([])


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
        self._decoded: dict[bytes, dict[int, AcceptedCounts]] = {}
        # The counts of an earlier process with this name are still valid; if they cannot be read, use another name.
        self._process = process if self._has_read() else f"{process}-{secrets.token_hex(4)}"
        self._shared, self._shared_at = self._seen.get(self._process, _EMPTY), ticks()
        with suppress(StoreUnavailableError):
            _forget_gone(database)

    def share(self, accepted: Mapping[int, AcceptedCounts]) -> None:
        content = _content_of(accepted)
        may_expire = content != _EMPTY and self._ticks() - self._shared_at > _SHARE_AGAIN_S
        if content == self._shared and not may_expire:
            return
        _put(self._database, self._process, "accepted_at", accepted=content)
        self._shared, self._shared_at = content, self._ticks()

    def own(self) -> dict[int, AcceptedCounts]:
        counts = self._counts_from(self._seen.get(self._process, _EMPTY))
        return {stream: accepted.copy() for stream, accepted in counts.items() if accepted}

    def others(self) -> list[tuple[int, AcceptedCounts]]:
        """Return the counts of the others; while the database is down, the last known ones."""
        self._has_read()
        others = (content for process, content in self._seen.items() if process != self._process)
        return [pair for content in others for pair in self._counts_from(content).items()]

    def _has_read(self) -> bool:
        with suppress(StoreUnavailableError), self._database.reading() as tx:
            is_recent = processes.c.accepted_at > now_ms(tx.dialect.name) - _COUNTS_MS
            rows = tx.execute(sa.select(processes.c.process, processes.c.accepted).where(is_recent)).all()
            self._seen = {process: bytes(accepted) for process, accepted in rows}
            return True
        return False

    def _counts_from(self, content: bytes) -> dict[int, AcceptedCounts]:
        """Return the counts, usually unchanged since the last call. Ignore counts in another release's format."""
        if content not in self._decoded:
            self._decoded = {known: self._decoded[known] for known in self._seen.values() if known in self._decoded}
            self._decoded[content] = _decoded(content)
        return self._decoded[content]


class SqlPresence:
    """Counts the processes that currently use a limit. A thread sends heartbeats while this one does.

    While the database is down, the count does not change.
    """

    def __init__(self, database: Database, process: str) -> None:
        self._database = database
        self._process = process
        self._used_at = -USE_S
        self._sharing = 1
        self._news = threading.Event()
        self._is_closing = False
        self._thread = threading.Thread(target=self._beat_forever, name="presence", daemon=True)
        self._thread.start()

    def use(self) -> int:
        """Record a use of the limit; return the number of processes using it, including this one. Never blocks."""
        now, used_at = time.monotonic(), self._used_at
        self._used_at = now
        if now - used_at >= USE_S:
            self._news.set()
        return self._sharing

    def close(self) -> None:
        self._is_closing = True
        self._news.set()
        self._thread.join()

    def _beat_forever(self) -> None:
        while not self._is_closing:
            is_used = time.monotonic() - self._used_at < USE_S
            self._news.wait(BEAT_EVERY_S if is_used else None)
            self._news.clear()
            if time.monotonic() - self._used_at < USE_S:
                with suppress(StoreUnavailableError):  # The next heartbeat follows soon.
                    self._beat()

    def _beat(self) -> None:
        _put(self._database, self._process, "beat_at")
        with self._database.reading() as tx:
            present_since = now_ms(tx.dialect.name) - int(ABSENT_AFTER_S * 1000)
            is_other = (processes.c.process != self._process) & (processes.c.beat_at > present_since)
            self._sharing = 1 + tx.execute(sa.select(sa.func.count()).where(is_other)).scalar_one()


def _forget_gone(database: Database) -> None:
    """Delete the rows of processes that have ended long ago: a machine may have a new name at every start."""
    with database.writing(is_expendable=True) as tx:
        began_at = now_ms(tx.dialect.name) - _COUNTS_MS
        times = (sa.func.coalesce(column, 0) for column in (processes.c.accepted_at, processes.c.beat_at))
        tx.execute(sa.delete(processes).where(*(at < began_at for at in times)))


def _content_of(accepted: Mapping[int, AcceptedCounts]) -> bytes:
    counts = [
        (stream, [(*org_period, subtotals) for org_period, subtotals in each])
        for stream, each in sorted(accepted.items())
        if each
    ]
    return _encoder.encode(counts)


def _decoded(content: bytes) -> dict[int, AcceptedCounts]:
    try:
        return {
            stream: AcceptedCounts({OrgPeriod(org_id, period): subtotals for org_id, period, subtotals in counts})
            for stream, counts in _decoder.decode(content)
        }
    except msgspec.MsgspecError:
        return {}
