"""What the ledger has counted, for caps and for pages."""

from collections.abc import Collection, Iterable, Iterator
from typing import Final

import sqlalchemy as sa

from mauve.core.accepted import OrgPeriod
from mauve.core.batch import HEADER_BYTES_MAX, MalformedBatchError, unpacked
from mauve.core.period import period_of
from mauve.stores.log import MIXED_STREAM
from mauve.stores.sql.database import Database
from mauve.stores.sql.ledger.schema import event_outbox, event_outbox_head, load_positions, usage
from mauve.stores.usage import Counted, WaitingEvents

_ORGANIZATIONS_AT_ONCE: Final = 500
_ROWS_AT_ONCE: Final = 256


class SqlUsageReader:
    def __init__(self, database: Database) -> None:
        self._database = database

    def events(self, org_period: OrgPeriod) -> int:
        with self._database.reading() as tx:
            return dict(_events(tx, org_period.period, [org_period.org_id])).get(org_period.org_id, 0)

    def counted(self, period: str, org_ids: Collection[str], mixed_after: int) -> Counted:
        with self._database.reading() as tx:
            events = dict(_events(tx, period, sorted(org_ids)))
            positions = dict(tx.execute(sa.select(load_positions.c.stream, load_positions.c.number)).all())
            after = max(mixed_after, positions.get(MIXED_STREAM, 0))
            mixed = [waiting for waiting in _mixed(tx, after) if waiting.org_period.org_id in org_ids]
            return Counted(period, events, positions, mixed, _last_mixed(tx))


def _events(tx: sa.Connection, period: str, org_ids: list[str]) -> Iterator[tuple[str, int]]:
    for start in range(0, len(org_ids), _ORGANIZATIONS_AT_ONCE):
        some = org_ids[start : start + _ORGANIZATIONS_AT_ONCE]
        query = sa.select(usage.c.org_id, usage.c.events).where(usage.c.period == period, usage.c.org_id.in_(some))
        yield from ((org_id, events) for org_id, events in tx.execute(query))


def _mixed(tx: sa.Connection, after: int) -> Iterator[WaitingEvents]:
    """Read no more than the headers of the records that wait."""
    header = sa.func.substr(event_outbox.c.record, 1, HEADER_BYTES_MAX)
    number = event_outbox.c.number
    query = sa.select(number, header).where(number > after).order_by(number)
    with tx.execute(query, execution_options={"yield_per": _ROWS_AT_ONCE}) as rows:
        yield from _waiting_from((number, header) for number, header in rows)


def _last_mixed(tx: sa.Connection) -> int:
    return int(tx.execute(sa.select(event_outbox_head.c.number)).scalar_one())


def _waiting_from(rows: Iterable[tuple[int, bytes]]) -> Iterator[WaitingEvents]:
    for number, header in rows:
        try:
            batch = unpacked(header)
        except MalformedBatchError:
            continue  # It will not be counted either.
        yield WaitingEvents(number, OrgPeriod(batch.org_id, period_of(batch.received_at)), batch.event_count)
