"""The loader lease: one row, claimed by the first loader that finds it free."""

from functools import cache
from typing import NamedTuple

import sqlalchemy as sa

from mauve.stores.ledger import Turn
from mauve.stores.ledger.schema import load_lease
from mauve.stores.sql.database import Database
from mauve.stores.sql.dialects import now_ms


class Lease(NamedTuple):
    holder: str
    left_s: float  # until it expires, unless it is renewed


class SqlLeaseStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    def acquire(self, holder: str, ttl_s: float) -> Turn | None:
        with self._database.writing() as tx:
            taken = tx.execute(_acquisition(tx.dialect.name), {"by": holder, "ttl_ms": int(ttl_s * 1000)})
            return Turn(holder, tx.execute(sa.select(load_lease.c.epoch)).scalar_one()) if taken.rowcount else None

    def renew(self, turn: Turn, ttl_s: float) -> bool:
        with self._database.writing() as tx:
            expires_at = now_ms(tx.dialect.name) + int(ttl_s * 1000)
            return tx.execute(update_during(turn).values(expires_at=expires_at)).rowcount == 1

    def release(self, turn: Turn) -> None:
        with self._database.writing() as tx:
            tx.execute(update_during(turn).values(holder=None))

    def current(self) -> Lease | None:
        """Return the current lease, for operators; None if it is free or has expired."""
        with self._database.reading() as tx:
            left_ms = load_lease.c.expires_at - now_ms(tx.dialect.name)
            holder, left = tx.execute(sa.select(load_lease.c.holder, left_ms)).one()
        return Lease(holder, left / 1000) if holder is not None and left > 0 else None

    def renewed_s_ago(self, ttl_s: float) -> float:
        """Return how long ago the last turn began or was renewed, even if it has ended, for operators."""
        with self._database.reading() as tx:
            left_ms: int = tx.execute(sa.select(load_lease.c.expires_at - now_ms(tx.dialect.name))).scalar_one()
        return ttl_s - left_ms / 1000


def _ttl_ms() -> sa.BindParameter[int]:
    return sa.bindparam("ttl_ms", type_=sa.BigInteger)


@cache
def _acquisition(dialect_name: str) -> sa.Update:
    now = now_ms(dialect_name)
    # If a lease ends later than one granted now, the database's clock was set back.
    has_expired = ~load_lease.c.expires_at.between(now + 1, now + _ttl_ms())
    holder = sa.bindparam("by", type_=sa.Text)
    is_free = sa.or_(load_lease.c.holder.is_(None), load_lease.c.holder == holder, has_expired)
    turn = {"holder": holder, "epoch": load_lease.c.epoch + 1, "expires_at": now + _ttl_ms()}
    return sa.update(load_lease).where(is_free).values(turn)


def update_during(turn: Turn) -> sa.Update:
    """Return an update of the lease that changes no row unless this is the current turn."""
    return sa.update(load_lease).where(load_lease.c.epoch == turn.epoch, load_lease.c.holder == turn.holder)
