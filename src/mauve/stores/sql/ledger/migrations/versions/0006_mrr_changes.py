"""MRR by day, computed from all recorded versions."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

import sqlalchemy as sa
import structlog
from alembic import op
from sqlalchemy.dialects import postgresql, sqlite

revision = "0006"
down_revision = "0005"

_SPANS = (1, 128, 128 * 128)
_DAY_US = 86_400_000_000
_HALF = 2**32
_ROWS_AT_ONCE = 1_000
_SUMS_MAX = 20_000  # held in memory
_TOLD_EVERY = 100_000

_Sums = Mapping[tuple[str, int, int, str], list[int]]

log = structlog.get_logger()


def upgrade() -> None:
    table = _create_table()
    connection = op.get_bind()
    sums: dict[tuple[str, int, int, str], list[int]] = defaultdict(lambda: [0, 0])
    for project, day, currency, active, mrr in _changes(connection):
        for span in _SPANS:
            added = sums[project, span, day // span, currency]
            added[0] += active
            added[1] += mrr
        if len(sums) >= _SUMS_MAX:
            _add(connection, table, sums)
            sums.clear()
    _add(connection, table, sums)


def _create_table() -> sa.Table:
    return op.create_table(
        "mrr_changes",
        sa.Column("project", sa.Text, primary_key=True),
        sa.Column("span", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("block", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("currency", sa.Text, primary_key=True),
        sa.Column("active", sa.BigInteger, nullable=False),
        sa.Column("high", sa.BigInteger, nullable=False),
        sa.Column("low", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )


def _changes(connection: sa.Connection) -> Iterator[tuple[str, int, str, int, int]]:
    """Yield (project, day, currency, active, mrr): what each version removes, and what it adds."""
    total = connection.execute(sa.text("SELECT count(*) FROM subscription_versions")).scalar_one()
    versions = connection.execute(
        # In index order: nothing is sorted, and the table itself is not read.
        sa.text(
            "SELECT project, key, at, currency, CASE WHEN status = 'active' THEN mrr END FROM subscription_versions "
            "ORDER BY project, key, at, rank, sequence"
        ),
        execution_options={"yield_per": _ROWS_AT_ONCE},
    )
    last_key, last_currency, last_mrr = None, "", None
    for number, (project, key, at, currency, mrr) in enumerate(versions):
        day = at // _DAY_US
        if last_mrr is not None and (project, key) == last_key:
            yield project, day, last_currency, -1, -last_mrr
        if mrr is not None:
            yield project, day, currency, 1, mrr
        last_key, last_currency, last_mrr = (project, key), currency, mrr
        if number % _TOLD_EVERY == 0:
            log.info("building_mrr_history", versions_done=number, versions=total)


def _add(connection: sa.Connection, table: sa.Table, sums: _Sums) -> None:
    rows = [
        {
            "project": project,
            "span": span,
            "block": block,
            "currency": currency,
            "active": active,
            "high": mrr // _HALF,
            "low": mrr % _HALF,
        }
        for (project, span, block, currency), (active, mrr) in sums.items()
        if active or mrr
    ]
    insert = (sqlite if connection.dialect.name == "sqlite" else postgresql).insert(table)
    added = {name: table.c[name] + insert.excluded[name] for name in ("active", "high", "low")}
    if rows:
        connection.execute(
            insert.on_conflict_do_update(index_elements=list(table.primary_key.columns), set_=added), rows
        )
