"""Convert the billers' amounts in ISK, UGX and MGA from their units to the minor units of ISO 4217."""

import hashlib
from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import msgspec
import sqlalchemy as sa
from alembic import op

from mauve.stores.sql.column_types import AnyText, WholeNumber

revision = "0005"
down_revision = "0004"

_SCALES = {"isk": Fraction(1, 100), "ugx": Fraction(1, 100), "mga": Fraction(100)}
_BILLERS = ("biller_a", "biller_b")

_payments = sa.table(
    "payments",
    sa.column("project", sa.Text),
    sa.column("id", AnyText),
    sa.column("digest", sa.LargeBinary),
    sa.column("amount", sa.BigInteger),
    sa.column("currency", sa.Text),
    sa.column("earned", sa.Boolean),
    sa.column("day", sa.Text),
    sa.column("user", AnyText),
    sa.column("source", sa.Text),
)
_totals = sa.table(
    "day_totals",
    sa.column("project", sa.Text),
    sa.column("day", sa.Text),
    sa.column("currency", sa.Text),
    sa.column("earned", sa.Boolean),
    sa.column("total", WholeNumber),
)


def upgrade() -> None:
    _convert_payments()
    for table, key in (("subscriptions", "key"), ("subscription_versions", "sequence")):
        _convert_mrr(table, key)


def _convert_payments() -> None:
    tx, columns = op.get_bind(), _payments.c
    billed = sa.select(_payments).where(columns.source.in_(_BILLERS), columns.currency.in_(_SCALES))
    increases: Counter[tuple[str, str, str, bool]] = Counter()
    rows = tx.execute(billed).all()
    for row in rows:
        amount = _rounded(row.amount * _SCALES[row.currency])
        increases[row.project, row.day, row.currency, row.earned] += amount - row.amount
        # The digest is that of the biller's delivery, so that another delivery of it is still a repeat.
        stated = [row.id, amount, row.earned, row.currency, row.user]
        digest = hashlib.sha256(msgspec.json.encode(stated)).digest()
        is_row = (columns.project == row.project) & (columns.id == row.id)
        tx.execute(sa.update(_payments).where(is_row).values(amount=amount, digest=digest))
    _move_totals(increases.items())


def _move_totals(increases: Iterable[tuple[tuple[str, str, str, bool], int]]) -> None:
    tx, columns = op.get_bind(), _totals.c
    for (project, day, currency, earned), increase in increases:
        is_row = (columns.project == project) & (columns.day == day) & (columns.currency == currency)
        is_row &= columns.earned.is_(earned)
        total = tx.execute(sa.select(columns.total).where(is_row)).scalar_one()
        tx.execute(sa.update(_totals).where(is_row).values(total=total + increase))


def _convert_mrr(name: str, key: str) -> None:
    """Convert the billers' subscriptions: theirs have ranks, those of clients do not."""
    columns: list[sa.ColumnClause[Any]] = [
        sa.column(column) for column in ("project", key, "mrr", "currency", "rank", "payload")
    ]
    table = sa.table(name, *columns)
    ranked = sa.func.length(table.c.rank) > 0
    tx = op.get_bind()
    for row in tx.execute(sa.select(table).where(ranked, table.c.currency.in_(_SCALES))).all():
        mrr = _rounded(_exact_mrr(row) * _SCALES[row.currency])
        is_row = (table.c.project == row.project) & (table.c[key] == getattr(row, key))
        tx.execute(sa.update(table).where(is_row).values(mrr=mrr))


def _exact_mrr(row: Any) -> Fraction:  # noqa: ANN401 - a row of untyped columns
    """Return the value before rounding, if it is still known."""
    exact = msgspec.json.decode(row.payload).get("mrr_exact")
    return Fraction(row.mrr if exact is None else exact)


def _rounded(amount: Fraction) -> int:
    return int((amount + Fraction(1, 2)) // 1)
