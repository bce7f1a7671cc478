"""Subscription versions and the current row of each, inside a transaction that someone else opened."""

from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from typing import Any, Final

import sqlalchemy as sa

from mauve.stores.ledger import SubscriptionVersion
from mauve.stores.sql.ledger_schema import subscription_versions, subscriptions
from mauve.stores.sql.upsert import upsert

_CHANGING: Final = ("id", "at", "received_at", "status", "mrr", "currency", "payload", "rank")


def record_versions(tx: sa.Connection, versions: Sequence[SubscriptionVersion]) -> None:
    if not versions:
        return
    rows = [_row_from(version) for version in versions]
    # The current rows come first: they are held until the end, so that of two versions with equal `at` and no rank
    # the one that stands is the one with the higher sequence.
    tx.execute(_replace_older(tx.dialect.name), _latest(rows))
    tx.execute(_append(tx.dialect.name), rows)


def _latest(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the winner of each subscription, sorted: PostgreSQL transactions then wait in line."""
    winners: dict[tuple[str, bytes], dict[str, Any]] = {}
    for row in rows:
        key = (row["project"], row["key"])
        if key not in winners or _replaces(row, winners[key]):
            winners[key] = row
    return [winners[key] for key in sorted(winners)]


def _replaces(row: dict[str, Any], standing: dict[str, Any]) -> bool:
    """Tell the same as `_replace_older` does: a version that came again changes nothing."""
    ours, theirs = (row["at"], row["rank"]), (standing["at"], standing["rank"])
    return ours > theirs or (ours == theirs and not row["rank"])


@cache
def _append(dialect_name: str) -> sa.Insert:
    return upsert(dialect_name, subscription_versions).on_conflict_do_nothing()


@cache
def _replace_older(dialect_name: str) -> sa.Insert:
    insert = upsert(dialect_name, subscriptions)
    ours = sa.tuple_(insert.excluded.at, insert.excluded.rank)
    theirs = sa.tuple_(subscriptions.c.at, subscriptions.c.rank)
    return insert.on_conflict_do_update(
        index_elements=[subscriptions.c.project, subscriptions.c.key],
        set_={name: insert.excluded[name] for name in _CHANGING},
        where=sa.or_(ours > theirs, (ours == theirs) & (sa.func.length(subscriptions.c.rank) == 0)),
    )


def _row_from(version: SubscriptionVersion) -> dict[str, Any]:
    return {
        "project": version.project,
        "key": sha256(version.id.encode()).digest(),
        "id": version.id,
        "at": version.at,
        "received_at": version.received_at,
        "status": version.status,
        "mrr": version.mrr,
        "currency": version.currency,
        "payload": version.payload,
        "rank": version.rank,
    }
