"""The events that came in one batch with payments, until the loader has them."""

from collections.abc import Sequence

import sqlalchemy as sa

from mauve.stores.log import LogRecord
from mauve.stores.sql.ledger.schema import event_outbox, event_outbox_head

_ROWS_AT_ONCE = 16


def append_events(tx: sa.Connection, records: Sequence[bytes]) -> None:
    """Store records under the next numbers.

    The head is held until the transaction ends, so numbers become visible in their order: a reader that has
    seen one will never miss a lower one. A sequence of PostgreSQL's would not promise that.
    """
    if not records:
        return
    last = tx.execute(sa.select(event_outbox_head.c.number).with_for_update()).scalar_one()
    rows = [{"number": number, "record": record} for number, record in enumerate(records, start=last + 1)]
    tx.execute(sa.insert(event_outbox), rows)
    tx.execute(sa.update(event_outbox_head).values(number=last + len(records)))


def read_events(tx: sa.Connection, after: int, bytes_max: int) -> list[LogRecord]:
    """Return at least one record if there is one, else stop before `bytes_max`."""
    query = sa.select(event_outbox).where(event_outbox.c.number > after).order_by(event_outbox.c.number)
    records: list[LogRecord] = []
    size = 0
    with tx.execute(query, execution_options={"yield_per": _ROWS_AT_ONCE}) as rows:
        for number, record in rows:
            size += len(record)
            if records and size > bytes_max:
                break
            records.append(LogRecord(number, record))
    return records


def trim_events(tx: sa.Connection, through: int) -> None:
    tx.execute(sa.delete(event_outbox).where(event_outbox.c.number <= through))
