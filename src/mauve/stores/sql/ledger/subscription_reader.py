"""The owner's side of the subscriptions."""

from typing import Final

import sqlalchemy as sa

from mauve.stores.sql.column_types import AnyText
from mauve.stores.sql.database import Database
from mauve.stores.sql.ledger.schema import subscriptions
from mauve.stores.subscriptions import ID_CHARACTERS_SHOWN, CurrentSubscription, SubscriptionCount

_columns: Final = subscriptions.c
# An id has no limit but that of a body. It is cut where it is stored, behind what is shown even if all is escaped.
_ID: Final = sa.type_coerce(sa.func.substr(_columns.id, 1, 2 * (ID_CHARACTERS_SHOWN + 1)), AnyText)
_SHOWN: Final = (_columns.key, _ID, _columns.at, _columns.status, _columns.mrr, _columns.currency)
_COUNT: Final = sa.func.count()


class SqlSubscriptionReader:
    def __init__(self, database: Database) -> None:
        self._database = database

    def page(self, project: str, after: bytes, limit: int) -> list[CurrentSubscription]:
        query = sa.select(*_SHOWN).where(_columns.project == project, _columns.key > after)
        with self._database.reading() as tx:
            found = tx.execute(query.order_by(_columns.key).limit(limit))
            return [CurrentSubscription(key, _shown(id_), *rest) for key, id_, *rest in found]

    def counts(self, project: str, limit: int) -> list[SubscriptionCount]:
        query = (
            sa.select(_columns.status, _columns.currency, _COUNT)
            .where(_columns.project == project)
            .group_by(_columns.status, _columns.currency)
            .order_by(_COUNT.desc(), _columns.status, _columns.currency)
        )
        with self._database.reading() as tx:
            return [SubscriptionCount(*row) for row in tx.execute(query.limit(limit))]


def _shown(id_: str) -> str:
    return id_ if len(id_) <= ID_CHARACTERS_SHOWN else f"{id_[:ID_CHARACTERS_SHOWN]}…"
