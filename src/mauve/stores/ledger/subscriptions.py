"""Record subscription versions, the current row of each and their MRR, within the caller's transaction."""

from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from typing import Any, Final, NamedTuple

import msgspec
import sqlalchemy as sa

from mauve.core.subscriptions import MrrContribution, MrrSums, day_of
from mauve.stores.ledger import SubscriptionVersion
from mauve.stores.ledger.mrr import add_changes, inserted_versions
from mauve.stores.ledger.payments import key_batches
from mauve.stores.ledger.schema import subscription_versions, subscriptions
from mauve.stores.sql.dialects import upsert, upsert_replacing

_VERSIONS_AT_ONCE: Final = 500
_LATE_AT_ONCE: Final = 100  # per statement

_Key = tuple[str, bytes]  # project, and digest of the subscription's id
_Row = dict[str, Any]


class _Current(NamedTuple):
    at: int
    rank: bytes
    contribution: MrrContribution


def record_versions(tx: sa.Connection, versions: Sequence[SubscriptionVersion]) -> None:
    sums = MrrSums()
    for start in range(0, len(versions), _VERSIONS_AT_ONCE):
        _record(tx, [_row_from(version) for version in versions[start : start + _VERSIONS_AT_ONCE]], sums)
    add_changes(tx, sums.changes)


def _record(tx: sa.Connection, rows: Sequence[_Row], sums: MrrSums) -> None:
    current_by_key = _current_rows(tx, rows)
    winners: dict[_Key, _Row] = {}
    latest: list[_Row] = []
    late: list[_Row] = []
    for row in rows:
        key, new = (row["project"], row["key"]), _current_from(row)
        current = current_by_key.get(key)
        if current is not None and not replaces(new, current):
            late.append(row)
            continue
        sums.replace(
            row["project"], day_of(new.at), None if current is None else current.contribution, new.contribution
        )
        current_by_key[key], winners[key] = new, row
        latest.append(row)
    if latest:
        tx.execute(upsert_replacing(tx.dialect.name, subscriptions), list(winners.values()))
        tx.execute(_APPEND, latest)
    if late:
        _insert_between(tx, late, sums)


def _current_rows(tx: sa.Connection, rows: Sequence[_Row]) -> dict[_Key, _Current]:
    keys = sorted({(row["project"], row["key"]) for row in rows})
    return {
        (project, key): _Current(at, rank, _contribution(status, currency, mrr))
        for projects, some in key_batches(keys)
        for project, key, at, rank, status, currency, mrr in tx.execute(_CURRENT, {"projects": projects, "keys": some})
    }


def _insert_between(tx: sa.Connection, late: Sequence[_Row], sums: MrrSums) -> None:
    """Record versions older than the current one. A ranked version that is already recorded is a repeat."""
    for start in range(0, len(late), _LATE_AT_ONCE):
        some = late[start : start + _LATE_AT_ONCE]
        new = tx.execute(_append_unless_there(tx.dialect.name), some).scalars().all()
        if new:
            sums.insert(inserted_versions(tx, new))


def replaces(new: _Current, current: _Current) -> bool:
    ours, theirs = (new.at, new.rank), (current.at, current.rank)
    return ours > theirs or (ours == theirs and not new.rank)


def _current_from(row: _Row) -> _Current:
    return _Current(row["at"], row["rank"], _contribution(row["status"], row["currency"], row["mrr"]))


def _contribution(status: str, currency: str, mrr: int) -> MrrContribution:
    return MrrContribution(currency, mrr if status == "active" else None)


_columns: Final = subscriptions.c
_CURRENT: Final = sa.select(
    *(_columns.project, _columns.key, _columns.at, _columns.rank),
    *(_columns.status, _columns.currency, _columns.mrr),
).where(
    _columns.project.in_(sa.bindparam("projects", expanding=True)),
    _columns.key.in_(sa.bindparam("keys", expanding=True)),
)
_APPEND: Final = sa.insert(subscription_versions)


@cache
def _append_unless_there(dialect_name: str) -> sa.Insert:
    insert = upsert(dialect_name, subscription_versions).on_conflict_do_nothing()
    return insert.returning(subscription_versions.c.sequence)


def _row_from(version: SubscriptionVersion) -> _Row:
    return msgspec.structs.asdict(version) | {"key": key_of(version.id)}


def key_of(id_: str) -> bytes:
    return sha256(id_.encode()).digest()
