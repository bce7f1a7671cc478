"""What payments and loaded events count alike: usage, and first sightings.

Everything runs inside a transaction that someone else opened, and touches rows in sorted order: two PostgreSQL
transactions then wait for each other in line, never in a circle.
"""

from collections.abc import Mapping
from functools import cache

import sqlalchemy as sa

from mauve.stores.sql.ledger.schema import first_seen, usage
from mauve.stores.sql.upsert import upsert


def add_usage(tx: sa.Connection, events_by_org_and_period: Mapping[tuple[str, str], int]) -> None:
    rows = [
        {"org_id": org_id, "period": period, "events": events}
        for (org_id, period), events in sorted(events_by_org_and_period.items())
    ]
    if rows:
        tx.execute(_add(tx.dialect.name), rows)


def keep_first_seen(tx: sa.Connection, moment_by_project: Mapping[str, int]) -> None:
    """Remember the earliest moment at which each project was seen; a new one is for the catalog to take over.

    Streams are loaded and payments recorded side by side: what was received first may come second.
    """
    rows = [{"project": project, "at": at, "noted": False} for project, at in sorted(moment_by_project.items())]
    if rows:
        tx.execute(_keep_earlier(tx.dialect.name), rows)


@cache
def _add(dialect_name: str) -> sa.Insert:
    insert = upsert(dialect_name, usage)
    sums = {"events": usage.c.events + insert.excluded.events}
    return insert.on_conflict_do_update(index_elements=[usage.c.org_id, usage.c.period], set_=sums)


@cache
def _keep_earlier(dialect_name: str) -> sa.Insert:
    insert = upsert(dialect_name, first_seen)
    return insert.on_conflict_do_update(
        index_elements=[first_seen.c.project],
        set_={"at": insert.excluded.at, "noted": insert.excluded.noted},
        where=insert.excluded.at < first_seen.c.at,
    )
