"""Subscription versions and the current row of each, inside a transaction that someone else opened."""

from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from typing import Any, Final

import sqlalchemy as sa

from mauve.stores.ledger import SubscriptionVersion
from mauve.stores.sql.ledger_schema import subscription_versions, subscriptions
from mauve.stores.sql.upsert import upsert

_CHANGING: Final = ("id", "at", "received_at", "status", "mrr", "currency", "payload")
_APPEND: Final = sa.insert(subscription_versions)


def record_versions(tx: sa.Connection, versions: Sequence[SubscriptionVersion]) -> None:
    if not versions:
        return
    rows = [_row_from(version) for version in versions]
    # The current rows come first: they are held until the end, so that of two versions with equal `at` the one
    # that stands is the one with the higher sequence.
    tx.execute(_replace_older(tx.dialect.name), _latest(rows))
    tx.execute(_APPEND, rows)


def _latest(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the winner of each subscription, sorted: PostgreSQL transactions then wait in line."""
    winners: dict[tuple[str, bytes], dict[str, Any]] = {}
    for row in rows:
        key = (row["project"], row["key"])
        if key not in winners or row["at"] >= winners[key]["at"]:
            winners[key] = row
    return [winners[key] for key in sorted(winners)]


@cache
def _replace_older(dialect_name: str) -> sa.Insert:
    insert = upsert(dialect_name, subscriptions)
    return insert.on_conflict_do_update(
        index_elements=[subscriptions.c.project, subscriptions.c.key],
        set_={name: insert.excluded[name] for name in _CHANGING},
        where=insert.excluded.at >= subscriptions.c.at,
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
    }
